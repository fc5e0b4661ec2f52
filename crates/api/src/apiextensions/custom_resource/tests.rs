use apimachinery::apply::{self, FieldSet, OneVersion};
use apimachinery::time::Time;
use apimachinery::{Errors, custom_decode, defaulting, pruning, value};

use super::*;
use crate::kind::{Context, Requester};

const NOW: Time = Time::from_unix(1_700_000_000, 0);

/// A CRD whose `spec` has this schema.
fn crd(spec: Value) -> Value {
    value!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "ManyWidgets", "shortNames": ["wd"], "categories": ["all"]},
            "scope": "Namespaced",
            "versions": [
                {"name": "v1beta1", "served": true, "storage": false, "deprecated": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
                {
                    "name": "v1",
                    "served": true,
                    "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": spec,
                        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
                    }}},
                    "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                    "selectableFields": [{"jsonPath": ".spec.color"}],
                    "subresources": {
                        "status": {},
                        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                    },
                },
            ],
        },
    })
}

fn widget(spec: Value) -> Value {
    value!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec})
}

fn in_context<T>(kind: &Kind, subresource: &str, run: impl FnOnce(&Context<'_>) -> T) -> T {
    let requester = Requester::default();
    let version = kind.version("v1").unwrap();
    run(&Context { version, subresource, now: NOW, requester: &requester })
}

fn findings(kind: &Kind, object: &Value, old: Option<&Value>) -> Vec<String> {
    in_context(kind, "", |context| {
        let mut errors = Errors::new();
        match old {
            Some(old) => kind.rules.validate_update(object, old, context, &mut errors),
            None => kind.rules.validate(object, context, &mut errors),
        }
        errors.iter().map(ToString::to_string).collect()
    })
}

fn check(schema: Value, spec: Value, old: Option<Value>, expect: &[&str]) {
    let kind = kind_of(&crd(schema)).unwrap();
    assert_eq!(findings(&kind, &widget(spec), old.map(widget).as_ref()), expect);
}

#[test]
fn crd_defines_a_kind() {
    let kind = kind_of(&crd(value!({"type": "object"}))).unwrap();
    assert_eq!((kind.kind.as_str(), kind.plural.as_str(), kind.singular.as_str()), ("Widget", "widgets", "widget"));
    assert_eq!(kind.list_kind, "ManyWidgets");
    let versions: Vec<_> = kind.versions.iter().map(|version| version.name.as_str()).collect();
    assert_eq!(versions, ["v1", "v1beta1"], "the preferred one first");
    assert_eq!(kind.versions[1].deprecation.as_deref(), Some("example.com/v1beta1 Widget is deprecated"));
    let Persistence::Stored { prefix, version, .. } = &kind.persistence else { panic!("{:?}", kind.persistence) };
    assert_eq!((prefix.as_str(), version.to_string().as_str()), ("example.com/widgets", "example.com/v1"));
    let columns: Vec<_> = kind.versions[0].columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(columns, ["Name", "Size"]);
    let object = widget(value!({"size": 3, "color": "red"}));
    assert_eq!(kind.versions[0].columns[1].cell(&object, NOW), value!(3));
    assert_eq!(kind.versions[1].columns[1].name, "Age", "a version without columns prints the age");
    assert_eq!((kind.selectable[0].name.as_str(), kind.selectable[0].of(&object).as_str()), ("spec.color", "red"));
    let SubresourceAction::Scale(paths) = &kind.subresource("v1", "scale").unwrap().does else { panic!() };
    assert_eq!(paths.desired, ["spec", "replicas"]);
    assert!(kind.subresource("v1", "status").is_some());
    assert!(kind.subresource("v1beta1", "status").is_none(), "each version has separate columns");
}

#[test]
fn schema_prunes_defaults_and_rejects() {
    let schema = value!({"type": "object", "required": ["size"], "properties": {
        "size": {"type": "integer", "maximum": 10}, "color": {"type": "string", "default": "red"},
    }});
    let kind = kind_of(&crd(schema.clone())).unwrap();
    let mut object = widget(value!({"size": 3, "unknown": 1}));
    let shape = kind.version("v1").unwrap().schema();
    assert_eq!(pruning::prune(&mut object, shape), ["spec.unknown"]);
    defaulting::default(&mut object, shape);
    assert_eq!(object["spec"], value!({"size": 3, "color": "red"}));
    check(
        schema.clone(),
        value!({"size": 11}),
        None,
        &["spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10"],
    );
    check(schema.clone(), value!({"size": 11, "color": "x"}), Some(value!({"size": 11})), &[]);
    check(schema, value!({}), None, &["spec.size: Required value"]);
}

#[test]
fn cel_rules_validate_objects() {
    let with = |rules: Value| {
        value!({"type": "object", "properties": {
            "size": {"type": "integer"}, "map": {"type": "object", "additionalProperties": {"type": "string"}},
        }, "x-kubernetes-validations": rules})
    };
    let rule = || with(value!([{"rule": "self.size < 9", "message": "too big"}]));
    check(rule(), value!({"size": 8}), None, &[]);
    check(rule(), value!({"size": 9}), None, &["spec: Invalid value: too big"]);
    check(
        with(value!([{"rule": "self.size < 9"}])),
        value!({"size": 9}),
        None,
        &["spec: Invalid value: failed rule: self.size < 9"],
    );
    check(rule(), value!({}), None, &["spec: Invalid value: \"object\": no such key: size evaluating rule: too big"]);
    check(
        with(
            value!([{"rule": "self.size < 9", "messageExpression": "'size is ' + string(self.size)", "reason": "FieldValueForbidden", "fieldPath": ".size"}]),
        ),
        value!({"size": 9}),
        None,
        &["spec.size: Forbidden: size is 9"],
    );
    let scalar = value!({"type": "object", "properties": {"size": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 9"}]}}});
    check(scalar, value!({"size": 9}), None, &["spec.size: Invalid value: 9: failed rule: self < 9"]);
}

#[test]
fn root_rules_can_read_metadata_name() {
    let mut crd = crd(value!({"type": "object"}));
    let versions = crd.get_mut("spec").and_then(|spec| spec.get_mut("versions")).and_then(Value::as_array_mut);
    let schema = versions.unwrap()[1].get_mut("schema").and_then(|schema| schema.get_mut("openAPIV3Schema")).unwrap();
    let rules = value!([{"rule": "self.metadata.name != 'a' && self.kind == 'Widget'", "message": "not a"}]);
    schema.as_object_mut().unwrap().insert("x-kubernetes-validations", rules);
    let kind = kind_of(&crd).unwrap();
    assert_eq!(findings(&kind, &widget(value!({})), None), ["<nil>: Invalid value: not a"]);
}

#[test]
fn rules_under_all_of_are_evaluated() {
    let schema = value!({"type": "object", "properties": {"size": {"type": "integer"}}, "allOf": [
        {"x-kubernetes-validations": [{"rule": "self.size < 9"}], "properties": {
            "size": {"x-kubernetes-validations": [{"rule": "self > 1"}]},
        }},
    ]});
    check(schema.clone(), value!({"size": 9}), None, &["spec: Invalid value: failed rule: self.size < 9"]);
    check(schema, value!({"size": 1}), None, &["spec.size: Invalid value: 1: failed rule: self > 1"]);
}

#[test]
fn list_set_with_existing_duplicates_is_ratcheted() {
    let schema = value!({"type": "object", "properties": {
        "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}, "n": {"type": "integer"},
    }});
    let repeated = value!({"set": ["a", "a"], "n": 1});
    check(schema.clone(), repeated.clone(), None, &["spec.set[1]: Duplicate value: \"a\""]);
    check(schema.clone(), repeated.clone(), Some(value!({"set": ["a"]})), &["spec.set[1]: Duplicate value: \"a\""]);
    check(schema, repeated, Some(value!({"set": ["b", "b"]})), &[]);
}

#[test]
fn transition_rules_compare_with_old_self() {
    let with = |rules: Value| value!({"type": "object", "properties": {"size": {"type": "integer"}}, "x-kubernetes-validations": rules});
    let grows = || with(value!([{"rule": "self.size >= oldSelf.size", "message": "must grow"}]));
    check(grows(), value!({"size": 1}), None, &[]);
    check(grows(), value!({"size": 1}), Some(value!({"size": 2})), &["spec: Invalid value: must grow"]);
    check(grows(), value!({"size": 3}), Some(value!({"size": 2})), &[]);
    let optional = || {
        with(
            value!([{"rule": "oldSelf.hasValue() ? self.size == oldSelf.value().size : self.size == 1", "optionalOldSelf": true, "message": "no"}]),
        )
    };
    check(optional(), value!({"size": 1}), None, &[]);
    check(optional(), value!({"size": 2}), None, &["spec: Invalid value: no"]);
    check(optional(), value!({"size": 2}), Some(value!({"size": 2})), &[]);
    check(optional(), value!({"size": 3}), Some(value!({"size": 2})), &["spec: Invalid value: no"]);
}

#[test]
fn unchanged_violations_become_warnings() {
    let schema = value!({"type": "object", "properties": {
        "a": {"type": "object", "properties": {"size": {"type": "integer"}}, "x-kubernetes-validations": [{"rule": "self.size < 9"}]},
        "b": {"type": "string"},
    }});
    let kind = kind_of(&crd(schema)).unwrap();
    let old = widget(value!({"a": {"size": 10}, "b": "x"}));
    let new = widget(value!({"a": {"size": 10}, "b": "y"}));
    assert_eq!(findings(&kind, &new, Some(&old)), [""; 0]);
    let warnings = in_context(&kind, "", |context| kind.rules.warnings(&new, Some(&old), context));
    assert_eq!(warnings, ["spec.a: Invalid value: failed rule: self.size < 9"]);
    let worse = widget(value!({"a": {"size": 11}, "b": "y"}));
    assert_eq!(findings(&kind, &worse, Some(&old)), ["spec.a: Invalid value: failed rule: self.size < 9"]);
}

#[test]
fn list_map_items_are_correlated_by_key() {
    let schema = value!({"type": "object", "properties": {"parts": {
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object", "required": ["name"],
            "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.n >= oldSelf.n", "message": "must grow"}],
        },
    }}});
    check(
        schema,
        value!({"parts": [{"name": "b", "n": 1}, {"name": "a", "n": 1}, {"name": "c", "n": 0}]}),
        Some(value!({"parts": [{"name": "a", "n": 2}, {"name": "b", "n": 1}]})),
        &["spec.parts[1]: Invalid value: must grow"],
    );
}

#[test]
fn rules_run_after_schema_validation_and_stop_at_the_cost_budget() {
    let schema = value!({"type": "object", "properties": {"list": {"type": "array", "items": {"type": "integer"}}},
        "x-kubernetes-validations": [{"rule": "self.list.all(a, self.list.all(b, a <= b || a > b))"}, {"rule": "false"}]});
    let kind = kind_of(&crd(schema)).unwrap();
    let wrong = findings(&kind, &widget(value!({"list": ["x"]})), None);
    assert_eq!(
        wrong[1..],
        [
            "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"
        ]
    );
    let many: Vec<Value> = (0..2000).map(Value::Int).collect();
    let found = findings(&kind, &widget(value!({"list": many})), None);
    assert_eq!(found.len(), 1, "no rule is evaluated after the budget is exhausted");
    assert!(found[0].contains("no further validation rules will be run"), "{}", found[0]);
}

#[test]
fn status_writes_change_only_status_and_other_writes_keep_it() {
    let kind = kind_of(&crd(value!({"type": "object", "properties": {"size": {"type": "integer"}}}))).unwrap();
    let mut created = widget(value!({"size": 1}));
    created.as_object_mut().unwrap().insert("status", value!({"replicas": 5}));
    in_context(&kind, "", |context| kind.rules.prepare_create(&mut created, context));
    assert_eq!((created.get("status"), &created["metadata"]["generation"]), (None, &value!(1)));

    let mut status = widget(value!({"size": 2}));
    status.as_object_mut().unwrap().insert("status", value!({"replicas": 5}));
    in_context(&kind, "status", |context| kind.rules.prepare_update(&mut status, &created, context));
    assert_eq!((&status["spec"]["size"], &status["status"]["replicas"]), (&value!(1), &value!(5)));
    assert_eq!(status["metadata"]["generation"], value!(1));

    let mut changed = widget(value!({"size": 2}));
    in_context(&kind, "", |context| kind.rules.prepare_update(&mut changed, &status, context));
    assert_eq!((&changed["spec"]["size"], &changed["status"]["replicas"]), (&value!(2), &value!(5)));
    assert_eq!(changed["metadata"]["generation"], value!(2));
}

#[test]
fn scale_replica_fields_must_be_valid() {
    check(
        value!({"type": "object", "properties": {"replicas": {"type": "integer"}}}),
        value!({"replicas": (-1)}),
        None,
        &[".spec.replicas: Invalid value: -1: should be a non-negative integer"],
    );
}

#[test]
fn managed_fields_are_tracked_in_closed_schemas() {
    let kind = kind_of(&crd(value!({"type": "object", "properties": {
        "size": {"type": "integer"},
        "template": {
            "type": "object", "x-kubernetes-embedded-resource": true,
            "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        },
    }})))
    .unwrap();
    let (api_version, schema) = ("example.com/v1", kind.version("v1").unwrap().schema());
    let empty = value!({"apiVersion": api_version, "kind": "Widget"});
    let versions = OneVersion { api_version, schema, reset_fields: FieldSet::of_fields(&["status"]), empty };
    let by =
        |manager| apply::Write { versions: &versions, api_version, kind: "Widget", subresource: "", manager, now: NOW };
    let template = value!({"apiVersion": "v1", "kind": "T", "metadata": {"labels": {"x": "y"}}, "spec": {"n": 1}});
    let mut config = widget(value!({"size": 1, "template": template}));
    config.get_mut("metadata").and_then(Value::as_object_mut).unwrap().insert("labels", value!({"a": "b"}));
    config.get_mut("metadata").and_then(Value::as_object_mut).unwrap().insert("finalizers", value!(["f/f"]));
    let applied = by("one").apply(None, &config, false).unwrap().object;
    let owned = value!({
        "f:metadata": {"f:finalizers": {"v:\"f/f\"": {}}, "f:labels": {"f:a": {}}},
        "f:spec": {"f:size": {}, "f:template": {
            "f:apiVersion": {}, "f:kind": {}, "f:metadata": {"f:labels": {"f:x": {}}}, "f:spec": {"f:n": {}},
        }},
    });
    assert_eq!(applied["metadata"]["managedFields"][0]["fieldsV1"], owned);

    let conflict = by("two").apply(Some(&applied), &widget(value!({"size": 2})), false).unwrap_err();
    assert_eq!(conflict.to_string(), "Apply failed with 1 conflict: conflict with \"one\": .spec.size");
    let unknown = by("two").apply(Some(&applied), &widget(value!({"unknown": 2})), false).unwrap_err();
    assert!(unknown.to_string().contains(".spec.unknown: field not declared in schema"), "{unknown}");

    let updated = by("three").update_or_keep(Some(&applied), widget(value!({"size": 3})));
    let entries = updated["metadata"]["managedFields"].as_array().unwrap();
    let three = entries.iter().find(|entry| entry["manager"].as_str() == Some("three")).unwrap();
    assert_eq!(three["fieldsV1"], value!({"f:spec": {"f:size": {}}}));
}

fn embedding() -> Value {
    let template = value!({
        "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
    });
    value!({"type": "object", "properties": {
        "template": (template.clone()),
        "list": {"type": "array", "items": (template.clone())},
        "map": {"type": "object", "additionalProperties": (template.clone())},
    }})
}

#[test]
fn embedded_metadata_is_decoded_like_object_metadata() {
    let kind = kind_of(&crd(embedding())).unwrap();
    let decoded = |mut object: Value| {
        let unknown = custom_decode::decode(&mut object, kind.version("v1").unwrap().schema());
        unknown.map(|unknown| (object, unknown)).map_err(|error| error.to_string())
    };
    let template = value!({"apiVersion": "v1", "kind": "T", "metadata": {"labels": {"a": "b"}, "x": 1}, "any": 1});
    let mut object = widget(value!({
        "list": [(template.clone())], "map": {"k": (template.clone())}, "template": (template.clone()), "y": 1,
    }));
    object.get_mut("metadata").and_then(Value::as_object_mut).unwrap().insert("z", 1);
    let (retained, unknown) = decoded(object).unwrap();
    let paths =
        ["metadata.z", "spec.y", "spec.list[0].metadata.x", "spec.map[k].metadata.x", "spec.template.metadata.x"];
    assert_eq!(unknown, paths);
    let pure = value!({"apiVersion": "v1", "kind": "T", "metadata": {"labels": {"a": "b"}}, "any": 1});
    assert_eq!(
        retained,
        widget(value!({"list": [(pure.clone())], "map": {"k": (pure.clone())}, "template": (pure.clone())}))
    );

    let mut labels = widget(value!({}));
    labels.get_mut("metadata").and_then(Value::as_object_mut).unwrap().insert("labels", value!({"a": 1}));
    let wrong = "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string";
    assert_eq!(decoded(labels).unwrap_err(), wrong);
    let inner = decoded(widget(value!({"template": {"metadata": {"labels": {"a": 1}}}}))).unwrap_err();
    assert_eq!(inner, format!("spec.template.metadata: Invalid value: {{\"labels\":{{\"a\":1}}}}: {wrong}"));
    let version = decoded(widget(value!({"template": {"apiVersion": 1}}))).unwrap_err();
    assert_eq!(version, "spec.template.apiVersion: Invalid value: 1: must be a string");
}

#[test]
fn embedded_resources_require_api_version_and_kind() {
    let check = |spec: Value, expect: &[&str]| check(embedding(), spec, None, expect);
    check(value!({"template": {"apiVersion": "v1", "kind": "T"}}), &[]);
    check(value!({"template": {"apiVersion": "v1", "kind": "T", "metadata": {"labels": {"a": "b"}}}}), &[]);
    check(
        value!({"template": {}}),
        &[
            "spec.template.apiVersion: Required value: must not be empty",
            "spec.template.kind: Required value: must not be empty",
        ],
    );
    check(
        value!({"list": [{"apiVersion": "a/b/c", "kind": "T"}]}),
        &["spec.list[0].apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c"],
    );
    check(
        value!({"map": {"k": {"apiVersion": "v1", "kind": "T", "metadata": {"namespace": "-"}}}}),
        &[concat!(
            "spec.map[k].metadata.namespace: Invalid value: \"-\": a lowercase RFC 1123 label must consist of lower case ",
            "alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or ",
            "'123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        )],
    );
}
