use apimachinery::time::Time;
use apimachinery::value;

use super::*;
use crate::kind::{Requester, Version};

const NOW: Time = Time::from_unix(1_700_000_000, 0);

fn crd() -> Value {
    value!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": "Widget", "plural": "widgets", "shortNames": ["wd"]},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {
                        "type": "object",
                        "properties": {
                            "size": {"type": "integer"},
                            "color": {"type": "string"},
                            "parts": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
                        },
                        "x-kubernetes-validations": [{"rule": "self.size < 9"}],
                    },
                    "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
                }}},
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.replicas"},
                },
            }],
        },
    })
}

fn with_context<T>(subresource: &str, run: impl FnOnce(&Context<'_>) -> T) -> T {
    let version = Version::built_in("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let requester = Requester::default();
    run(&Context { version: &version, subresource, now: NOW, requester: &requester })
}

/// Returns the value at a path of keys and indexes.
fn at<'v>(value: &'v mut Value, path: &str) -> &'v mut Value {
    path.split('.').fold(value, |value, step| match value {
        Value::Array(items) => &mut items[step.parse::<usize>().unwrap()],
        Value::Object(fields) => fields.get_or_insert_with(step, || Value::Null),
        other => panic!("{step} of {other:?}"),
    })
}

fn findings(object: &mut Value) -> Vec<String> {
    CustomResourceDefinition.default(object, "v1");
    with_context("", |context| {
        CustomResourceDefinition.prepare_create(object, context);
        let mut errors = Errors::new();
        CustomResourceDefinition.validate(object, context, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    })
}

fn check(path: &str, value: Value, expect: &[&str]) {
    let mut object = crd();
    *at(&mut object, path) = value;
    assert_eq!(findings(&mut object), expect, "{path}");
}

#[test]
fn valid_crd_is_defaulted_and_accepted() {
    let mut object = crd();
    assert_eq!(findings(&mut object), [""; 0]);
    assert_eq!(object["spec"]["names"]["singular"], value!("widget"));
    assert_eq!(object["spec"]["names"]["listKind"], value!("WidgetList"));
    assert_eq!(object["spec"]["conversion"], value!({"strategy": "None"}));
    assert_eq!(
        object["status"],
        value!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": ["v1"]})
    );
    assert_eq!(Meta::of(&object).generation(), 1);
}

#[test]
fn crd_names_are_validated() {
    check(
        "metadata.name",
        value!("x"),
        &[r#"metadata.name: Invalid value: "x": must be spec.names.plural+"."+spec.group"#],
    );
    check(
        "spec.names.listKind",
        value!("Widget"),
        &[r#"spec.names.listKind: Invalid value: "Widget": kind and listKind may not be the same"#],
    );
    check(
        "spec.scope",
        value!("Somewhere"),
        &[r#"spec.scope: Unsupported value: "Somewhere": supported values: "Cluster", "Namespaced""#],
    );
}

#[test]
fn shared_version_fields_are_reported_once() {
    check(
        "spec.versions.0.schema.openAPIV3Schema.properties.spec.type",
        value!("word"),
        &[
            r#"spec.validation.openAPIV3Schema.properties[spec].type: Unsupported value: "word": supported values: "array", "boolean", "integer", "number", "object", "string""#,
        ],
    );
    let mut object = crd();
    let mut second = object["spec"]["versions"][0].clone();
    *at(&mut second, "name") = value!("v2");
    *at(&mut second, "storage") = value!(false);
    *at(&mut second, "subresources.scale.specReplicasPath") = value!(".status.size");
    at(&mut object, "spec.versions").as_array_mut().unwrap().push(second);
    assert_eq!(
        findings(&mut object),
        [
            r#"spec.versions[1].subresources.scale.specReplicasPath: Invalid value: ".status.size": should be a json path under .spec"#
        ]
    );
}

#[test]
fn cel_rules_must_compile_within_cost_limits() {
    let rules = "spec.versions.0.schema.openAPIV3Schema.properties.spec.x-kubernetes-validations";
    let path = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0]";
    let go = |rule: &str| {
        format!(
            r#"{{"Rule":"{rule}","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}}"#
        )
    };
    check(
        rules,
        value!([{"rule": "self.size"}]),
        &[&format!("{path}.rule: Invalid value: {}: cel expression must evaluate to a bool", go("self.size"))],
    );
    check(
        rules,
        value!([{"rule": "self.nothing == 1"}]),
        &[&format!(
            "{path}.rule: Invalid value: {}: compilation failed: ERROR: <input>:1:5: undefined field 'nothing'\n | self.nothing == 1\n | ....^",
            go("self.nothing == 1")
        )],
    );
    check(
        rules,
        value!([{"rule": "self.parts.all(a, self.parts.all(b, self.parts.all(c, a.n + b.n > c.n)))"}]),
        &[
            &format!(
                "{path}.rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
            ),
            &format!(
                "{path}.rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
            ),
            "spec.validation.openAPIV3Schema: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)",
        ],
    );
    check(
        rules,
        value!([{"rule": "self.size < 9", "optionalOldSelf": true, "fieldPath": ".size"}]),
        &[&format!("{path}.optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule")],
    );
    check(
        rules,
        value!([{"rule": "self.size < 9", "fieldPath": ".nothing"}]),
        &[&format!(r#"{path}.fieldPath: Invalid value: ".nothing": must be a valid path"#)],
    );
    check(
        "spec.versions.0.schema.openAPIV3Schema.properties.spec.properties.parts.items.x-kubernetes-validations",
        value!([{"rule": "self.n >= oldSelf.n"}]),
        &[
            r#"spec.validation.openAPIV3Schema.properties[spec].properties[parts].items.x-kubernetes-validations[0].rule: Invalid value: "self.n >= oldSelf.n": oldSelf cannot be used on the uncorrelatable portion of the schema within spec.validation.openAPIV3Schema.properties[spec].properties[parts]"#,
        ],
    );
}

#[test]
fn conversion_webhook_needs_one_target_and_a_known_review_version() {
    check(
        "spec.conversion",
        value!({"strategy": "Webhook", "webhook": {"clientConfig": {"url": "http://u@h/p?q#f"}, "conversionReviewVersions": ["v9"]}}),
        &[
            r#"spec.conversion.webhookClientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]"#,
            r#"spec.conversion.webhookClientConfig.url: Invalid value: "u": user information is not permitted in the URL"#,
            r#"spec.conversion.webhookClientConfig.url: Invalid value: "f": fragments are not permitted in the URL"#,
            r#"spec.conversion.webhookClientConfig.url: Invalid value: "q": query parameters are not permitted in the URL"#,
            r#"spec.conversion.conversionReviewVersions: Invalid value: ["v9"]: must include at least one of v1, v1beta1"#,
        ],
    );
    check(
        "spec.conversion",
        value!({"strategy": "None", "webhook": {"clientConfig": {}, "conversionReviewVersions": ["v1"]}}),
        &[
            "spec.conversion.webhookClientConfig: Forbidden: should not be set when strategy is not set to Webhook",
            "spec.conversion.conversionReviewVersions: Forbidden: should not be set when strategy is not set to Webhook",
        ],
    );
}

#[test]
fn established_crd_scope_and_kind_are_immutable() {
    let mut old = crd();
    findings(&mut old);
    let status = conditions(&old, [&old], NOW).unwrap();
    old.as_object_mut().unwrap().insert("status", status);
    assert!(is_established(&old));
    let mut new = old.clone();
    *at(&mut new, "spec.scope") = value!("Cluster");
    *at(&mut new, "spec.names.kind") = value!("Gadget");
    let errors = with_context("", |context| {
        CustomResourceDefinition.prepare_update(&mut new, &old, context);
        let mut errors = Errors::new();
        CustomResourceDefinition.validate_update(&new, &old, context, &mut errors);
        errors
    });
    assert_eq!(Meta::of(&new).generation(), 2);
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            r#"spec.scope: Invalid value: "Cluster": field is immutable"#,
            r#"spec.names.kind: Invalid value: "Gadget": field is immutable"#,
        ]
    );
}

#[test]
fn stored_version_cannot_be_removed() {
    let mut object = crd();
    findings(&mut object);
    *at(&mut object, "status.storedVersions") = value!(["v1beta1", "v1"]);
    let mut errors = Errors::new();
    validate_stored_versions(&At::root(&object), &mut errors);
    assert_eq!(errors.len(), 1);
    assert!(
        errors[0]
            .to_string()
            .starts_with(r#"status.storedVersions[0]: Invalid value: "v1beta1": missing from spec.versions;"#)
    );
}

#[test]
fn names_are_accepted_for_the_first_crd() {
    let mut first = crd();
    findings(&mut first);
    let status = conditions(&first, [&first], NOW).unwrap();
    assert_eq!(
        status["acceptedNames"],
        value!({"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "shortNames": ["wd"], "singular": "widget"})
    );
    first.as_object_mut().unwrap().insert("status", status);
    assert_eq!(conditions(&first, [&first], Time::from_unix(1_800_000_000, 0)), None, "no condition changes");

    let mut second = crd();
    *at(&mut second, "metadata.name") = value!("gadgets.example.com");
    *at(&mut second, "spec.names") = value!({"kind": "Widget", "plural": "gadgets", "shortNames": ["wd"]});
    findings(&mut second);
    let status = conditions(&second, [&first, &second], NOW).unwrap();
    let condition = |name: &str| {
        let all = status["conditions"].as_array().unwrap();
        let one = all.iter().find(|one| one["type"] == value!(name)).unwrap();
        format!(
            "{} {} {}",
            one["status"].as_str().unwrap(),
            one["reason"].as_str().unwrap(),
            one["message"].as_str().unwrap()
        )
    };
    assert_eq!(condition("NamesAccepted"), r#"False ListKindConflict "WidgetList" is already in use"#);
    assert_eq!(condition("Established"), "False NotAccepted not all names are accepted");
    assert_eq!(status["acceptedNames"], value!({"kind": "", "plural": "gadgets"}), "the rest is taken");
}

#[test]
fn crd_deletion_waits_for_custom_resources() {
    let mut object = crd();
    findings(&mut object);
    CustomResourceDefinition.prepare_delete(&mut object, NOW);
    assert_eq!(Meta::of(&object).finalizers().collect::<Vec<_>>(), [CLEANUP_FINALIZER]);
    assert_eq!(object["status"]["conditions"][0]["reason"], value!("InstanceDeletionPending"));
}

#[test]
fn unsupported_formats_produce_warnings() {
    let mut object = crd();
    let spec = "spec.versions.0.schema.openAPIV3Schema.properties.spec.properties";
    *at(&mut object, &format!("{spec}.color.format")) = value!("rainbow");
    *at(&mut object, &format!("{spec}.size.format")) = value!("int32");
    let warnings = with_context("", |context| CustomResourceDefinition.warnings(&object, None, context));
    assert_eq!(warnings, [r#"unrecognized format "rainbow""#]);
}

#[test]
fn status_write_changes_only_status() {
    let mut old = crd();
    findings(&mut old);
    let mut new = old.clone();
    *at(&mut new, "spec.scope") = value!("Cluster");
    *at(&mut new, "metadata.labels") = value!({"a": "b"});
    *at(&mut new, "status.storedVersions") = value!(["v1", "v0"]);
    with_context("status", |context| CustomResourceDefinition.prepare_update(&mut new, &old, context));
    assert_eq!((&new["spec"], &new["metadata"]), (&old["spec"], &old["metadata"]));
    assert_eq!(new["status"]["storedVersions"], value!(["v1", "v0"]));
}

#[test]
fn protected_groups_require_approval() {
    let mut object = crd();
    *at(&mut object, "spec.group") = value!("x.k8s.io");
    *at(&mut object, "metadata.name") = value!("widgets.x.k8s.io");
    assert_eq!(
        findings(&mut object),
        [
            r#"metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111"#
        ]
    );
    *at(&mut object, "metadata.annotations") = value!({"api-approved.kubernetes.io": "https://example.com/1"});
    assert_eq!(findings(&mut object), [""; 0]);
}

/// Collects the paths of all nodes of a tree.
fn places(value: &Value, here: &mut Vec<String>, out: &mut Vec<Vec<String>>) {
    out.push(here.clone());
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(object) => object.iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect(),
        _ => Vec::new(),
    };
    for (step, value) in inner {
        here.push(step);
        places(value, here, out);
        here.pop();
    }
}

#[test]
fn malformed_crds_do_not_panic() {
    let mut all = Vec::new();
    places(&crd(), &mut Vec::new(), &mut all);
    let values = [
        Value::Null,
        value!({}),
        value!([]),
        value!([{}]),
        value!([null]),
        value!(""),
        value!("*("),
        value!(true),
        value!(-1),
        value!(9_223_372_036_854_775_807_i64),
        value!(1.5),
    ];
    for path in all.iter().filter(|path| !path.is_empty()) {
        for word in &values {
            let mut object = crd();
            *at(&mut object, &path.join(".")) = word.clone();
            findings(&mut object);
            let _ = conditions(&object, [&object], NOW);
            let _ = crate::apiextensions::custom_resource::kind_of(&object);
        }
    }
}
