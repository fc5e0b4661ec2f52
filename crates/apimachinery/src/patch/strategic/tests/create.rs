//! Tests of the creation of two-way and three-way strategic merge patches.

use super::*;
use crate::patch::notation::read;

/// Checks rows on two-way patches of a `spec`, or of `metadata` if it has finalizers: from -> to : patch.
fn two_way(table: &str) {
    for [from, to, expect] in rows(table, ["", "->", ":"]) {
        let under = if from.contains("finalizers") { "metadata" } else { "spec" };
        let (from, to) = (wrap(under, &from), wrap(under, &to));
        let patch = create_two_way(&from, &to, thing()).unwrap();
        let expect = if expect == "{}" { Object::new() } else { wrap(under, &expect) };
        assert_eq!(Value::Object(patch.clone()), Value::Object(expect));
        assert_eq!(Value::Object(apply(from, patch, thing()).unwrap()), Value::Object(to));
    }
}

#[test]
fn two_way_patch_contains_the_differences() {
    two_way(
        r"
        {replicas: 1} -> {replicas: 1} : {}
        {replicas: 1} -> {replicas: 2} : {replicas: 2}
        {replicas: 1} -> {} : {replicas: null}
        {} -> {replicas: 1, args: [a]} : {replicas: 1, args: [a]}
        {args: [a, b]} -> {args: [b, a]} : {args: [b, a]}
        {selector: {matchLabels: {a: b}}} -> {selector: {matchLabels: {c: d}}}
            : {selector: {matchLabels: {c: d}}}
        {strategy: {type: a, rolling: {maxSurge: 1}}} -> {strategy: {type: b}}
            : {strategy: {$retainKeys: [type], type: b, rolling: null}}
        {strategy: {type: a}} -> {strategy: {type: a, rolling: {maxSurge: 1}}}
            : {strategy: {$retainKeys: [rolling, type], rolling: {maxSurge: 1}}}
        {raw: {a: {b: 1, c: 2}}} -> {raw: {a: {b: 1}}} : {raw: {a: {c: null}}}
        ",
    );
}

#[test]
fn two_way_patch_of_lists_contains_their_order() {
    two_way(
        r"
        {containers: [{name: a}]} -> {containers: [{name: a}]} : {}
        {containers: []} -> {containers: [{name: b}, {name: a}]} : {containers: [{name: b}, {name: a}]}
        {containers: [{name: a, image: x}, {name: b}]} -> {containers: [{name: a, image: y}, {name: b}]}
            : {$setElementOrder/containers: [{name: a}, {name: b}], containers: [{name: a, image: y}]}
        {containers: [{name: a}, {name: b}]} -> {containers: [{name: b}, {name: a}]}
            : {$setElementOrder/containers: [{name: b}, {name: a}]}
        {containers: [{name: a}, {name: b}]} -> {containers: [{name: b}, {name: c}]}
            : {$setElementOrder/containers: [{name: b}, {name: c}], containers: [{name: c}, {name: a, $patch: delete}]}
        {containers: [{name: a}]} -> {containers: []} : {containers: [{name: a, $patch: delete}]}
        {containers: [{name: c}, {name: a}]}
            -> {containers: [{name: c, image: x}, {name: b}, {name: a, image: y}]}
            : {$setElementOrder/containers: [{name: c}, {name: b}, {name: a}], containers: [{name: c, image: x}, {name: b}, {name: a, image: y}]}
        {volumes: [{name: v, emptyDir: {}}]} -> {volumes: [{name: v, hostPath: {path: /}}]}
            : {$setElementOrder/volumes: [{name: v}], volumes: [{name: v, $retainKeys: [hostPath, name], hostPath: {path: /}, emptyDir: null}]}
        {finalizers: [a, b]} -> {finalizers: [b, c]}
            : {$setElementOrder/finalizers: [b, c], $deleteFromPrimitiveList/finalizers: [a], finalizers: [c]}
        {finalizers: [b, a]} -> {finalizers: [b, a]} : {}
        {finalizers: [b, a]} -> {finalizers: [a, b]} : {$setElementOrder/finalizers: [a, b]}
        {finalizers: [a]} -> {finalizers: []} : {$deleteFromPrimitiveList/finalizers: [a]}
        ",
    );
}

fn three_way(original: &str, modified: &str, current: &str, on_conflict: OnConflict) -> Result<Object, Error> {
    create_three_way(&object(original), &object(modified), &object(current), thing(), on_conflict)
}

/// Checks rows on three-way patches: original -> modified @ current : patch = result on current.
fn three(table: &str) {
    for [original, modified, current, patch, result] in rows(table, ["", "->", "@", ":", "="]) {
        let made = three_way(&original, &modified, &current, OnConflict::Overwrite).unwrap();
        assert_eq!(Value::Object(made.clone()), read(&patch), "{original} -> {modified} @ {current}");
        assert_eq!(Value::Object(apply(object(&current), made, thing()).unwrap()), read(&result));
    }
}

#[test]
fn three_way_patch_sets_modified_fields_and_removes_dropped_ones() {
    three(
        r"
        {spec: {replicas: 1}} -> {spec: {replicas: 2}} @ {spec: {replicas: 3, args: [a]}}
            : {spec: {replicas: 2}} = {spec: {replicas: 2, args: [a]}}
        {spec: {replicas: 1}} -> {spec: {}} @ {spec: {replicas: 3, args: [a]}} : {spec: {replicas: null}}
            = {spec: {args: [a]}}
        {spec: {replicas: 1}} -> {spec: {}} @ {spec: {}} : {spec: {replicas: null}} = {spec: {}}
        {} -> {spec: {replicas: 1}} @ {spec: {replicas: 1}} : {} = {spec: {replicas: 1}}
        {metadata: {labels: {a: x, b: x}}} -> {metadata: {labels: {a: y}}}
            @ {metadata: {labels: {a: x, b: x, c: x}}} : {metadata: {labels: {a: y, b: null}}}
            = {metadata: {labels: {a: y, c: x}}}
        ",
    );
}

#[test]
fn three_way_patch_keeps_items_added_by_others() {
    three(
        r"
        {spec: {containers: [{name: a, image: x}, {name: b}]}} -> {spec: {containers: [{name: a, image: y}]}}
            @ {spec: {containers: [{name: a, image: x}, {name: b}, {name: sidecar}]}}
            : {spec: {$setElementOrder/containers: [{name: a}], containers: [{name: a, image: y}, {name: b, $patch: delete}]}}
            = {spec: {containers: [{name: a, image: y}, {name: sidecar}]}}
        {metadata: {finalizers: [a, b]}} -> {metadata: {finalizers: [a, c]}}
            @ {metadata: {finalizers: [a, b, other]}}
            : {metadata: {$setElementOrder/finalizers: [a, c], $deleteFromPrimitiveList/finalizers: [b], finalizers: [c]}}
            = {metadata: {finalizers: [a, c, other]}}
        {spec: {containers: [{name: a}, {name: b}]}} -> {spec: {containers: [{name: b}]}}
            @ {spec: {containers: [{name: a}, {name: b}]}}
            : {spec: {$setElementOrder/containers: [{name: b}], containers: [{name: a, $patch: delete}]}}
            = {spec: {containers: [{name: b}]}}
        {spec: {volumes: [{name: v, emptyDir: {}}]}} -> {spec: {volumes: [{name: v, hostPath: {path: /}}]}}
            @ {spec: {volumes: [{name: v, emptyDir: {}}]}}
            : {spec: {$setElementOrder/volumes: [{name: v}], volumes: [{name: v, $retainKeys: [hostPath, name], hostPath: {path: /}, emptyDir: null}]}}
            = {spec: {volumes: [{name: v, hostPath: {path: /}}]}}
        {spec: {containers: [{name: a, env: [{name: x}, {name: y}]}]}}
            -> {spec: {containers: [{name: a, env: [{name: y, value: '1'}]}]}}
            @ {spec: {containers: [{name: a, env: [{name: x}, {name: y}, {name: z}]}]}}
            : {spec: {$setElementOrder/containers: [{name: a}], containers: [{name: a, $setElementOrder/env: [{name: y}], env: [{name: y, value: '1'}, {name: x, $patch: delete}]}]}}
            = {spec: {containers: [{name: a, env: [{name: y, value: '1'}, {name: z}]}]}}
        ",
    );
}

#[test]
fn three_way_patch_can_fail_on_conflicts() {
    let check = |original: &str, modified: &str, current: &str, conflict: bool| match three_way(
        original,
        modified,
        current,
        OnConflict::Fail,
    ) {
        Ok(patch) => assert!(!conflict, "no conflict seen in {}", Value::Object(patch)),
        Err(Error { fault: Fault::Conflict { .. }, .. }) => assert!(conflict, "{original} {modified} {current}"),
        Err(error) => panic!("{error}"),
    };
    check("{spec: {replicas: 1}}", "{spec: {replicas: 2}}", "{spec: {replicas: 1}}", false);
    check("{spec: {replicas: 1}}", "{spec: {replicas: 2}}", "{spec: {replicas: 3}}", true);
    check("{spec: {replicas: 1}}", "{spec: {replicas: 2}}", "{spec: {replicas: 2}}", false);
    check("{spec: {replicas: 1}}", "{spec: {replicas: 1}}", "{spec: {replicas: 3}}", true);
    check("{spec: {replicas: 1}}", "{spec: {replicas: 2}}", "{spec: {replicas: 1, args: [a]}}", false);
    check("{spec: {replicas: 1}}", "{spec: {}}", "{spec: {replicas: 3}}", true);
    check("{spec: {args: [a]}}", "{spec: {args: [b]}}", "{spec: {args: [c]}}", true);
    check("{spec: {args: [a]}}", "{spec: {args: [b, c]}}", "{spec: {args: [c, b]}}", false);
    check(
        "{spec: {tolerations: [{name: a}]}}",
        "{spec: {tolerations: [{name: b}]}}",
        "{spec: {tolerations: [{name: c}]}}",
        true,
    );
    check(
        "{spec: {containers: [{name: a, image: x}]}}",
        "{spec: {containers: [{name: a, image: y}]}}",
        "{spec: {containers: [{name: a, image: z}]}}",
        true,
    );
    check(
        "{spec: {containers: [{name: a, image: x}]}}",
        "{spec: {containers: [{name: a, image: y}]}}",
        "{spec: {containers: [{name: a, image: x, args: [z]}]}}",
        false,
    );
    check(
        "{spec: {containers: [{name: a, image: x}]}}",
        "{spec: {containers: [{name: a, image: y}]}}",
        "{spec: {containers: [{name: a, image: x}, {name: b}]}}",
        false,
    );
    check(
        "{spec: {containers: [{name: a}, {name: b}]}}",
        "{spec: {containers: [{name: a}]}}",
        "{spec: {containers: [{name: a}, {name: b, image: x}]}}",
        true,
    );
    check("{metadata: {finalizers: [a]}}", "{metadata: {finalizers: [b]}}", "{metadata: {finalizers: [c]}}", false);
    check(
        "{spec: {selector: {matchLabels: {a: b}}}}",
        "{spec: {selector: {matchLabels: {a: c}}}}",
        "{spec: {selector: {matchLabels: {a: d}}}}",
        true,
    );
}

#[test]
fn conflict_message_contains_both_sides() {
    let error = three_way("{spec: {replicas: 1}}", "{spec: {replicas: 2}}", "{spec: {replicas: 3}}", OnConflict::Fail);
    assert_eq!(
        error.unwrap_err().to_string(),
        "patch:\n{\"spec\":{\"replicas\":2}}\nconflicts with changes made from original to current:\n\
         {\"spec\":{\"replicas\":3}}\n",
    );
}
