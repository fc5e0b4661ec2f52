//! Tests of apply and update: the resulting object and its `managedFields`.

use apimachinery::apply::managers::{MAX_UPDATERS, validate_manager_name};
use apimachinery::apply::scale::{ReplicasPaths, owners_after_scale, owners_of_scale};
use apimachinery::apply::{Error, FieldSet, Operation, Owners, Versions, Write, keep_times};
use apimachinery::time::Time;
use apimachinery::{Path, Schema, Value, value};

use crate::notation::Notation;
use crate::scenario::{ApplyScenario, json, object};

fn thing() -> Notation {
    Notation::kind(&value!({
        "spec": {
            "replicas": "int", "image": "string", "paused": "bool", "args": {"$items": "string"},
            "selector": {"$of": {"app": "string"}, "$atomic": true},
            "template": {"labels": {"$values": "string"}},
            "items": {"$keys": ["name"], "$items": {"name": "string", "value": "string", "more": "string"}},
            "ports": {"$keys": ["port", "protocol"], "$items": {
                "port": "int", "protocol": {"$of": "string", "$default": "TCP"}, "name": "string"
            }}
        },
        "status": {"ready": "int", "phase": "string"}
    }))
}

#[track_caller]
fn error_message(result: Result<bool, Error>) -> String {
    result.expect_err("refused").to_string()
}

#[test]
fn applier_owns_the_applied_fields() {
    ApplyScenario::of(&thing())
        .apply("alice", r#"{"spec": {"replicas": 1, "items": [{"name": "x", "value": "1"}]}}"#)
        .expect(r#"{"spec": {"replicas": 1, "items": [{"name": "x", "value": "1"}]}}"#)
        .owned(&[r#"alice applied .spec.replicas .spec.items[name="x"] .spec.items[name="x"].name .spec.items[name="x"].value"#]);
}

#[test]
fn fields_no_longer_applied_are_removed() {
    let types = thing();
    let mut scenario = ApplyScenario::of(&types);
    scenario.apply("alice", r#"{"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"replicas": 1, "image": "x"}}"#);
    scenario.apply("alice", r#"{"metadata": {"labels": {"b": "2"}}, "spec": {"image": "x"}}"#);
    scenario.expect(r#"{"metadata": {"labels": {"b": "2"}}, "spec": {"image": "x"}}"#);
    scenario.apply("alice", r#"{"spec": {"image": "x"}}"#).expect(r#"{"spec": {"image": "x"}}"#);
    scenario.owned(&["alice applied .spec.image"]);
    scenario.apply("alice", "{}").expect("{}").owned(&[]);
}

#[test]
fn fields_with_another_owner_are_preserved() {
    let types = thing();
    let mut scenario = ApplyScenario::of(&types);
    scenario.apply("alice", r#"{"spec": {"replicas": 1, "image": "x"}}"#);
    scenario.apply("bob", r#"{"spec": {"replicas": 1}}"#);
    scenario.owned(&["bob applied .spec.replicas", "alice applied .spec.image .spec.replicas"]);
    scenario.apply("alice", r#"{"spec": {"image": "x"}}"#).expect(r#"{"spec": {"replicas": 1, "image": "x"}}"#);
    scenario.apply("bob", "{}").expect(r#"{"spec": {"image": "x"}}"#);
}

#[test]
fn fields_of_an_updater_are_preserved_when_the_applier_drops_them() {
    let types = thing();
    let mut scenario = ApplyScenario::of(&types);
    scenario.apply("alice", r#"{"spec": {"replicas": 1, "image": "x"}}"#);
    scenario.update("hpa", r#"{"spec": {"replicas": 5, "image": "x"}}"#);
    scenario.owned(&["alice applied .spec.image", "hpa changed .spec.replicas"]);
    scenario.apply("alice", r#"{"spec": {"image": "x"}}"#).expect(r#"{"spec": {"replicas": 5, "image": "x"}}"#);
}

#[test]
fn unowned_fields_are_preserved_even_within_removed_items() {
    let types = thing();
    let mut scenario = ApplyScenario::of(&types);
    scenario.apply("alice", r#"{"spec": {"items": [{"name": "x", "value": "1"}], "replicas": 1}}"#);
    // The server adds a default that has no owner.
    let items = scenario.object.as_mut().unwrap().get_mut("spec").unwrap().get_mut("items").unwrap();
    *items = json(r#"[{"name": "x", "value": "1", "more": "default"}]"#);
    scenario.apply("alice", r#"{"spec": {"items": [{"name": "x"}], "replicas": 1}}"#);
    scenario.expect(r#"{"spec": {"items": [{"name": "x", "more": "default"}], "replicas": 1}}"#);
    scenario.apply("alice", r#"{"spec": {"replicas": 1}}"#).expect(r#"{"spec": {"replicas": 1}}"#);
}

#[test]
fn list_items_are_owned_separately() {
    let types = thing();
    let mut scenario = ApplyScenario::of(&types);
    scenario.apply("alice", r#"{"spec": {"items": [{"name": "x", "value": "1"}]}}"#);
    scenario.apply("bob", r#"{"spec": {"items": [{"name": "y", "value": "2"}]}}"#);
    scenario.expect(r#"{"spec": {"items": [{"name": "x", "value": "1"}, {"name": "y", "value": "2"}]}}"#);
    scenario.apply("alice", r#"{"spec": {"items": []}}"#);
    scenario.expect(r#"{"spec": {"items": [{"name": "y", "value": "2"}]}}"#);
    scenario.owned(&[r#"bob applied .spec.items[name="y"] .spec.items[name="y"].name .spec.items[name="y"].value"#]);
}

#[test]
fn missing_key_field_has_its_default() {
    let types = thing();
    let mut scenario = ApplyScenario::of(&types);
    scenario.apply("alice", r#"{"spec": {"ports": [{"port": 80}]}}"#);
    scenario.apply("bob", r#"{"spec": {"ports": [{"port": 80, "protocol": "TCP", "name": "web"}]}}"#);
    scenario.expect(r#"{"spec": {"ports": [{"port": 80, "protocol": "TCP", "name": "web"}]}}"#);
    let repeated =
        scenario.try_apply("bob", r#"{"spec": {"ports": [{"port": 80}, {"port": 80, "protocol": "TCP"}]}}"#, false);
    assert_eq!(
        error_message(repeated),
        r#"failed to create typed patch object (ns/a; /v1, Kind=Thing): .spec.ports: duplicate entries for key [port=80,protocol="TCP"]"#
    );
}

#[test]
fn changing_a_field_of_another_owner_is_a_conflict() {
    let types = thing();
    let mut scenario = ApplyScenario::of(&types);
    scenario.apply("alice", r#"{"spec": {"replicas": 1, "image": "x", "items": [{"name": "a", "value": "1"}]}}"#);
    scenario.update("kubectl", r#"{"spec": {"replicas": 2, "image": "x", "items": [{"name": "a", "value": "1"}]}}"#);
    let error = scenario.try_apply("bob", r#"{"spec": {"replicas": 3}}"#, false).unwrap_err();
    assert_eq!(error.to_string(), r#"Apply failed with 1 conflict: conflict with "kubectl" using v1: .spec.replicas"#);
    let Error::Conflict(conflicts) = error else { panic!("a conflict") };
    let causes: Vec<_> = conflicts.causes().map(|cause| (cause.message, cause.field)).collect();
    assert_eq!(causes, [(r#"conflict with "kubectl" using v1"#.to_owned(), ".spec.replicas".to_owned())]);
    let several = r#"{"spec": {"replicas": 3, "image": "y", "items": [{"name": "a", "value": "2"}]}}"#;
    assert_eq!(
        error_message(scenario.try_apply("bob", several, false)),
        "Apply failed with 3 conflicts: conflicts with \"alice\":\n- .spec.image\n- .spec.items[name=\"a\"].value\nconflicts with \"kubectl\" using v1:\n- .spec.replicas"
    );
}

#[test]
fn force_takes_fields_from_another_owner() {
    let types = thing();
    let mut scenario = ApplyScenario::of(&types);
    scenario.apply("alice", r#"{"spec": {"replicas": 1, "image": "x"}}"#);
    scenario.force("bob", r#"{"spec": {"replicas": 2}}"#).expect(r#"{"spec": {"replicas": 2, "image": "x"}}"#);
    scenario.owned(&["alice applied .spec.image", "bob applied .spec.replicas"]);
    scenario
        .force("bob", r#"{"spec": {"replicas": 2, "image": "y"}}"#)
        .owned(&["bob applied .spec.image .spec.replicas"]);
}

#[test]
fn shared_fields_conflict_only_when_changed() {
    let types = thing();
    let mut scenario = ApplyScenario::of(&types);
    scenario.apply("alice", r#"{"spec": {"selector": {"app": "a"}}}"#);
    scenario.apply("bob", r#"{"spec": {"selector": {"app": "a"}}}"#);
    let error = error_message(scenario.try_apply("bob", r#"{"spec": {"selector": {"app": "b"}}}"#, false));
    assert_eq!(error, r#"Apply failed with 1 conflict: conflict with "alice": .spec.selector"#);
}

#[test]
fn reapplying_changes_nothing_not_even_times() {
    let types = thing();
    let mut scenario = ApplyScenario::of(&types);
    let config = r#"{"metadata": {"labels": {"a": "1"}}, "spec": {"replicas": 1, "items": [{"name": "x"}]}}"#;
    scenario.apply("alice", config);
    let before = scenario.object.clone();
    assert_eq!(scenario.try_apply("alice", config, false), Ok(false));
    assert_eq!(scenario.object, before);
    assert_eq!(scenario.try_apply("alice", r#"{"spec": {"replicas": 2}}"#, false), Ok(true));
    assert_ne!(
        scenario.object.as_ref().unwrap()["metadata"]["managedFields"],
        before.unwrap()["metadata"]["managedFields"]
    );
}

#[test]
fn updater_owns_the_fields_it_changed_last() {
    let types = thing();
    let mut scenario = ApplyScenario::of(&types);
    scenario.update("alice", r#"{"metadata": {"labels": {"a": "1"}}, "spec": {"replicas": 1, "image": "x"}}"#);
    scenario.owned(&["alice changed .spec .metadata.labels .metadata.labels.a .spec.image .spec.replicas"]);
    scenario.update("bob", r#"{"metadata": {"labels": {"a": "1"}}, "spec": {"replicas": 2, "image": "x"}}"#);
    scenario
        .owned(&["alice changed .spec .metadata.labels .metadata.labels.a .spec.image", "bob changed .spec.replicas"]);
    scenario.update("bob", r#"{"spec": {"replicas": 2, "image": "y"}}"#);
    scenario.owned(&["alice changed .spec", "bob changed .spec.image .spec.replicas"]);
    let before = scenario.object.clone();
    scenario.update("carol", r#"{"spec": {"replicas": 2, "image": "y"}}"#);
    assert_eq!(scenario.object, before, "a write that changes nothing leaves no trace");
}

#[test]
fn owners_are_distinct_per_subresource() {
    let types = thing();
    let mut scenario = ApplyScenario::of(&types);
    scenario.update("kubelet", r#"{"spec": {"replicas": 1}}"#);
    scenario.subresource = "status";
    scenario.reset_fields = FieldSet::of_fields(&["spec"]);
    scenario.update("kubelet", r#"{"spec": {"replicas": 1}, "status": {"ready": 1}}"#);
    scenario.owned(&["kubelet changed .spec .spec.replicas", "kubelet/status changed .status .status.ready"]);
    let error = {
        scenario.subresource = "";
        scenario.reset_fields = FieldSet::EMPTY;
        error_message(scenario.try_apply("bob", r#"{"status": {"ready": 2}}"#, false))
    };
    assert_eq!(
        error,
        r#"Apply failed with 1 conflict: conflict with "kubelet" with subresource "status" using v1: .status.ready"#
    );
}

#[test]
fn reset_fields_are_not_owned() {
    let types = thing();
    let mut scenario = ApplyScenario::of(&types);
    scenario.reset_fields = FieldSet::of_fields(&["status"]);
    scenario.update("alice", r#"{"spec": {"replicas": 1}, "status": {"ready": 1, "phase": "x"}}"#);
    scenario.owned(&["alice changed .spec .spec.replicas"]);
    scenario.apply("bob", r#"{"spec": {"replicas": 1}, "status": {"ready": 7}}"#);
    scenario.owned(&["bob applied .spec.replicas", "alice changed .spec .spec.replicas"]);
}

#[test]
fn first_apply_adds_the_before_first_apply_owner() {
    let types = thing();
    let mut scenario = ApplyScenario::of(&types);
    let mut old = object(r#"{"spec": {"replicas": 1, "image": "x"}}"#);
    old.get_mut("metadata").unwrap().as_object_mut().unwrap().insert("uid", "u");
    scenario.object = Some(old);
    let error = error_message(scenario.try_apply("alice", r#"{"spec": {"replicas": 2}}"#, false));
    assert_eq!(error, r#"Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .spec.replicas"#);
    scenario.force("alice", r#"{"spec": {"replicas": 2}}"#);
    scenario.owned(&["alice applied .spec.replicas", "before-first-apply changed .spec .spec.image"]);
}

#[test]
fn updates_do_not_add_owners_to_an_untracked_object() {
    let types = thing();
    let mut scenario = ApplyScenario::of(&types);
    scenario.update("alice", r#"{"spec": {"replicas": 1}}"#);
    for reset in [value!([]), value!([{}])] {
        let mut new = scenario.object.clone().unwrap();
        new.get_mut("metadata").unwrap().as_object_mut().unwrap().insert("managedFields", reset);
        scenario.update_object("alice", new).owned(&[]);
        scenario.update("alice", r#"{"spec": {"replicas": 2}}"#).owned(&[]);
        scenario.object = None;
        scenario.update("alice", r#"{"spec": {"replicas": 1}}"#).owned(&["alice changed .spec .spec.replicas"]);
    }
}

#[test]
fn client_supplied_managed_fields_are_used_unless_invalid() {
    let types = thing();
    let mut scenario = ApplyScenario::of(&types);
    scenario.apply("alice", r#"{"spec": {"replicas": 1}}"#);
    let with = |scenario: &ApplyScenario<'_>, owners: Value| {
        let mut new = scenario.object.clone().unwrap();
        new.get_mut("metadata").unwrap().as_object_mut().unwrap().insert("managedFields", owners);
        new
    };
    let given = json(
        r#"[{"manager": "bob", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]"#,
    );
    for nonsense in [
        r#"[{"manager": "bob"}]"#,
        r#"[{"manager": "bob", "operation": "Apply", "apiVersion": "v1"}]"#,
        r#"[{"manager": "bob", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"x": {}}}]"#,
        "null",
    ] {
        let new = with(&scenario, json(nonsense));
        scenario.update_object("carol", new).owned(&["alice applied .spec.replicas"]);
    }
    let new = with(&scenario, given.clone());
    scenario.update_object("carol", new).owned(&["bob applied .spec.replicas"]);
    scenario.apply("alice", r#"{"spec": {"image": "x"}}"#);
    scenario.subresource = "status";
    let new = with(&scenario, given);
    scenario.update_object("carol", new).owned(&["bob applied .spec.replicas", "alice applied .spec.image"]);
}

#[test]
fn invalid_stored_managed_fields_fail_an_apply_but_not_an_update() {
    #[track_caller]
    fn check(owners: &str, expect: &str) {
        let types = thing();
        let mut scenario = ApplyScenario::of(&types);
        scenario.update("alice", r#"{"spec": {"replicas": 1}}"#);
        let metadata = scenario.object.as_mut().unwrap().get_mut("metadata").unwrap().as_object_mut().unwrap();
        metadata.insert("managedFields", json(owners));
        assert_eq!(
            error_message(scenario.try_apply("bob", "{}", false)),
            format!("failed to decode managed fields: {expect}")
        );
        scenario.update("alice", r#"{"spec": {"replicas": 2}}"#).owned(&[]);
    }
    check(r#"[{"operation": "Delete"}]"#, "operation must be `Apply` or `Update`");
    check(r#"[{"operation": "Apply"}]"#, "apiVersion must not be empty");
    check(r#"[{"operation": "Apply", "apiVersion": "v1"}]"#, "missing fieldsType in managed fields entry 0");
    check(
        r#"[{"operation": "Apply", "apiVersion": "v1", "fieldsType": "V2"}]"#,
        r#"invalid fieldsType "V2" in managed fields entry 0"#,
    );
    check(
        r#"[{"operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"a": {}}}]"#,
        "error decoding set: parsing key as path element: key must be 2 characters long:",
    );
}

#[test]
fn invalid_apply_requests_are_rejected() {
    let types = thing();
    let mut scenario = ApplyScenario::of(&types);
    let other = value!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}});
    assert_eq!(
        error_message(scenario.apply_object("a", &other, false)),
        "invalid object type: apps/v1, Kind=Deployment"
    );
    assert_eq!(
        error_message(scenario.try_apply("a", r#"{"metadata": {"managedFields": []}}"#, false)),
        "metadata.managedFields must be nil"
    );
    assert_eq!(
        error_message(scenario.try_apply("a", r#"{"spec": {"bogus": 1}}"#, false)),
        "failed to create typed patch object (ns/a; /v1, Kind=Thing): .spec.bogus: field not declared in schema"
    );
    assert!(scenario.object.is_none());
}

#[test]
fn owners_are_sorted_appliers_first_then_by_time_and_name() {
    let types = thing();
    let mut scenario = ApplyScenario::of(&types);
    scenario.update("zed", r#"{"spec": {"replicas": 1}}"#);
    scenario.apply("bob", r#"{"spec": {"image": "x"}}"#);
    scenario.apply("alice", r#"{"spec": {"paused": true}}"#);
    scenario.update("abe", r#"{"spec": {"replicas": 1, "image": "x", "paused": true, "args": ["a"]}}"#);
    scenario.owned(&[
        "bob applied .spec.image",
        "alice applied .spec.paused",
        "zed changed .spec .spec.replicas",
        "abe changed .spec.args",
    ]);
    let times: Vec<_> = scenario.object.as_ref().unwrap()["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["time"].clone())
        .collect();
    assert_eq!(times[0], value!("2023-11-14T22:13:22Z"));
    assert!(times[0].as_str() < times[1].as_str() && times[2].as_str() < times[3].as_str(), "{times:?}");
}

#[test]
fn oldest_updates_are_merged() {
    let types = thing();
    let mut scenario = ApplyScenario::of(&types);
    scenario.apply("applier", r#"{"spec": {"image": "x"}}"#);
    for at in 0..MAX_UPDATERS + 3 {
        let mut new = scenario.object.clone().unwrap();
        let metadata = new.get_mut("metadata").unwrap().as_object_mut().unwrap();
        let labels = metadata.get_or_insert_with("labels", Value::object).as_object_mut().unwrap();
        labels.insert(format!("l{at:02}"), "x");
        scenario.update_object(&format!("m{at:02}"), new);
    }
    let owners = scenario.owners();
    assert_eq!(owners.len(), 1 + MAX_UPDATERS);
    let ancient = "ancient-changes changed .metadata.labels .metadata.labels.l00 .metadata.labels.l01 .metadata.labels.l02 .metadata.labels.l03";
    assert_eq!(owners[1], ancient);
    assert_eq!(owners[2], "m04 changed .metadata.labels.l04");
    let entry = &scenario.object.as_ref().unwrap()["metadata"]["managedFields"][1];
    assert_eq!(entry["time"], value!("2023-11-14T22:13:25Z"), "the time of the latest of them");
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn client_side_applied(spec: &str, last: &str) -> Value {
    let mut new = object(spec);
    let metadata = new.get_mut("metadata").unwrap().as_object_mut().unwrap();
    let last = object(last).to_string();
    metadata.insert("annotations", [(LAST_APPLIED, last)].into_iter().collect::<apimachinery::Object>());
    new
}

#[test]
fn kubectl_takes_over_fields_of_its_client_side_apply() {
    let types = thing();
    let mut scenario = ApplyScenario::of(&types);
    let spec = r#"{"spec": {"replicas": 1, "image": "x"}}"#;
    scenario.update_object("kubectl-client-side-apply", client_side_applied(spec, spec));
    assert!(scenario.try_apply("other", r#"{"spec": {"replicas": 2}}"#, false).is_err(), "for kubectl only");
    scenario.apply("kubectl", r#"{"spec": {"replicas": 2, "image": "<x>"}}"#);
    let annotations = &scenario.object.as_ref().unwrap()["metadata"]["annotations"];
    assert_eq!(
        annotations[LAST_APPLIED],
        value!(
            "{\"apiVersion\":\"v1\",\"kind\":\"Thing\",\"metadata\":{\"name\":\"a\",\"namespace\":\"ns\"},\"spec\":{\"image\":\"\\u003cx\\u003e\",\"replicas\":2}}\n"
        )
    );
    assert_eq!(scenario.owners()[0], "kubectl applied .spec.image .spec.replicas");
}

#[test]
fn fields_changed_since_client_side_apply_still_conflict() {
    let types = thing();
    let mut scenario = ApplyScenario::of(&types);
    let last = r#"{"spec": {"replicas": 1, "image": "x"}}"#;
    scenario.update_object("kubectl-client-side-apply", client_side_applied(last, last));
    scenario.update_object("hpa", client_side_applied(r#"{"spec": {"replicas": 5, "image": "x"}}"#, last));
    let error = error_message(scenario.try_apply("kubectl", r#"{"spec": {"replicas": 2, "image": "y"}}"#, false));
    assert_eq!(error, r#"Apply failed with 1 conflict: conflict with "hpa" using v1: .spec.replicas"#);
}

#[test]
fn times_are_updated_only_with_a_change() {
    let old = json(r#"{"metadata": {"managedFields": [{"manager": "a", "time": "1"}]}, "spec": 1}"#);
    let mut same = json(r#"{"metadata": {"managedFields": [{"manager": "a", "time": "2"}]}, "spec": 1}"#);
    keep_times(&old, &mut same);
    assert_eq!(same, old);
    for other in [
        r#"{"metadata": {"managedFields": [{"manager": "a", "time": "2"}]}, "spec": 2}"#,
        r#"{"metadata": {"managedFields": [{"manager": "b", "time": "2"}]}, "spec": 1}"#,
        r#"{"metadata": {"managedFields": []}, "spec": 1}"#,
    ] {
        let mut new = json(other);
        keep_times(&old, &mut new);
        assert_eq!(new, json(other));
    }
}

#[test]
fn manager_names_are_validated() {
    #[track_caller]
    fn check(name: &str, expect: &[&str]) {
        let found: Vec<_> =
            validate_manager_name(&Path::of("fieldManager"), name).iter().map(ToString::to_string).collect();
        assert_eq!(found, expect);
    }
    check("", &[]);
    check("kubectl edit é", &[]);
    check(&"a".repeat(128), &[]);
    check(&"a".repeat(129), &["fieldManager: Too long: may not be more than 128 bytes"]);
    let bad = ["invalid character U+000A (at position 2)", "invalid character U+200B (at position 4)"];
    let bad = bad.map(|detail| format!(r#"fieldManager: Invalid value: "é\nb\u200b": {detail}"#));
    check("é\nb\u{200b}", &bad.each_ref().map(String::as_str));
}

#[test]
fn replicas_ownership_is_translated_through_scale() {
    let parent = Owners::from_value(&json(
        r#"[{"manager": "alice", "operation": "Apply", "apiVersion": "apps/v1", "time": "2020-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}, "f:image": {}}}},
            {"manager": "bob", "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}, "f:paused": {}}}},
            {"manager": "old", "operation": "Update", "apiVersion": "apps/v0", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]"#,
    ))
    .unwrap();
    let paths = ReplicasPaths::spec_replicas("apps/v1");
    let summarize = |owners: &Owners| -> Vec<String> {
        let mut lines: Vec<_> = owners
            .list()
            .iter()
            .map(|it| {
                format!(
                    "{}/{} {} {}",
                    it.manager,
                    it.subresource,
                    it.api_version,
                    it.fields.to_string().replace('\n', " ")
                )
            })
            .collect();
        lines.sort();
        lines
    };
    let scale = owners_of_scale(&parent, &paths);
    assert_eq!(summarize(&scale), ["alice/ autoscaling/v1 .spec.replicas", "bob/ autoscaling/v1 .spec.replicas"]);
    let untouched = owners_after_scale(&parent, &scale, "apps/v1", &paths);
    assert_eq!(
        summarize(&untouched),
        ["alice/ apps/v1 .spec.image .spec.replicas", "bob/ apps/v1 .spec.paused .spec.replicas"]
    );
    let taken = Owners::from_value(&json(
        r#"[{"manager": "hpa", "operation": "Update", "subresource": "scale", "apiVersion": "autoscaling/v1", "time": "2020-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]"#,
    ))
    .unwrap();
    let after = owners_after_scale(&parent, &taken, "apps/v1", &paths);
    assert_eq!(
        summarize(&after),
        ["alice/ apps/v1 .spec.image", "bob/ apps/v1 .spec.paused", "hpa/scale apps/v1 .spec.replicas"]
    );
    assert!(
        after.list().iter().any(|it| it.manager == "hpa" && it.time.is_none() && it.operation == Operation::Update)
    );
}

/// Two versions of a kind: `.spec.replicas` in `v1` is `.spec.count` in `v2`.
struct TwoVersions {
    v1: Notation,
    v2: Notation,
}

impl Versions for TwoVersions {
    fn schema(&self, api_version: &str) -> Option<Schema<'_>> {
        match api_version {
            "v1" => Some(self.v1.schema()),
            "v2" => Some(self.v2.schema()),
            _ => None,
        }
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        let mut object = object.clone();
        let (from, to) = if api_version == "v2" { ("replicas", "count") } else { ("count", "replicas") };
        if let Some(Value::Object(spec)) = object.get_mut("spec")
            && let Some(value) = spec.remove(from)
        {
            spec.insert(to, value);
        }
        object.as_object_mut().ok_or("no object")?.insert("apiVersion", api_version);
        Ok(object)
    }

    fn reset_fields(&self, _: &str) -> FieldSet {
        FieldSet::EMPTY
    }

    fn empty(&self, api_version: &str) -> Value {
        value!({"apiVersion": api_version, "kind": "Thing", "metadata": {}})
    }
}

#[test]
fn owners_in_another_version_keep_their_fields_by_conversion() {
    let versions = TwoVersions {
        v1: Notation::kind(&value!({"spec": {"replicas": "int", "image": "string"}})),
        v2: Notation::kind(&value!({"spec": {"count": "int", "image": "string"}})),
    };
    let write = |api_version, manager| Write {
        versions: &versions,
        api_version,
        kind: "Thing",
        subresource: "",
        manager,
        now: Time::from_unix(1, 0),
    };
    let thing = |version: &str, spec: &str| {
        json(&format!(r#"{{"apiVersion": "{version}", "kind": "Thing", "metadata": {{"name": "a"}}, "spec": {spec}}}"#))
    };
    let first =
        write("v1", "alice").apply(None, &thing("v1", r#"{"replicas": 1, "image": "x"}"#), false).unwrap().object;
    let live = versions.convert(&first, "v2").unwrap();

    let error = write("v2", "bob").apply(Some(&live), &thing("v2", r#"{"count": 2}"#), false).unwrap_err();
    assert_eq!(error.to_string(), r#"Apply failed with 1 conflict: conflict with "alice": .spec.replicas"#);

    let moved = write("v2", "alice").apply(Some(&live), &thing("v2", r#"{"image": "x"}"#), false).unwrap().object;
    assert_eq!(moved["spec"], value!({"image": "x"}), "fields applied in the old version are removed in the new one");
    assert_eq!(moved["metadata"]["managedFields"][0]["apiVersion"], value!("v2"));
    assert_eq!(moved["metadata"]["managedFields"].as_array().unwrap().len(), 1);

    let mut removed_version = live.clone();
    let owners =
        removed_version.get_mut("metadata").unwrap().as_object_mut().unwrap().get_mut("managedFields").unwrap();
    owners.as_array_mut().unwrap()[0].as_object_mut().unwrap().insert("apiVersion", "v0");
    let applied =
        write("v2", "bob").apply(Some(&removed_version), &thing("v2", r#"{"count": 2}"#), false).unwrap().object;
    assert_eq!(Owners::of(&applied).unwrap().list().len(), 1, "a manager with a removed version is dropped");
}
