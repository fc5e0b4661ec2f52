//! Tests of strategic merge patches on a type with every strategy.

mod create;

use super::fixture::thing;
use super::*;
use crate::patch::notation::object;

/// Parses a table: the cells of a row are separated by `marks`, a long row continues with a mark on the next line, and
/// a line that starts with `#` is a comment.
fn rows<const CELLS: usize>(table: &str, marks: [&str; CELLS]) -> Vec<[String; CELLS]> {
    let mut rows: Vec<String> = Vec::new();
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match rows.last_mut().filter(|_| marks[1..].iter().any(|mark| line.starts_with(&format!("{mark} ")))) {
            Some(row) => *row = format!("{row} {line}"),
            None => rows.push(line.to_owned()),
        }
    }
    let split = |row: String| {
        let mut rest = row.as_str();
        std::array::from_fn(|at| {
            let Some(mark) = marks.get(at + 1) else { return rest.to_owned() };
            let (cell, after) = rest.split_once(&format!(" {mark} ")).unwrap_or_else(|| panic!("no {mark} in {row}"));
            rest = after;
            cell.to_owned()
        })
    };
    rows.into_iter().map(split).collect()
}

fn wrap(under: &str, text: &str) -> Object {
    if under.is_empty() { object(text) } else { object(&format!("{{{under}: {text}}}")) }
}

fn patched(under: &str, live: &str, patch: &str) -> Result<Value, Error> {
    apply(wrap(under, live), wrap(under, patch), thing()).map(Value::Object)
}

fn check_under(under: &str, live: &str, patch: &str, expect: &str) {
    match patched(under, live, patch) {
        Ok(value) => assert_eq!(value, Value::Object(wrap(under, expect)), "{live} + {patch}"),
        Err(error) => panic!("{live} + {patch}: {error} at {}", error.path),
    }
}

/// Checks rows on the `spec` of a thing: live + patch = result.
fn spec(table: &str) {
    for [live, patch, expect] in rows(table, ["", "+", "="]) {
        check_under("spec", &live, &patch, &expect);
    }
}

/// Checks rows on the `metadata` of a thing: live + patch = result.
fn meta(table: &str) {
    for [live, patch, expect] in rows(table, ["", "+", "="]) {
        check_under("metadata", &live, &patch, &expect);
    }
}

/// Checks rejected rows on the `spec` of a thing: live + patch ! path: message.
fn assert_rejected(table: &str) {
    for [live, patch, expect] in rows(table, ["", "+", "!"]) {
        let error = patched("spec", &live, &patch).map(|value| panic!("{live} + {patch} = {value}")).unwrap_err();
        let got = format!("{}: {error}", error.path).replace('\n', "\\n");
        assert_eq!(got, expect, "{live} + {patch}");
    }
}

#[test]
fn fields_are_set_added_and_removed_as_in_a_merge_patch() {
    spec(
        r"
        {replicas: 1} + {replicas: 2} = {replicas: 2}
        {} + {replicas: 2} = {replicas: 2}
        {replicas: 1} + {} = {replicas: 1}
        {replicas: 1} + {replicas: null} = {}
        {} + {replicas: null} = {}
        {replicas: 1} + {replicas: many} = {replicas: many}
        {strategy: {type: a}} + {strategy: b} = {strategy: b}
        {strategy: b} + {strategy: {type: a}} = {strategy: {type: a}}
        {strategy: {type: a, rolling: {maxSurge: 1}}} + {strategy: {rolling: {maxUnavailable: 2}}}
            = {strategy: {type: a, rolling: {maxSurge: 1, maxUnavailable: 2}}}
        {strategy: {rolling: {maxSurge: 1}}} + {strategy: {rolling: {maxSurge: null}}}
            = {strategy: {rolling: {}}}
        {strategy: {type: a}} + {strategy: null} = {}
        ",
    );
    meta(
        r"
        {labels: {a: x, b: y}} + {labels: {a: null, c: z}} = {labels: {b: y, c: z}}
        {} + {labels: {a: null, c: z}} = {labels: {c: z}}
        {labels: {}} + {labels: {a: b}} = {labels: {a: b}}
        {labels: {a: b}} + {labels: null} = {}
        {labels: {a: b}} + {labels: {}} = {labels: {a: b}}
        ",
    );
    check_under("", "{kind: Thing}", "{metadata: {name: a}}", "{kind: Thing, metadata: {name: a}}");
    check_under("", "{kind: Thing}", "{kind: null}", "{}");
}

#[test]
fn added_values_contain_no_nulls() {
    spec(
        r"
        {} + {strategy: {type: null, rolling: {maxSurge: 1}}} = {strategy: {rolling: {maxSurge: 1}}}
        {} + {strategy: {rolling: {maxSurge: null}}} = {strategy: {rolling: {}}}
        {} + {tolerations: [{kind: null, name: a}]} = {tolerations: [{name: a}]}
        {strategy: 1} + {strategy: {type: null}} = {strategy: {}}
        {} + {containers: [{name: a, image: null}]} = {containers: [{name: a}]}
        ",
    );
}

#[test]
fn object_may_be_replaced_or_emptied() {
    spec(
        r"
        {strategy: {type: a}} + {strategy: {$patch: replace, rolling: {maxSurge: 1}}}
            = {strategy: {rolling: {maxSurge: 1}}}
        {strategy: {type: a}} + {strategy: {$patch: replace}} = {strategy: {}}
        {strategy: {type: a}} + {strategy: {$patch: delete}} = {strategy: {}}
        {strategy: {type: a}} + {strategy: {$patch: delete, type: b}} = {strategy: {}}
        {strategy: {rolling: {maxSurge: 1}}} + {strategy: {rolling: {$patch: delete}}}
            = {strategy: {rolling: {}}}
        {strategy: {rolling: {maxSurge: 1}}} + {strategy: {$patch: replace, type: null}}
            = {strategy: {type: null}}
        ",
    );
    meta(
        r"
        {labels: {a: b}} + {labels: {$patch: replace, c: d}} = {labels: {c: d}}
        ",
    );
    check_under("", "{kind: a, spec: {replicas: 1}}", "{$patch: replace, kind: b}", "{kind: b}");
    check_under("", "{kind: a, spec: {replicas: 1}}", "{$patch: delete}", "{}");
}

#[test]
fn directive_for_an_absent_object_adds_nothing() {
    spec(
        r"
        {} + {strategy: {$patch: delete}} = {}
        {} + {strategy: {$patch: replace, type: a}} = {}
        {} + {strategy: {type: a, rolling: {$patch: delete}}} = {strategy: {type: a}}
        {strategy: 1} + {strategy: {$patch: delete}} = {}
        {} + {containers: [{name: a, $patch: delete}, {name: b}]} = {containers: [{name: b}]}
        {} + {containers: [{name: a, $patch: delete}]} = {containers: []}
        {} + {containers: [{name: a, env: [{name: x, $patch: delete}]}]} = {containers: [{name: a, env: []}]}
        ",
    );
}

#[test]
fn objects_with_the_replace_strategy_are_replaced() {
    spec(
        r"
        {selector: {matchLabels: {a: b}}} + {selector: {matchLabels: {c: d}}}
            = {selector: {matchLabels: {c: d}}}
        {selector: {matchLabels: {a: b}}} + {selector: {}} = {selector: {}}
        {selector: {matchLabels: {a: b}}} + {selector: null} = {}
        {} + {selector: {matchLabels: {c: d}}} = {selector: {matchLabels: {c: d}}}
        ",
    );
}

#[test]
fn lists_without_a_strategy_are_replaced() {
    spec(
        r"
        {args: [a, b]} + {args: [c]} = {args: [c]}
        {args: [a, b]} + {args: []} = {args: []}
        {args: [a, b]} + {args: null} = {}
        {} + {args: [c]} = {args: [c]}
        {tolerations: [{kind: a}]} + {tolerations: [{kind: b}, {kind: c}]}
            = {tolerations: [{kind: b}, {kind: c}]}
        {tolerations: [{kind: a}]} + {tolerations: [{kind: null}]} = {tolerations: [{kind: null}]}
        {args: [a]} + {args: a} = {args: a}
        {args: a} + {args: [a]} = {args: [a]}
        ",
    );
}

#[test]
fn lists_of_objects_are_merged_by_their_key() {
    spec(
        r"
        {containers: [{name: a, image: x}]} + {containers: [{name: a, image: y}]}
            = {containers: [{name: a, image: y}]}
        {containers: [{name: a, image: x}]} + {containers: [{name: a, args: [z]}]}
            = {containers: [{name: a, image: x, args: [z]}]}
        {containers: [{name: a, image: x}]} + {containers: [{name: a, image: null}]} = {containers: [{name: a}]}
        {containers: [{name: a}]} + {containers: []} = {containers: [{name: a}]}
        {containers: []} + {containers: []} = {containers: []}
        {containers: []} + {containers: [{name: a}]} = {containers: [{name: a}]}
        {containers: [{name: a}]} + {containers: null} = {}
        {containers: [{name: a, ports: [{containerPort: 80, protocol: TCP}]}]}
            + {containers: [{name: a, ports: [{containerPort: 80, name: http}]}]}
            = {containers: [{name: a, ports: [{containerPort: 80, protocol: TCP, name: http}]}]}
        {containers: [{name: a, env: [{name: x, value: '1'}, {name: y, value: '2'}]}]}
            + {containers: [{name: a, env: [{name: y, value: '3'}]}]}
            = {containers: [{name: a, env: [{name: x, value: '1'}, {name: y, value: '3'}]}]}
        ",
    );
    meta(
        r"
        {owners: [{uid: '1', name: a}]} + {owners: [{uid: '1', name: b}]} = {owners: [{uid: '1', name: b}]}
        {owners: [{uid: '1', name: a}]} + {owners: [{uid: '2', name: a}]}
            = {owners: [{uid: '2', name: a}, {uid: '1', name: a}]}
        ",
    );
    spec(
        r"
        {containers: [{name: a, limits: {cpu: 1}}]} + {containers: [{name: a, limits: {cpu: null, memory: 2}}]}
            = {containers: [{name: a, limits: {memory: 2}}]}
        # Keys are told apart by type as well.
        {containers: [{name: a, ports: [{containerPort: 80}]}]}
            + {containers: [{name: a, ports: [{containerPort: '80'}]}]}
            = {containers: [{name: a, ports: [{containerPort: '80'}, {containerPort: 80}]}]}
        # An item that is new comes without nulls.
        {containers: [{name: a}]} + {containers: [{name: b, image: null}]}
            = {containers: [{name: b}, {name: a}]}
        # Of live items with the same key the first is merged; both count as named by the patch.
        {containers: [{name: a, ports: [{containerPort: 53, protocol: UDP}, {containerPort: 53, protocol: TCP}]}]}
            + {containers: [{name: a, ports: [{containerPort: 53, name: dns}]}]}
            = {containers: [{name: a, ports: [{containerPort: 53, name: dns, protocol: UDP}, {containerPort: 53, protocol: TCP}]}]}
        {containers: [{name: a}]} + {containers: [{name: a, image: x}, {name: a, args: [y]}]}
            = {containers: [{name: a, image: x, args: [y]}]}
        {containers: []} + {containers: [{name: a, image: x}, {name: a, args: [y]}]}
            = {containers: [{name: a, image: x, args: [y]}]}
        {named: {x: {image: a, env: [{name: e, value: '1'}]}}} + {named: {x: {env: [{name: f, value: '2'}]}}}
            = {named: {x: {image: a, env: [{name: f, value: '2'}, {name: e, value: '1'}]}}}
        ",
    );
}

/// Checks the order of `containers` by name: live, patch, result.
fn order(live: &str, patch: &str, set_order: Option<&str>, expect: &str) {
    let items = |names: &str| {
        let item = |name: &str| match name.strip_prefix('-') {
            Some(name) => format!("{{name: {name}, $patch: delete}}"),
            None => format!("{{name: {name}}}"),
        };
        format!("[{}]", names.split_whitespace().map(item).collect::<Vec<_>>().join(", "))
    };
    let directive = set_order.map(|names| format!(", $setElementOrder/containers: {}", items(names)));
    let lists = format!("{{containers: {}{}}}", items(patch), directive.unwrap_or_default());
    let containers = |names| format!("{{containers: {}}}", items(names));
    check_under("spec", &containers(live), &lists, &containers(expect));
    // Also checks lists of scalars, unless the patch deletes items.
    if !patch.contains('-') {
        let scalars = |names: &str| format!("[{}]", names.split_whitespace().collect::<Vec<_>>().join(", "));
        let directive = set_order.map(|names| format!(", $setElementOrder/finalizers: {}", scalars(names)));
        let lists = format!("{{finalizers: {}{}}}", scalars(patch), directive.unwrap_or_default());
        let finalizers = |names| format!("{{finalizers: {}}}", scalars(names));
        check_under("metadata", &finalizers(live), &lists, &finalizers(expect));
    }
}

#[test]
fn without_set_element_order_the_patch_order_wins_and_live_items_keep_their_position() {
    order("a b c", "b", None, "a b c");
    order("a b c", "c a", None, "b c a");
    order("a b c", "a c", None, "a b c");
    order("a b c", "d", None, "d a b c");
    order("a b c", "d b", None, "d a b c");
    order("a b c", "b d", None, "a b d c");
    order("a b c", "c d b", None, "a c d b");
    order("a b c", "a b c", None, "a b c");
    order("a b c", "c b a", None, "c b a");
    order("a b c d", "d b", None, "a c d b");
    order("a b c d", "b d", None, "a b c d");
    order("a", "b", None, "b a");
    order("a b", "", None, "a b");
    order("", "b a", None, "b a");
    order("a b c", "-b", None, "a c");
    order("a b c", "-b d", None, "d a c");
    order("a b c", "-b c d", None, "a c d");
    order("a b c", "-a -b -c", None, "");
    order("a b c", "-x", None, "a b c");
    order("a b c", "b -b", None, "b a c");
}

#[test]
fn set_element_order_overrides_patch_and_live_order() {
    order("a b c", "b", Some("c b a"), "c b a");
    order("a b c", "b", Some("b a"), "b a c");
    order("a b c", "b", Some("a b"), "a b c");
    order("a b c", "b", Some("b c"), "a b c");
    order("a b c", "b", Some("b"), "a b c");
    order("a b c", "d", Some("a d b c"), "a d b c");
    order("a b c", "d", Some("d"), "d a b c");
    order("a b c", "d", Some("a d"), "a d b c");
    order("a b c", "d", Some("d c"), "d a b c");
    order("a b c d e", "f", Some("e f b"), "a c d e f b");
    order("a b c d", "b e", Some("b e d"), "a b e c d");
    order("a b c", "", Some("c a"), "b c a");
    order("a b c", "", Some("x y"), "a b c");
    order("a b c", "", Some("b x a"), "b x a c".replace(" x", "").as_str());
    order("a b c", "", Some(""), "a b c");
    order("", "a b", Some("a b"), "a b");
    order("", "a", Some("b a"), "a");
    order("a b c", "-b", Some("a c"), "a c");
    order("a b c", "-b", Some("c a"), "c a");
    order("a b c d", "-b", Some("d c"), "a d c");
    order("a b c", "c -b", Some("c a"), "c a");
    order("a b c", "-a -b -c d", Some("d"), "d");
}

#[test]
fn new_item_replacing_a_deleted_one_follows_the_live_items() {
    order("a b x", "d -b", Some("a d"), "a x d");
    order("a b x y", "d e -b", Some("a d e"), "a x y d e");
    order("a b c x", "d e -b -c", Some("a d e"), "a x d e");
    order("a b x", "d e -b", Some("a d e"), "a x d e");
    order("a x", "d", Some("a d"), "a d x");
}

#[test]
fn set_element_order_without_a_list_only_sorts() {
    spec(
        r"
        {containers: [{name: a, image: x}, {name: b}]} + {$setElementOrder/containers: [{name: b}, {name: a}]}
            = {containers: [{name: b}, {name: a, image: x}]}
        {} + {$setElementOrder/containers: [{name: b}, {name: a}]} = {}
        ",
    );
    meta(
        r"
        {finalizers: [a, b, c]} + {$setElementOrder/finalizers: [c, b]} = {finalizers: [a, c, b]}
        {} + {$setElementOrder/finalizers: [c, b]} = {}
        ",
    );
    spec(
        r"
        {args: [a, b]} + {$setElementOrder/args: [b, a]} = {args: [b, a]}
        {args: [a, b]} + {$setElementOrder/args: [b, c], args: [b, c]} = {args: [b, c]}
        {numbers: [1, 2]} + {$setElementOrder/numbers: [2, 1]} = {numbers: [2, 1]}
        {} + {$setElementOrder/containers: [{name: b}], containers: [{name: b}, {name: c, $patch: delete}]}
            = {containers: [{name: b}]}
        ",
    );
}

#[test]
fn set_element_order_directives_nest() {
    spec(
        r"
        {containers: [{name: a, env: [{name: x}, {name: y}]}, {name: b}]}
            + {$setElementOrder/containers: [{name: b}, {name: a}], containers: [{name: a, $setElementOrder/env: [{name: y}, {name: z}], env: [{name: z}, {name: x, $patch: delete}]}]}
            = {containers: [{name: b}, {name: a, env: [{name: y}, {name: z}]}]}
        {containers: [{name: a, env: [{name: x}], ports: [{containerPort: 1}, {containerPort: 2}]}]}
            + {containers: [{name: a, $setElementOrder/ports: [{containerPort: 2}, {containerPort: 1}]}]}
            = {containers: [{name: a, env: [{name: x}], ports: [{containerPort: 2}, {containerPort: 1}]}]}
        ",
    );
}

#[test]
fn items_are_deleted_by_their_key() {
    spec(
        r"
        {containers: [{name: a}, {name: b}]} + {containers: [{name: a, $patch: delete}]}
            = {containers: [{name: b}]}
        {containers: [{name: a}]} + {containers: [{name: a, $patch: delete, image: x}]} = {containers: []}
        {containers: [{name: a, ports: [{containerPort: 53, protocol: UDP}, {containerPort: 53, protocol: TCP}]}]}
            + {containers: [{name: a, ports: [{containerPort: 53, $patch: delete}]}]}
            = {containers: [{name: a, ports: []}]}
        {containers: [{name: a, image: x}]} + {containers: [{name: a, $patch: delete}, {name: a, args: [y]}]}
            = {containers: [{name: a, args: [y]}]}
        ",
    );
    meta(
        r"
        {owners: [{uid: '1'}, {uid: '2'}]} + {owners: [{$patch: delete, uid: '2'}]} = {owners: [{uid: '1'}]}
        ",
    );
    spec(
        r"
        {containers: []} + {containers: [{name: a, $patch: delete}]} = {containers: []}
        ",
    );
}

#[test]
fn merged_list_may_be_replaced() {
    spec(
        r"
        {containers: [{name: a}, {name: b}]} + {containers: [{$patch: replace}, {name: c}]}
            = {containers: [{name: c}]}
        {containers: [{name: a}, {name: b}]} + {containers: [{name: c}, {name: a, image: x}, {$patch: replace}]}
            = {containers: [{name: c}, {name: a, image: x}]}
        {containers: [{name: a}]} + {containers: [{$patch: replace}]} = {containers: []}
        {containers: [{name: a}]} + {containers: [{$patch: replace}, {name: a, $patch: delete}, {name: b}]}
            = {containers: [{name: b}]}
        {containers: [{name: a}, {name: b}]}
            + {$setElementOrder/containers: [{name: c}, {name: b}], containers: [{$patch: replace}, {name: c}, {name: b}]}
            = {containers: [{name: c}, {name: b}]}
        {} + {containers: [{$patch: replace}, {name: a}]} = {containers: [{name: a}]}
        ",
    );
}

#[test]
fn sets_of_scalars_are_merged() {
    meta(
        r"
        {finalizers: [a, b]} + {finalizers: [c]} = {finalizers: [c, a, b]}
        {finalizers: [a, b]} + {finalizers: [b, c]} = {finalizers: [a, b, c]}
        {finalizers: [a, a, b]} + {finalizers: [c, c]} = {finalizers: [c, a, b]}
        {finalizers: [a]} + {finalizers: []} = {finalizers: [a]}
        {finalizers: []} + {finalizers: [a]} = {finalizers: [a]}
        {finalizers: [a]} + {finalizers: null} = {}
        {} + {finalizers: [b, a]} = {finalizers: [b, a]}
        ",
    );
    spec(
        r"
        {numbers: [1, 2]} + {numbers: [3, 1]} = {numbers: [3, 1, 2]}
        ",
    );
}

#[test]
fn scalars_are_deleted_from_sets_and_lists() {
    meta(
        r"
        {finalizers: [a, b, c]} + {$deleteFromPrimitiveList/finalizers: [b]} = {finalizers: [a, c]}
        {finalizers: [a, b]} + {$deleteFromPrimitiveList/finalizers: [a, b, x]} = {finalizers: []}
        {finalizers: [a, b, a]} + {$deleteFromPrimitiveList/finalizers: [a]} = {finalizers: [b]}
        {} + {$deleteFromPrimitiveList/finalizers: [a]} = {}
        {finalizers: a} + {$deleteFromPrimitiveList/finalizers: [a]} = {finalizers: a}
        {finalizers: []} + {$deleteFromPrimitiveList/finalizers: []} = {finalizers: []}
        {finalizers: [a, b]} + {$deleteFromPrimitiveList/finalizers: [a], finalizers: [c]}
            = {finalizers: [c, b]}
        {finalizers: [a, b, c]}
            + {$deleteFromPrimitiveList/finalizers: [a], $setElementOrder/finalizers: [c, d], finalizers: [d]}
            = {finalizers: [b, c, d]}
        {finalizers: [a, b, c]}
            + {$deleteFromPrimitiveList/finalizers: [b], $setElementOrder/finalizers: [c, a]}
            = {finalizers: [c, a]}
        ",
    );
    spec(
        r"
        {args: [a, b]} + {$deleteFromPrimitiveList/args: [a]} = {args: [b]}
        {numbers: [1, 2]} + {$deleteFromPrimitiveList/numbers: [1]} = {numbers: [2]}
        ",
    );
}

#[test]
fn only_retained_keys_stay() {
    spec(
        r"
        {strategy: {type: a, rolling: {maxSurge: 1}}} + {strategy: {$retainKeys: [type], type: b}}
            = {strategy: {type: b}}
        {strategy: {type: a, rolling: {maxSurge: 1}}} + {strategy: {$retainKeys: [type]}}
            = {strategy: {type: a}}
        {strategy: {type: a, rolling: {maxSurge: 1}}} + {strategy: {$retainKeys: []}} = {strategy: {}}
        {strategy: {type: a}} + {strategy: {$retainKeys: [type, rolling], rolling: {maxSurge: 1}}}
            = {strategy: {type: a, rolling: {maxSurge: 1}}}
        {strategy: {type: a, rolling: {maxSurge: 1}}}
            + {strategy: {$retainKeys: [type], rolling: null, type: b}} = {strategy: {type: b}}
        {volumes: [{name: v, emptyDir: {}}]}
            + {volumes: [{name: v, $retainKeys: [name, hostPath], hostPath: {path: /}}]}
            = {volumes: [{name: v, hostPath: {path: /}}]}
        {volumes: [{name: v, emptyDir: {}}, {name: w, emptyDir: {}}]}
            + {volumes: [{name: w, $retainKeys: [name, hostPath], hostPath: {path: /}}], $setElementOrder/volumes: [{name: w}, {name: v}]}
            = {volumes: [{name: w, hostPath: {path: /}}, {name: v, emptyDir: {}}]}
        {replicas: 1, args: [a]} + {$retainKeys: [args]} = {args: [a]}
        ",
    );
    meta(
        r"
        {labels: {a: x, b: y}} + {labels: {$retainKeys: [b, c], c: z}} = {labels: {b: y, c: z}}
        {finalizers: [a, b], name: n} + {$retainKeys: [finalizers], $deleteFromPrimitiveList/finalizers: [a]}
            = {finalizers: [b]}
        ",
    );
}

#[test]
fn fields_unknown_to_the_schema_are_merged_as_json() {
    spec(
        r"
        {raw: {a: {b: 1}, l: [1, 2]}} + {raw: {a: {c: 2}, l: [3]}} = {raw: {a: {b: 1, c: 2}, l: [3]}}
        {raw: {a: 1}} + {raw: {a: null}} = {raw: {}}
        {nonsense: {a: [1]}} + {nonsense: {a: [2], b: null}} = {nonsense: {a: [2]}}
        {} + {nonsense: {a: [{b: null}]}} = {nonsense: {a: [{}]}}
        {raw: {containers: [{name: a}]}} + {raw: {containers: [{name: b}]}} = {raw: {containers: [{name: b}]}}
        ",
    );
}

#[test]
fn items_without_their_merge_key_are_rejected() {
    assert_rejected(
        r"
        {containers: [{name: a}]} + {containers: [{image: x}]}
            ! spec.containers: map: map[image:x] does not contain declared merge key: name
        {containers: [{image: x}]} + {containers: [{name: a}]}
            ! spec.containers: map: map[image:x] does not contain declared merge key: name
        {containers: [{name: a}]} + {containers: [{$patch: delete, image: x}]}
            ! spec.containers: map: map[$patch:delete image:x] does not contain declared merge key: name
        {containers: [{name: a}]} + {$setElementOrder/containers: [{image: x}]}
            ! spec.containers: map: map[image:x] does not contain declared merge key: name
        {containers: [{name: a, env: [{name: x}]}]} + {containers: [{name: a, env: [{value: v}]}]}
            ! spec.containers[0].env: map: map[value:v] does not contain declared merge key: name
        {keyless: [{name: a}]} + {keyless: [{name: b}]}
            ! spec.keyless: cannot merge lists without merge key for struct
        {containers: [{name: a}]} + {containers: [{name: [x]}]}
            ! spec.containers: cannot identify items by a []interface {}
        {containers: [{name: {}}]} + {containers: [{name: x}]}
            ! spec.containers: cannot identify items by a map[string]interface {}
        ",
    );
}

#[test]
fn unknown_directives_are_rejected() {
    assert_rejected(
        r"
        {strategy: {type: a}} + {strategy: {$patch: jump}}
            ! spec.strategy: unknown patch type: jump in map: map[$patch:jump]
        {strategy: {type: a}} + {strategy: {$patch: merge, type: b}}
            ! spec.strategy: unknown patch type: merge in map: map[$patch:merge type:b]
        {strategy: {type: a}} + {strategy: {$patch: 1}}
            ! spec.strategy: unknown patch type: %!s(int64=1) in map: map[$patch:1]
        {strategy: {type: a}} + {strategy: {$patch: null}}
            ! spec.strategy: unknown patch type: %!s(<nil>) in map: map[$patch:<nil>]
        {containers: [{name: a}]} + {containers: [{name: a, $patch: jump}]}
            ! spec.containers: unknown patch type: jump in map: map[$patch:jump name:a]
        {containers: [{name: a}]} + {containers: [{name: a, $patch: merge}]}
            ! spec.containers: merging lists cannot yet be specified in the patch
        ",
    );
}

#[test]
fn malformed_directives_are_rejected() {
    assert_rejected(
        r#"
        {strategy: {type: a}} + {strategy: {$retainKeys: type}}
            ! spec.strategy: invalid patch format of retainKeys
        {strategy: {type: a}} + {strategy: {$retainKeys: [1]}}
            ! spec.strategy: invalid patch format of retainKeys
        {strategy: {type: a}} + {strategy: {$retainKeys: [rolling], type: b}}
            ! spec.strategy: invalid patch format of retainKeys
        {volumes: [{name: v}]} + {volumes: [{name: v, $retainKeys: [hostPath], hostPath: {}}]}
            ! spec.volumes[0]: invalid patch format of retainKeys
        {args: [a]} + {$deleteFromPrimitiveList: [a]} ! spec: invalid patch format of primitive list
        {args: [a]} + {$deleteFromPrimitiveListargs: [a]} ! spec: invalid patch format of primitive list
        {args: [a]} + {$deleteFromPrimitiveList/args: a} ! spec: invalid patch format of primitive list
        {containers: [{name: a}]} + {$deleteFromPrimitiveList/containers: [{name: a}]}
            ! spec.containers: invalid patch format of primitive list
        {containers: [{name: a}]} + {$setElementOrder: [{name: a}]}
            ! spec: invalid patch format of setElementOrder list
        {containers: [{name: a}]} + {$setElementOrder/containers: a}
            ! spec.containers: expected a []interface {}, but received a string
        {containers: [{name: a}]} + {$setElementOrder/containers: null}
            ! spec.containers: expected a []interface {}, but received a %!s(<nil>)
        {containers: 1} + {$setElementOrder/containers: [{name: a}]}
            ! spec.containers: expected a []interface {}, but received a int64
        {containers: [{name: a}]} + {$setElementOrder/containers: [{name: a}], containers: {}}
            ! spec.containers: expected a []interface {}, but received a map[string]interface {}
        {containers: [{name: a}]} + {$setElementOrder/containers: [a]}
            ! spec.containers: expected a map[string]interface {}, but received a string
        {containers: []} + {$setElementOrder/containers: [{name: a}]}
            ! spec.containers: no elements in any of the given slices
        {} + {$setElementOrder/nonsense: [a]}
            ! spec: unable to find api field in struct Spec for the json field "nonsense"
        "#,
    );
}

#[test]
fn patch_that_contradicts_its_set_element_order_is_rejected() {
    assert_rejected(
        r"
        {containers: [{name: a}]} + {$setElementOrder/containers: [{name: a}], containers: [{name: b}]}
            ! spec.containers: the order in patch list:\n[map[name:b]]\n doesn't match $setElementOrder list:\n[map[name:a]]\n
        {containers: [{name: a}]}
            + {$setElementOrder/containers: [{name: a}, {name: b}], containers: [{name: b}, {name: a}]}
            ! spec.containers: the order in patch list:\n[map[name:b] map[name:a]]\n doesn't match $setElementOrder list:\n[map[name:a] map[name:b]]\n
        {numbers: [1]} + {$setElementOrder/numbers: [1, 2], numbers: [2, 1]}
            ! spec.numbers: the order in patch list:\n[2 1]\n doesn't match $setElementOrder list:\n[1 2]\n
        ",
    );
}

#[test]
fn unmergeable_lists_are_rejected() {
    assert_rejected(
        r"
        {matrix: [[1]]} + {matrix: [[2]]} ! spec.matrix: lists of lists are not supported
        {matrix: []} + {matrix: [[2]]} ! spec.matrix: lists of lists are not supported
        {numbers: [1]} + {numbers: [a]} ! spec.numbers: list element types are not identical: [[1] [a]]
        {numbers: [1]} + {numbers: [1.5]} ! spec.numbers: list element types are not identical: [[1] [1.5]]
        {numbers: [1]} + {numbers: [null]} ! spec.numbers: list element types are not identical: [[1] [<nil>]]
        {numbers: [1]} + {$deleteFromPrimitiveList/numbers: [a]}
            ! spec.numbers: list element types are not identical: [[1] [a]]
        {containers: [{name: a}]} + {containers: [b]}
            ! spec.containers: list element types are not identical: [[map[name:a]] [b]]
        {containers: [a]} + {containers: [b]}
            ! spec.containers: expected a map[string]interface {}, but received a string
        ",
    );
}

/// With a quadratic algorithm every row here would take minutes.
#[test]
fn long_lists_are_not_merged_in_quadratic_time() {
    const COUNT: i64 = 100_000;
    let names =
        |range: std::ops::Range<i64>| range.map(|at| crate::value!({"name": (format!("c{at}"))})).collect::<Vec<_>>();
    let numbers = |range: std::ops::Range<i64>| range.map(Value::Int).collect::<Vec<_>>();
    let reversed = |mut items: Vec<Value>| {
        items.reverse();
        items
    };
    let live = crate::value!({"spec": {"containers": (names(0..COUNT)), "numbers": (numbers(0..COUNT))}});
    let modified = crate::value!({"spec": {
        "containers": (reversed(names(COUNT / 2..3 * COUNT / 2))),
        "numbers": (reversed(numbers(COUNT / 2..3 * COUNT / 2))),
    }});
    let (Value::Object(live), Value::Object(modified)) = (live, modified) else { unreachable!() };
    let patch = create_two_way(&live, &modified, thing()).unwrap();
    assert_eq!(apply(live.clone(), patch, thing()).unwrap(), modified);
    let patch = create_three_way(&live, &modified, &live, thing(), OnConflict::Fail).unwrap();
    assert_eq!(apply(live, patch, thing()).unwrap(), modified);
}
