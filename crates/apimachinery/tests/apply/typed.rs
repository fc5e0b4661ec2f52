//! Tests of typed operations on values: validate, compare, merge, remove.

use apimachinery::apply::{Duplicates, compare, extract, field_set, merge, reconcile, remove, validate};
use apimachinery::{Value, value};

use crate::notation::Notation;
use crate::scenario::json;

/// Returns a type with one field of every kind.
fn everything() -> Notation {
    Notation::new(&value!({
        "text": "string", "count": "int", "share": "number", "on": "bool", "port": "int-or-string", "size": "quantity",
        "any": "any", "raw": "raw",
        "args": {"$items": "string"},
        "tags": {"$items": "string", "$set": true},
        "labels": {"$values": "string"},
        "limits": {"$values": "quantity", "$atomic": true},
        "ref": {"$of": {"name": "string", "kind": "string"}, "$atomic": true},
        "nested": {"a": "string", "b": {"c": "string", "d": {"$values": "string"}}},
        "open": {"$of": {"known": {"x": "int"}}, "$open": true},
        "free": {},
        "items": {"$keys": ["name"], "$items": {
            "name": "string", "value": "string", "env": {"$keys": ["key"], "$items": {"key": "string", "value": "string"}},
            "args": {"$items": "string"}
        }},
        "ports": {"$keys": ["port", "protocol"], "$items": {
            "port": "int", "protocol": {"$of": "string", "$default": "TCP"}, "name": "string"
        }}
    }))
}

#[test]
fn type_violations_match_upstream() {
    #[track_caller]
    fn check(value: &str, expect: &str) {
        let types = everything();
        let found = validate(types.schema(), &json(value), Duplicates::Rejected);
        assert_eq!(found.map_or_else(|error| error.to_string(), |()| String::new()), expect);
    }
    check(
        r#"{"text": "a", "count": 1, "share": 1.5, "on": true, "port": 80, "size": "1Gi", "any": [{}], "raw": {"a": []}}"#,
        "",
    );
    check(r#"{"text": null, "count": null, "items": null, "labels": null, "nested": null}"#, "");
    check(r#"{"bogus": 1}"#, ".bogus: field not declared in schema");
    check(r#"{"nested": {"b": {"bogus": 1}}}"#, ".nested.b.bogus: field not declared in schema");
    check(r#"{"text": 1}"#, ".text: expected string, got &value.valueUnstructured{Value:1}");
    check(
        r#"{"text": ["a", {"b": null}]}"#,
        r#".text: expected string, got &value.valueUnstructured{Value:[]interface {}{"a", map[string]interface {}{"b":interface {}(nil)}}}"#,
    );
    check(r#"{"count": "1"}"#, ".count: expected numeric (int or float), got string");
    check(r#"{"count": {}}"#, ".count: expected numeric (int or float), got map[string]interface {}");
    check(r#"{"on": "yes"}"#, ".on: expected boolean, got &{yes}");
    check(r#"{"port": []}"#, ".port: expected any scalar, got &{[]}");
    check(r#"{"args": {"a": 1}}"#, ".args: expected list, got &{map[a:1]}");
    check(r#"{"labels": "x"}"#, ".labels: expected map, got &{x}");
    check(r#"{"labels": {"a": 1}}"#, ".labels.a: expected string, got &value.valueUnstructured{Value:1}");
    check(r#"{"args": ["a", 2]}"#, ".args[1]: expected string, got &value.valueUnstructured{Value:2}");
    check(
        r#"{"ports": [{"port": 80}, {"port": 80, "protocol": "TCP"}]}"#,
        r#".ports: duplicate entries for key [port=80,protocol="TCP"]"#,
    );
    check(r#"{"tags": ["a", "b", "a"]}"#, r#".tags: duplicate entries for key [="a"]"#);
    check(
        r#"{"items": [{"value": "x"}]}"#,
        r#".items: element 0: associative list with keys has an element that omits key field "name" (and doesn't have default value)"#,
    );
    check(
        r#"{"items": [{"name": "a"}, null]}"#,
        ".items: element 1: associative list with keys may not have a null element",
    );
    check(r#"{"items": [1]}"#, ".items: element 0: associative list with keys may not have non-map elements");
    check(r#"{"tags": [{}]}"#, ".tags: element 0: associative list without keys has an element that's a map type");
    check(r#"{"tags": [[]]}"#, ".tags: element 0: not supported: associative list with lists as elements");
    check(
        r#"{"tags": [null]}"#,
        ".tags: element 0: associative list without keys has an element that's an explicit null",
    );
    check(
        r#"{"items": [{"name": "a", "env": [{"key": "k", "value": 1}]}]}"#,
        r#".items[name="a"].env[key="k"].value: expected string, got &value.valueUnstructured{Value:1}"#,
    );
    check(
        r#"{"count": "x", "text": true}"#,
        "errors:\n  .count: expected numeric (int or float), got string\n  .text: expected string, got &value.valueUnstructured{Value:true}",
    );
    check(r#"{"open": {"known": {"x": 1, "unknown": 2}, "other": []}, "free": {"a": {"b": 1}}}"#, "");
}

#[test]
fn stored_object_may_have_items_with_the_same_key() {
    let types = everything();
    let value = json(r#"{"tags": ["a", "a"], "items": [{"name": "x"}, {"name": "x"}]}"#);
    assert!(validate(types.schema(), &value, Duplicates::Allowed).is_ok());
    let found = validate(types.schema(), &value, Duplicates::Rejected).unwrap_err();
    assert_eq!(found.list().len(), 2);
}

#[test]
fn nesting_is_bounded() {
    let types = everything();
    let mut deep = value!({});
    for _ in 0..400 {
        deep = value!({"x": deep});
    }
    let found = validate(types.schema(), &value!({"any": deep}), Duplicates::Allowed).unwrap_err();
    assert!(found.to_string().ends_with("nested deeper than 200 levels"));
}

#[test]
fn field_set_contains_leaves_items_and_map_entries() {
    #[track_caller]
    fn check(value: &str, expect: &str) {
        assert_eq!(field_set(everything().schema(), &json(value)).to_json(), expect);
    }
    check(
        r#"{"text": "a", "count": 0, "args": ["x"], "limits": {"cpu": 1}, "ref": {"name": "n"}}"#,
        r#"{"f:args":{},"f:count":{},"f:limits":{},"f:ref":{},"f:text":{}}"#,
    );
    check(r#"{"labels": {"a": "1", "b": "2"}}"#, r#"{"f:labels":{"f:a":{},"f:b":{}}}"#);
    check(r#"{"nested": {"a": "x", "b": {"d": {"k": "v"}}}}"#, r#"{"f:nested":{"f:a":{},"f:b":{"f:d":{"f:k":{}}}}}"#);
    check(
        r#"{"nested": {}, "labels": {}, "items": [], "tags": [], "args": [], "text": null, "ports": null}"#,
        r#"{"f:args":{},"f:labels":{},"f:nested":{},"f:ports":{},"f:text":{}}"#,
    );
    check(r#"{"tags": ["b", "a"]}"#, r#"{"f:tags":{"v:\"a\"":{},"v:\"b\"":{}}}"#);
    check(
        r#"{"items": [{"name": "b", "value": "x"}, {"name": "a"}]}"#,
        r#"{"f:items":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}},"k:{\"name\":\"b\"}":{".":{},"f:name":{},"f:value":{}}}}"#,
    );
    check(
        r#"{"ports": [{"port": 443}, {"port": 80, "protocol": "UDP"}]}"#,
        r#"{"f:ports":{"k:{\"port\":80,\"protocol\":\"UDP\"}":{".":{},"f:port":{},"f:protocol":{}},"k:{\"port\":443,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}}}"#,
    );
    check(
        r#"{"items": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}, {"name": "b"}]}"#,
        r#"{"f:items":{"k:{\"name\":\"a\"}":{},"k:{\"name\":\"b\"}":{".":{},"f:name":{}}}}"#,
    );
    check(
        r#"{"any": {"a": {"b": [1], "c": 1}}, "raw": {"a": {"b": 1}}}"#,
        r#"{"f:any":{"f:a":{".":{},"f:b":{},"f:c":{}}},"f:raw":{}}"#,
    );
    check(
        r#"{"open": {"known": {"x": 1}, "other": {"y": 2}}}"#,
        r#"{"f:open":{"f:known":{"f:x":{}},"f:other":{".":{},"f:y":{}}}}"#,
    );
}

#[test]
fn comparison_separates_added_modified_and_removed_fields() {
    #[track_caller]
    fn check(old: &str, new: &str, removed: &str, modified: &str, added: &str) {
        let types = everything();
        let found = compare(types.schema(), &json(old), &json(new));
        let one_line = |set: &apimachinery::apply::FieldSet| set.to_string().replace('\n', " ");
        let have = [one_line(&found.removed), one_line(&found.modified), one_line(&found.added)];
        assert_eq!(have, [removed, modified, added], "{old} -> {new}");
    }
    check(
        r#"{"text": "a", "count": 1, "on": true}"#,
        r#"{"text": "b", "count": 1, "size": "1"}"#,
        ".on",
        ".text",
        ".size",
    );
    check(r#"{"share": 1}"#, r#"{"share": 1.0}"#, "", "", "");
    check(r#"{}"#, r#"{"nested": {"b": {"c": "x"}}}"#, "", "", ".nested .nested.b .nested.b.c");
    check(r#"{"nested": {}}"#, r#"{"nested": {"b": {"c": "x"}}}"#, "", "", ".nested.b .nested.b.c");
    check(r#"{"labels": {"a": "1"}}"#, r#"{"labels": {"b": "1"}}"#, ".labels.a", "", ".labels.b");
    check(r#"{"labels": {"a": "1"}}"#, r#"{"labels": null}"#, ".labels.a", "", "");
    check(r#"{"labels": {}}"#, r#"{"labels": null}"#, "", ".labels", "");
    check(r#"{"args": ["a"]}"#, r#"{"args": ["a", "b"]}"#, "", ".args", "");
    check(r#"{"ref": {"name": "a"}}"#, r#"{"ref": {"name": "b"}}"#, "", ".ref", "");
    check(r#"{"tags": ["a", "b"]}"#, r#"{"tags": ["c", "b"]}"#, r#".tags[="a"]"#, "", r#".tags[="c"]"#);
    check(r#"{"tags": ["a", "b"]}"#, r#"{"tags": ["b", "a"]}"#, "", "", "");
    check(
        r#"{"items": [{"name": "a", "value": "1"}, {"name": "b"}]}"#,
        r#"{"items": [{"name": "b", "value": "2"}, {"name": "c"}]}"#,
        r#".items[name="a"] .items[name="a"].name .items[name="a"].value"#,
        "",
        r#".items[name="c"] .items[name="b"].value .items[name="c"].name"#,
    );
    check(
        r#"{"ports": [{"port": 1}]}"#,
        r#"{"ports": [{"port": 1, "protocol": "TCP"}]}"#,
        "",
        "",
        r#".ports[port=1,protocol="TCP"].protocol"#,
    );
    check(r#"{"any": {"a": 1}}"#, r#"{"any": "x"}"#, ".any.a", ".any", "");
    check(r#"{"any": "x"}"#, r#"{"any": {"a": 1}}"#, "", ".any", ".any.a");
    check(r#"{"any": [1]}"#, r#"{"any": {"a": 1}}"#, "", ".any", ".any.a");
    check(r#"{"raw": {"a": 1}}"#, r#"{"raw": {"a": 2}}"#, "", ".raw", "");
}

#[test]
fn items_with_the_same_key_are_compared_as_one_value() {
    #[track_caller]
    fn check(old: &str, new: &str, removed: &str, modified: &str, added: &str) {
        let types = everything();
        let item = |text: &str| json(&format!(r#"{{"items": [{text}]}}"#));
        let found = compare(types.schema(), &item(old), &item(new));
        let one_line = |set: &apimachinery::apply::FieldSet| {
            set.to_string().replace("\n", " ").replace(r#".items[name="a"]"#, "A")
        };
        let have = [one_line(&found.removed), one_line(&found.modified), one_line(&found.added)];
        assert_eq!(have, [removed, modified, added], "{old} -> {new}");
    }
    let (one, two) = (r#"{"name": "a", "value": "1"}"#, r#"{"name": "a"}, {"name": "a", "value": "2"}"#);
    check(two, two, "", "", "");
    check(two, r#"{"name": "a"}, {"name": "a", "value": "3"}"#, "", "A", "");
    check(one, two, "A A.name A.value", "", "A");
    check(two, one, "A", "", "A A.name A.value");
    check("", two, "", "", "A");
    check(two, "", "A", "", "");
}

#[test]
fn merging_replaces_leaves_and_merges_the_rest() {
    #[track_caller]
    fn check(live: &str, config: &str, expect: &str) {
        let types = everything();
        let mut merged = json(live);
        merge(types.schema(), &mut merged, &json(config));
        assert_eq!(merged.to_string(), json(expect).to_string());
    }
    check(r#"{"text": "a", "count": 1}"#, r#"{"text": "b", "on": true}"#, r#"{"text": "b", "count": 1, "on": true}"#);
    check(r#"{"args": ["a", "b"]}"#, r#"{"args": ["c"]}"#, r#"{"args": ["c"]}"#);
    check(
        r#"{"limits": {"a": 1}, "ref": {"name": "x", "kind": "y"}}"#,
        r#"{"limits": {"b": 2}, "ref": {"name": "z"}}"#,
        r#"{"limits": {"b": 2}, "ref": {"name": "z"}}"#,
    );
    check(
        r#"{"labels": {"a": "1", "c": "3"}}"#,
        r#"{"labels": {"b": "2", "c": "4"}}"#,
        r#"{"labels": {"a": "1", "b": "2", "c": "4"}}"#,
    );
    check(
        r#"{"labels": {"a": "1"}, "text": "x", "tags": ["a"]}"#,
        r#"{"labels": null, "text": null, "tags": []}"#,
        r#"{"labels": {"a": "1"}, "text": null, "tags": ["a"]}"#,
    );
    check(r#"{"labels": null}"#, r#"{"labels": {}}"#, r#"{"labels": {}}"#);
    check(
        r#"{"items": [{"name": "a", "value": "1"}, {"name": "b"}]}"#,
        r#"{"items": [{"name": "b", "value": "2"}, {"name": "c"}]}"#,
        r#"{"items": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}, {"name": "c"}]}"#,
    );
    check(
        r#"{"items": [{"name": "a", "env": [{"key": "x", "value": "1"}]}]}"#,
        r#"{"items": [{"name": "a", "env": [{"key": "y"}, {"key": "x", "value": "2"}]}]}"#,
        r#"{"items": [{"name": "a", "env": [{"key": "y"}, {"key": "x", "value": "2"}]}]}"#,
    );
    check(
        r#"{"ports": [{"port": 1, "name": "a"}]}"#,
        r#"{"ports": [{"port": 1, "protocol": "TCP"}, {"port": 1, "protocol": "UDP"}]}"#,
        r#"{"ports": [{"port": 1, "name": "a", "protocol": "TCP"}, {"port": 1, "protocol": "UDP"}]}"#,
    );
    check(r#"{"any": "x"}"#, r#"{"any": {"a": 1}}"#, r#"{"any": {"a": 1}}"#);
    check(r#"{"any": {"a": 1, "l": [1]}}"#, r#"{"any": {"b": 2, "l": [2]}}"#, r#"{"any": {"a": 1, "b": 2, "l": [2]}}"#);
    check(r#"{"raw": {"a": 1}}"#, r#"{"raw": {"b": 2}}"#, r#"{"raw": {"b": 2}}"#);
}

#[test]
fn common_items_follow_the_order_of_the_config() {
    #[track_caller]
    fn check(live: &str, config: &str, expect: &str) {
        let types = everything();
        let list = |text: &str| Value::Array(text.chars().map(|c| Value::from(c.to_string())).collect());
        let mut merged = value!({"tags": (list(live))});
        merge(types.schema(), &mut merged, &value!({"tags": (list(config))}));
        let have: String = merged["tags"].as_array().unwrap().iter().map(|tag| tag.as_str().unwrap()).collect();
        assert_eq!(have, expect, "{live} + {config}");
    }
    check("abc", "abc", "abc");
    check("abc", "cba", "cba");
    check("ab", "cd", "abcd");
    check("abc", "cx", "abcx");
    check("abc", "xa", "xabc");
    check("abcd", "ca", "bcda");
    check("abcde", "eba", "cdeba");
    check("", "ba", "ba");
    check("aab", "b", "aab");
    check("aab", "ab", "ab");
    check("baa", "a", "ba");
}

#[test]
fn stored_duplicates_are_replaced_by_the_applied_item() {
    let types = everything();
    let mut merged = json(r#"{"items": [{"name": "a", "value": "1"}, {"name": "b"}, {"name": "a", "value": "2"}]}"#);
    merge(types.schema(), &mut merged, &json(r#"{"items": [{"name": "a", "args": ["x"]}]}"#));
    assert_eq!(merged, json(r#"{"items": [{"name": "a", "args": ["x"]}, {"name": "b"}]}"#));
}

#[test]
fn fields_of_a_set_are_removed_or_extracted() {
    #[track_caller]
    fn check(set: &str, removed: &str, extracted: &str) {
        let types = everything();
        let value = json(
            r#"{"text": "t", "args": ["x"], "labels": {"a": "1", "b": "2"}, "nested": {"a": "x", "b": {"c": "y"}},
            "items": [{"name": "a", "value": "1"}, {"name": "b"}], "tags": ["p", "q"], "ref": {"name": "n"}}"#,
        );
        let set = apimachinery::apply::FieldSet::from_value(&json(set)).unwrap();
        let mut left = value.clone();
        remove(types.schema(), &mut left, &set);
        let changed: apimachinery::Object = left
            .as_object()
            .unwrap()
            .iter()
            .filter(|(key, it)| value.get(key) != Some(it))
            .collect::<Vec<_>>()
            .into_iter()
            .map(|(key, it)| (key, it.clone()))
            .collect();
        let removed_keys: Vec<_> = value.as_object().unwrap().keys().filter(|key| left.get(key).is_none()).collect();
        assert_eq!(format!("{} -{}", Value::Object(changed), removed_keys.join(",")), removed);
        assert_eq!(extract(types.schema(), &value, &set).to_string(), extracted);
    }
    check("{}", "{} -", "null");
    check(r#"{"f:text":{},"f:args":{}}"#, "{} -args,text", r#"{"args":["x"],"text":"t"}"#);
    check(r#"{"f:labels":{"f:a":{}}}"#, r#"{"labels":{"b":"2"}} -"#, r#"{"labels":{"a":"1"}}"#);
    check(r#"{"f:labels":{"f:a":{},"f:b":{}}}"#, r#"{"labels":null} -"#, r#"{"labels":{"a":"1","b":"2"}}"#);
    check(r#"{"f:items":{"k:{\"name\":\"a\"}":{}}}"#, r#"{"items":[{"name":"b"}]} -"#, r#"{"items":[null]}"#);
    check(
        r#"{"f:items":{"k:{\"name\":\"a\"}":{"f:value":{}}}}"#,
        r#"{"items":[{"name":"a"},{"name":"b"}]} -"#,
        r#"{"items":[{"value":"1"}]}"#,
    );
    check(r#"{"f:tags":{"v:\"p\"":{},"v:\"z\"":{}}}"#, r#"{"tags":["q"]} -"#, r#"{"tags":["p"]}"#);
    check(
        r#"{"f:nested":{"f:b":{"f:c":{}}},"f:zzz":{}}"#,
        r#"{"nested":{"a":"x","b":null}} -"#,
        r#"{"nested":{"b":{"c":"y"}}}"#,
    );
    check(r#"{"f:ref":{"f:name":{}}}"#, r#"{"ref":null} -"#, r#"{"ref":{"name":"n"}}"#);
}

#[test]
fn owners_of_a_part_own_a_list_or_map_that_became_atomic() {
    #[track_caller]
    fn check(set: &str, expect: &str) {
        let set = apimachinery::apply::FieldSet::from_value(&json(set)).unwrap();
        assert_eq!(reconcile::reconcile(everything().schema(), &set).to_json(), expect);
    }
    check(r#"{"f:ref":{"f:name":{}},"f:text":{}}"#, r#"{"f:ref":{},"f:text":{}}"#);
    check(r#"{"f:args":{".":{},"v:\"x\"":{}}}"#, r#"{"f:args":{}}"#);
    check(
        r#"{"f:items":{"k:{\"name\":\"a\"}":{"f:args":{"v:\"x\"":{}}}}}"#,
        r#"{"f:items":{"k:{\"name\":\"a\"}":{"f:args":{}}}}"#,
    );
    check(
        r#"{"f:raw":{"f:x":{}},"f:any":{"f:x":{"f:y":{}}},"f:gone":{"f:x":{}}}"#,
        r#"{"f:any":{"f:x":{"f:y":{}}},"f:gone":{"f:x":{}},"f:raw":{}}"#,
    );
    check(
        r#"{"f:labels":{"f:a":{}},"f:nested":{"f:b":{"f:c":{}}}}"#,
        r#"{"f:labels":{"f:a":{}},"f:nested":{"f:b":{"f:c":{}}}}"#,
    );
}

#[test]
fn lists_of_many_keyed_items_do_not_take_quadratic_time() {
    // A quadratic algorithm would take billions of steps in each of these walks, and the test would not finish.
    let types = everything();
    let list = |from: i64, step: i64| {
        let items = (0..50_000).map(|at| value!({"port": (from + (at * step) % 50_021), "name": "n"}));
        value!({"ports": (Value::Array(items.collect()))})
    };
    let (live, config) = (list(0, 7), list(25_000, 11));
    assert!(validate(types.schema(), &config, Duplicates::Rejected).is_ok());
    let mut merged = live.clone();
    merge(types.schema(), &mut merged, &config);
    let changes = compare(types.schema(), &live, &merged);
    let set = field_set(types.schema(), &merged);
    remove(types.schema(), &mut merged, &changes.added);
    assert_eq!(merged["ports"].as_array().unwrap().len(), 50_000);
    assert_eq!(set.union(&changes.added).len(), set.len());
}
