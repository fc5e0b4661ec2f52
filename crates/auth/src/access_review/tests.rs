//! Tests of access reviews: parsing, validation, status and webhook reviews.

use apimachinery::value;

use super::*;
use crate::{Attributes, Target, User};

fn me() -> User {
    User::authenticated("me", ["devs".into()])
}

fn error_messages(kind: Kind, review: &Value) -> Vec<String> {
    validate(kind, review).iter().map(ToString::to_string).collect()
}

#[test]
fn review_becomes_the_attributes_of_its_subject() {
    let spec = value!({
        "user": "jane", "groups": ["a"], "uid": "u", "extra": {"k": ["v"]},
        "resourceAttributes": {"namespace": "ns", "verb": "get", "resource": "pods", "subresource": "log", "name": "x", "group": "g"},
    });
    let review = read(Kind::Subject, &value!({"spec": spec}), &me()).unwrap();
    let jane =
        User { name: "jane".into(), uid: "u".into(), groups: vec!["a".into()], ..User::default() }.with_extra("k", "v");
    let resource = OwnedResource {
        group: "g".into(),
        version: "*".into(),
        resource: "pods".into(),
        subresource: "log".into(),
        namespace: "ns".into(),
        name: "x".into(),
        ..OwnedResource::default()
    };
    let question = OwnedAttributes { user: jane, verb: "get".into(), about: OwnedTarget::Resource(resource) };
    assert_eq!(review, Review { question, ignored: vec![] });

    let own =
        read(Kind::SelfSubject, &value!({"spec": {"nonResourceAttributes": {"path": "/x", "verb": "get"}}}), &me())
            .unwrap();
    assert_eq!(own.question, OwnedAttributes { user: me(), verb: "get".into(), about: OwnedTarget::Path("/x".into()) });
}

#[test]
fn invalid_reviews_are_rejected_with_upstreams_messages() {
    let check = |kind, review: Value, expect: &[&str]| assert_eq!(error_messages(kind, &review), expect);
    let neither = "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified";
    let nobody = "spec.user: Invalid value: \"\": at least one of user or group must be specified";
    check(Kind::Subject, value!({"spec": {}}), &[neither, nobody]);
    check(Kind::SelfSubject, value!({}), &[neither]);
    check(
        Kind::SelfSubject,
        value!({"spec": {"resourceAttributes": {}, "nonResourceAttributes": {"path": "/x"}}}),
        &[
            r#"spec.nonResourceAttributes: Invalid value: {"path":"/x"}: cannot be specified in combination with resourceAttributes"#,
        ],
    );
    check(
        Kind::Subject,
        value!({"metadata": {"name": "x", "managedFields": [1]}, "spec": {"groups": ["a"], "resourceAttributes": {}}}),
        &[r#"metadata: Invalid value: {"managedFields":[1],"name":"x"}: must be empty"#],
    );
    check(
        Kind::LocalSubject,
        value!({"metadata": {"namespace": "a"}, "spec": {"user": "u", "resourceAttributes": {"namespace": "b"}}}),
        &[r#"spec.resourceAttributes.namespace: Invalid value: "b": must match metadata.namespace"#],
    );
    check(
        Kind::LocalSubject,
        value!({"metadata": {"namespace": "a"}, "spec": {"user": "u", "nonResourceAttributes": {"path": "/"}}}),
        &[r#"spec.nonResourceAttributes: Invalid value: {"path":"/"}: disallowed on this kind of request"#],
    );
}

#[test]
fn selectors_are_validated_and_unknown_operators_accepted() {
    let check = |selectors: Value, expect: &[&str]| {
        let expect: Vec<_> = expect.iter().map(|error| format!("spec.resourceAttributes.{error}")).collect();
        assert_eq!(error_messages(Kind::SelfSubject, &value!({"spec": {"resourceAttributes": selectors}})), expect);
    };
    check(
        value!({"fieldSelector": {}}),
        &[
            "fieldSelector.requirements: Required value: when spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is required",
        ],
    );
    check(
        value!({"labelSelector": {"rawSelector": "a=b", "requirements": [{"key": "a", "operator": "Exists"}]}}),
        &[r#"labelSelector.rawSelector: Invalid value: "a=b": may not specified at the same time as requirements"#],
    );
    check(
        value!({"fieldSelector": {"requirements": [{"operator": "In"}, {"key": "a", "operator": "Exists", "values": ["b"]}]}}),
        &[
            "fieldSelector.requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            "fieldSelector.requirements[0].key: Required value: must be specified",
            "fieldSelector.requirements[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ],
    );
    check(value!({"labelSelector": {"requirements": [{"key": "a", "operator": "Newer", "values": ["b"]}]}}), &[]);
}

#[test]
fn uninterpretable_requirements_are_omitted_and_reported() {
    let check = |field: Value, label: Value, fields: &str, labels: &str, ignored: &[&str]| {
        let review = value!({"spec": {"resourceAttributes": {"fieldSelector": field, "labelSelector": label}}});
        let read = read(Kind::SelfSubject, &review, &me()).unwrap();
        let OwnedTarget::Resource(resource) = &read.question.about else { panic!("a resource") };
        let requirements: Vec<_> =
            resource.field_selector.iter().map(|one| format!("{}{:?}{}", one.field, one.operator, one.value)).collect();
        assert_eq!(requirements.join(","), fields);
        let requirements: Vec<_> = resource.label_selector.iter().map(ToString::to_string).collect();
        assert_eq!(requirements.join(","), labels);
        let ignored: Vec<_> =
            ignored.iter().map(|what| format!("spec.resourceAttributes.{what} due to parse error")).collect();
        assert_eq!(read.ignored, ignored);
    };
    check(
        value!({"rawSelector": "a=b,c!=d"}),
        value!({"rawSelector": "x in (y)"}),
        "aEqualsb,cNotEqualsd",
        "x in (y)",
        &[],
    );
    check(
        value!({"rawSelector": "a"}),
        value!({"rawSelector": "("}),
        "",
        "",
        &["fieldSelector ignored", "labelSelector ignored"],
    );
    let two = |operator: &str| value!({"requirements": [{"key": "a", "operator": "In", "values": ["b"]}, {"key": "c", "operator": operator, "values": ["d"]}]});
    check(two("NotIn"), two("NotIn"), "aEqualsb,cNotEqualsd", "a in (b),c notin (d)", &[]);
    check(
        two("Newer"),
        two("Newer"),
        "aEqualsb",
        "a in (b)",
        &["fieldSelector partially ignored", "labelSelector partially ignored"],
    );
}

#[test]
fn status_reports_the_decision() {
    let review = |ignored: &[&'static str]| {
        let question = OwnedAttributes { user: me(), verb: "get".into(), about: OwnedTarget::Path("/".into()) };
        Review { question, ignored: ignored.to_vec() }
    };
    let check = |decision: Decision, ignored: &[&'static str], expect: Value| {
        assert_eq!(status(&review(ignored), &decision), expect);
    };
    check(Decision::Allow("why".into()), &[], value!({"allowed": true, "reason": "why"}));
    check(Decision::NoOpinion(String::new()), &[], value!({"allowed": false}));
    check(
        Decision::Deny("no".into()),
        &["a", "b"],
        value!({"allowed": false, "denied": true, "reason": "no", "evaluationError": "a; b"}),
    );
}

#[test]
fn webhook_review_round_trips_the_attributes() {
    let spec = value!({
        "user": "jane", "groups": ["a"],
        "resourceAttributes": {
            "namespace": "ns", "verb": "list", "resource": "pods", "version": "v1",
            "fieldSelector": {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n"]}]},
            "labelSelector": {"requirements": [{"key": "app", "operator": "NotIn", "values": ["x"]}]},
        },
    });
    let question = read(Kind::Subject, &value!({"spec": (spec.clone())}), &me()).unwrap().question;
    let sent = webhook::request(&question.attributes(), webhook::Version::V1);
    assert_eq!(sent["spec"], spec);
    assert_eq!(read(Kind::Subject, &sent, &me()).unwrap().question, question);
    let old = webhook::request(&question.attributes(), webhook::Version::V1beta1);
    assert_eq!((&old["spec"]["group"], &old["spec"]["groups"]), (&value!(["a"]), &Value::Null));
    let path = Attributes { user: &me(), verb: "get", target: Target::Path("/x") };
    let sent = webhook::request(&path, webhook::Version::V1);
    assert_eq!(sent["spec"]["nonResourceAttributes"], value!({"path": "/x", "verb": "get"}));
}

#[test]
fn webhook_response_becomes_the_decision() {
    let check = |status: Value, expect: Result<Decision, webhook::Error>| {
        assert_eq!(webhook::decision(&value!({"kind": "SubjectAccessReview", "status": status})), expect);
    };
    check(value!({"allowed": true, "reason": "r"}), Ok(Decision::Allow("r".into())));
    check(value!({"denied": true}), Ok(Decision::Deny(String::new())));
    check(value!({}), Ok(Decision::NoOpinion(String::new())));
    check(value!({"allowed": true, "denied": true}), Err(webhook::Error::Both));
    assert_eq!(webhook::decision(&value!({"kind": "Status", "status": "Failure"})), Err(webhook::Error::Kind));
}
