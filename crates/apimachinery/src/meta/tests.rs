use super::*;
use crate::field::Errors;
use crate::{Path, value};

fn created(object: &Value, scope: Scope) -> Vec<String> {
    let mut errors = Errors::new();
    validate_create(object, scope, name_is_dns_subdomain, &Path::of("metadata"), &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

fn updated(object: &Value, old: &Value) -> Vec<String> {
    let mut errors = Errors::new();
    validate_update(object, old, &Path::of("metadata"), &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn missing_metadata_reads_as_absent() {
    let pod = value!({"metadata": {
        "name": "a", "generation": 3, "labels": {"l": "1"}, "annotations": null, "finalizers": ["f"],
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [{"kind": "Node", "name": "n"}, {"kind": "ReplicaSet", "name": "r", "controller": true}]
    }});
    let meta = Meta::of(&pod);
    assert_eq!((meta.name(), meta.namespace(), meta.generation()), ("a", "", 3));
    assert_eq!((meta.label("l"), meta.label("m"), meta.annotation("x")), (Some("1"), None, None));
    assert_eq!(meta.finalizers().collect::<Vec<_>>(), ["f"]);
    assert_eq!(meta.controller().unwrap().name(), "r");
    assert_eq!(meta.creation_timestamp().unwrap().to_string(), "2026-01-01T00:00:00Z");
    assert!(!meta.is_deleting());
    assert_eq!(Meta::of(&Value::Null).name(), "");
}

#[test]
fn metadata_writes_leave_no_empty_maps() {
    let mut pod = value!({"metadata": null});
    let mut meta = MetaMut::of(&mut pod).unwrap();
    meta.set_label("a", "1");
    meta.set_annotation("b", "2");
    assert!(meta.add_finalizer("f"));
    assert!(!meta.add_finalizer("f"));
    meta.set_resource_version(7);
    meta.set_deletion(Time::from_unix(0, 0), 30);
    meta.remove_annotation("b");
    assert_eq!(
        pod,
        value!({"metadata": {
            "labels": {"a": "1"}, "finalizers": ["f"], "resourceVersion": "7",
            "deletionTimestamp": "1970-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30
        }})
    );
    let mut meta = MetaMut::of(&mut pod).unwrap();
    assert!(meta.remove_finalizer("f"));
    assert!(!meta.remove_finalizer("f"));
    meta.remove_label("a");
    assert_eq!(pod["metadata"]["labels"], Value::Null);
    assert!(MetaMut::of(&mut value!([])).is_none());
}

#[test]
fn generated_names_are_truncated_to_fit_the_suffix() {
    assert_eq!(generate_name("web-", "abcde"), "web-abcde");
    assert_eq!(generate_name(&"x".repeat(100), "abcde").len(), 63);
    assert_eq!(generate_name(&"é".repeat(40), "abcde").len(), 63);
    assert_eq!(name_suffix(0), "bbbbb");
    assert_eq!(name_suffix(26 + 27), "9cbbb");
    assert!(name_suffix(u64::MAX).bytes().all(|c| NAME_ALPHABET.contains(&c)));
}

#[test]
fn server_sets_uid_and_timestamps_on_create_and_keeps_them_on_update() {
    let mut object = value!({"metadata": {"generateName": "a-", "uid": "mine", "deletionTimestamp": "x"}});
    prepare_create(&mut object, "u", Time::from_unix(0, 0), "bcdfg");
    let created = value!({"metadata": {
        "generateName": "a-", "name": "a-bcdfg", "uid": "u", "creationTimestamp": "1970-01-01T00:00:00Z"
    }});
    assert_eq!(object, created);
    let mut change = value!({"metadata": {"name": "a-bcdfg", "creationTimestamp": "2020-01-01T00:00:00Z"}});
    prepare_update(&mut change, &created);
    assert_eq!(change["metadata"]["uid"], value!("u"));
    assert_eq!(change["metadata"]["creationTimestamp"], value!("1970-01-01T00:00:00Z"));
}

#[test]
fn names_and_namespaces_are_validated_on_create() {
    let check = |metadata: Value, scope: Scope, expect: &[&str]| {
        assert_eq!(created(&value!({"metadata": metadata}), scope), expect);
    };
    check(value!({"name": "a", "namespace": "n"}), Scope::Namespaced, &[]);
    check(value!({"name": "a", "generateName": "a-"}), Scope::Cluster, &[]);
    check(
        value!({}),
        Scope::Namespaced,
        &["metadata.name: Required value: name or generateName is required", "metadata.namespace: Required value"],
    );
    check(
        value!({"name": "a", "namespace": "n", "generation": (-1)}),
        Scope::Cluster,
        &[
            "metadata.namespace: Forbidden: not allowed on this type",
            "metadata.generation: Invalid value: -1: must be greater than or equal to 0",
        ],
    );
}

#[test]
fn generate_name_may_end_in_a_dash() {
    assert!(name_is_dns_label("a-", NamePart::Prefix).is_empty());
    assert!(!name_is_dns_label("a-", NamePart::Full).is_empty());
    assert!(!name_is_dns_label("-", NamePart::Prefix).is_empty(), "the prefix before the dash is empty");
    assert!(!name_is_dns_label("É-é-", NamePart::Prefix).is_empty());
    assert!(name_is_path_segment("..", NamePart::Prefix).is_empty());
}

#[test]
fn total_size_of_annotations_is_limited() {
    let long = "x".repeat(256 << 10);
    let object = value!({"metadata": {"name": "a", "annotations": {"A/b": long}}});
    assert_eq!(created(&object, Scope::Cluster), ["metadata.annotations: Too long: may not be more than 262144 bytes"]);
}

#[test]
fn at_most_one_owner_is_the_controller() {
    let object = value!({"metadata": {"name": "a", "ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "1", "controller": true},
        {"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "2", "controller": true},
        {"apiVersion": "a/b/c", "kind": "", "name": "x", "uid": ""}
    ]}});
    assert_eq!(
        created(&object, Scope::Cluster),
        [
            r#"metadata.ownerReferences: Invalid value: {"apiVersion":"v1","kind":"Event","name":"e","uid":"2","controller":true}: /v1, Kind=Event is disallowed from being an owner"#,
            r#"metadata.ownerReferences: Invalid value: [{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"r","uid":"1","controller":true},{"apiVersion":"v1","kind":"Event","name":"e","uid":"2","controller":true},{"apiVersion":"a/b/c","kind":"","name":"x","uid":""}]: Only one reference can have Controller set to true. Found "true" in references for ReplicaSet/r and Event/e"#,
            r#"metadata.ownerReferences.apiVersion: Invalid value: "a/b/c": version must not be empty"#,
            r#"metadata.ownerReferences.kind: Invalid value: "": must not be empty"#,
            r#"metadata.ownerReferences.uid: Invalid value: "": must not be empty"#,
        ]
    );
}

#[test]
fn orphan_and_foreground_finalizers_are_mutually_exclusive() {
    let object = value!({"metadata": {"name": "a", "finalizers": ["orphan", "foregroundDeletion"]}});
    assert_eq!(
        created(&object, Scope::Cluster),
        [
            r#"metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and foregroundDeletion cannot be both set"#
        ]
    );
}

#[test]
fn managed_fields_name_an_operation_and_a_printable_manager() {
    let object = value!({"metadata": {"name": "a", "managedFields": [
        {"operation": "Bogus", "manager": "a\u{7}", "fieldsType": "V2"}
    ]}});
    assert_eq!(
        created(&object, Scope::Cluster),
        [
            r#"metadata.managedFields[0].operation: Invalid value: "Bogus": must be `Apply` or `Update`"#,
            r#"metadata.managedFields[0].fieldsType: Invalid value: "V2": must be `FieldsV1`"#,
            r#"metadata.managedFields[0].manager: Invalid value: "a\a": invalid character U+0007 (at position 1)"#,
        ]
    );
}

#[test]
fn identity_fields_are_immutable() {
    let old = value!({"metadata": {
        "name": "a", "namespace": "n", "uid": "1", "resourceVersion": "1", "generation": 2,
        "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]
    }});
    assert_eq!(updated(&old, &old), [""; 0]);
    let new = value!({"metadata": {"name": "b", "uid": "2", "generation": 1, "finalizers": ["x", "a/y"]}});
    assert_eq!(
        updated(&new, &old),
        [
            r#"metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"a/y"}"#,
            r#"metadata.resourceVersion: Invalid value: "": must be specified for an update"#,
            "metadata.generation: Invalid value: 1: must not be decremented",
            r#"metadata.name: Invalid value: "b": field is immutable"#,
            r#"metadata.namespace: Invalid value: "": field is immutable"#,
            r#"metadata.uid: Invalid value: "2": field is immutable"#,
            "metadata.deletionTimestamp: Invalid value: null: field is immutable",
        ]
    );
}

#[test]
fn conditions_are_complete_and_unique() {
    let conditions = [
        value!({"type": "Ready", "status": "Maybe", "reason": "1", "observedGeneration": (-1)}),
        value!({"type": "Ready"}),
    ];
    let mut errors = Errors::new();
    validate_conditions(&conditions, &Path::of("conditions"), &mut errors);
    let fields: Vec<_> =
        errors.iter().map(|error| format!("{} {}", error.field, error.reason.message_prefix())).collect();
    assert_eq!(
        fields,
        [
            "conditions[0].status Unsupported value",
            "conditions[0].observedGeneration Invalid value",
            "conditions[0].lastTransitionTime Required value",
            "conditions[0].reason Invalid value",
            "conditions[1].type Duplicate value",
            "conditions[1].status Unsupported value",
            "conditions[1].lastTransitionTime Required value",
            "conditions[1].reason Required value",
        ]
    );
}
