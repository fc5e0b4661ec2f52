use apimachinery::{json, value};
use auth::User;

use super::*;
use crate::Operation;
use crate::testing::{Cluster, attributes};

fn hook(entry: &str) -> Hook {
    let entry = json::parse(entry.as_bytes()).unwrap();
    let configuration = value!({"metadata": {"name": "conf"}, "webhooks": [entry]});
    Hook::all(&configuration).remove(0)
}

const POD_RULE: &str = r#""rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "CONNECT"], "resources": ["pods", "pods/exec"]}]"#;

#[test]
fn rules_and_selectors_match_requests_to_webhooks() {
    let kind = api::core::pod::kind();
    let user = User::anonymous();
    let cluster = Cluster::default().with("", "namespaces", r#"{"metadata": {"name": "n", "labels": {"a": "b"}}}"#);
    let object = value!({"metadata": {"name": "x", "labels": {"app": "web"}}});
    let check = |more: &str, operation: Operation, subresource: &str, expect: Result<bool, u16>| {
        let mut request = attributes(&kind, &user, operation);
        request.subresource = subresource;
        let hook = hook(&format!("{{{POD_RULE}{more}}}"));
        let found = hook.selects(&request, &object, &cluster);
        assert_eq!(found.map(|version| version.is_some()).map_err(|status| status.code), expect, "{more}");
    };
    check("", Operation::Create, "", Ok(true));
    check("", Operation::Update, "", Ok(false));
    check("", Operation::Connect, "exec", Ok(true));
    check("", Operation::Create, "status", Ok(false));
    check(r#", "objectSelector": {"matchLabels": {"app": "web"}}"#, Operation::Create, "", Ok(true));
    check(r#", "objectSelector": {"matchLabels": {"app": "db"}}"#, Operation::Create, "", Ok(false));
    check(r#", "namespaceSelector": {"matchLabels": {"a": "b"}}"#, Operation::Create, "", Ok(true));
    check(r#", "namespaceSelector": {"matchLabels": {"a": "c"}}"#, Operation::Create, "", Ok(false));
    check(r#", "namespaceSelector": {}"#, Operation::Create, "", Ok(true));
    let nowhere = hook(&format!(r#"{{{POD_RULE}, "namespaceSelector": {{"matchLabels": {{"a": "b"}}}}}}"#));
    let missing = nowhere.selects(&attributes(&kind, &user, Operation::Create), &object, &Cluster::default());
    assert_eq!(missing.unwrap_err().code, 404);
    let unconcerned = nowhere.selects(&attributes(&kind, &user, Operation::Update), &object, &Cluster::default());
    assert!(unconcerned.unwrap().is_none());
}

#[test]
fn match_policy_equivalent_converts_to_the_rules_version() {
    let kind = api::autoscaling::horizontal_pod_autoscaler::kind();
    let user = User::anonymous();
    let check = |policy: &str, requested_version: &str, expect: Option<&str>| {
        let mut request = attributes(&kind, &user, Operation::Create);
        request.version = kind.version(requested_version).unwrap();
        let hook = hook(&format!(
            r#"{{"matchPolicy": "{policy}", "rules": [{{"apiGroups": ["autoscaling"], "apiVersions": ["v1"],
                "operations": ["*"], "resources": ["*"]}}]}}"#
        ));
        let found = hook.selects(&request, &Value::Null, &Cluster::default()).unwrap();
        assert_eq!(found.map(|seen| seen.version.name.as_str()), expect);
    };
    check("Equivalent", "v2", Some("v1"));
    check("Exact", "v2", None);
    check("Exact", "v1", Some("v1"));
}

#[test]
fn events_of_both_groups_are_equivalent() {
    let (core, newer) = (api::core::event::kind(), api::events::event::kind());
    let user = User::anonymous();
    let check = |kind: &api::kind::Kind, group: &str, policy: &str, expect: Option<&str>| {
        let hook = hook(&format!(
            r#"{{"matchPolicy": "{policy}", "rules": [{{"apiGroups": ["{group}"], "apiVersions": ["v1"],
                "operations": ["*"], "resources": ["events"]}}]}}"#
        ));
        let request = attributes(kind, &user, Operation::Create);
        let found = hook.selects(&request, &Value::Null, &Cluster::default()).unwrap();
        assert_eq!(found.map(|seen| seen.kind.group.as_str()), expect);
    };
    check(&core, "events.k8s.io", "Equivalent", Some("events.k8s.io"));
    check(&core, "events.k8s.io", "Exact", None);
    check(&newer, "", "Equivalent", Some(""));
    check(&newer, "events.k8s.io", "Equivalent", Some("events.k8s.io"));
}

#[test]
fn match_condition_errors_follow_the_failure_policy() {
    let kind = api::core::pod::kind();
    let user = User::authenticated("jane", []);
    let check = |expression: &str, policy: &str, expect: Result<bool, &str>| {
        let request = attributes(&kind, &user, Operation::Create);
        let hook = hook(&format!(
            r#"{{"name": "h", "failurePolicy": "{policy}", "matchConditions": [{{"name": "c", "expression": "{expression}"}}]}}"#
        ));
        let object = value!({"metadata": {"name": "x"}});
        let review = Review::of(&request, request.as_requested(), "u", object, Value::Null);
        let matched = hook.conditions_hold(&request, &review, &Cluster::default());
        assert_eq!(matched.as_ref().map(|matched| *matched).map_err(|status| status.message.as_str()), expect);
    };
    check("request.userInfo.username == 'jane'", "Fail", Ok(true));
    check("object.metadata.name != 'x'", "Fail", Ok(false));
    check("object.nope == 1", "Ignore", Ok(false));
    check(
        "object.nope == 1",
        "Fail",
        Err("pods \"x\" is forbidden: expression 'object.nope == 1' resulted in error: no such key: nope"),
    );
}

#[test]
fn review_contains_all_request_attributes() {
    let kind = api::core::pod::kind();
    let user = User::authenticated("jane", []);
    let options =
        delete_options(&api_registry::options::DeleteOptions { grace_period_seconds: Some(3), ..Default::default() });
    let request = Attributes { options: &options, ..attributes(&kind, &user, Operation::Delete) };
    let old = value!({"metadata": {"name": "x"}});
    let review = Review::of(&request, request.as_requested(), "u", Value::Null, old).to_value(ReviewVersion::V1);
    let expect = value!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
            "requestResource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "x",
            "namespace": "n",
            "operation": "DELETE",
            "userInfo": {"username": "jane", "groups": ["system:authenticated"]},
            "object": null,
            "oldObject": {"metadata": {"name": "x"}},
            "dryRun": false,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 3},
        },
    });
    assert_eq!(review, expect);
}

/// Returns the result of a response to the review with UID `u`: the patch, notes, or a rejection.
fn outcome(phase: Phase, response: &str) -> String {
    let kind = api::core::pod::kind();
    let user = User::anonymous();
    let request = attributes(&kind, &user, Operation::Create);
    let review = Review::of(&request, request.as_requested(), "u", value!({}), Value::Null);
    let hook = hook(r#"{"name": "h.example.com"}"#);
    let reply = json::parse(response.as_bytes()).unwrap();
    let mut notes = Notes::default();
    let read = AdmissionResponse::read(phase, ReviewVersion::V1, &review, &reply);
    let taken = read.and_then(|reply| reply.take(&hook, &mut notes));
    match taken {
        Ok(patch) => format!("patch: {}, {notes:?}", patch.is_some()),
        Err(failure) => {
            let status = hook.apply_failure_policy(failure, phase, (0, 0), &mut notes).unwrap_err();
            format!("{} {}", status.code, status.message)
        }
    }
}

#[test]
fn responses_are_parsed_strictly_and_rejections_use_the_webhooks_message() {
    let check = |phase: Phase, response: &str, expect: &str| {
        let whole =
            format!(r#"{{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {response}}}"#);
        assert_eq!(outcome(phase, &whole), expect);
    };
    let (mutating, validating) = (Phase::Mutating, Phase::Validating);
    let invalid =
        "500 Internal error occurred: failed calling webhook \"h.example.com\": received invalid webhook response: ";
    check(validating, r#"{"uid": "u", "allowed": true}"#, "patch: false, Notes { warnings: [], audit: [] }");
    check(
        validating,
        r#"{"uid": "u", "allowed": true, "warnings": ["w"], "auditAnnotations": {"k": "v"}}"#,
        r#"patch: false, Notes { warnings: ["w"], audit: [("h.example.com/k", "v")] }"#,
    );
    let denied = "400 admission webhook \"h.example.com\" denied the request";
    check(validating, r#"{"uid": "u"}"#, &format!("{denied} without explanation"));
    check(validating, r#"{"uid": "u", "status": {"reason": "Nope"}}"#, &format!("{denied}: Nope"));
    check(
        validating,
        r#"{"uid": "u", "status": {"message": "no cats", "code": 418, "status": "Success"}}"#,
        "418 admission webhook \"h.example.com\" denied the request: no cats",
    );
    check(validating, r#"{"uid": "other"}"#, &format!("{invalid}expected response.uid=\"u\", got \"other\""));
    check(validating, "null", &format!("{invalid}webhook response was absent"));
    let patch = r#""patch": "W3sib3AiOiJyZW1vdmUiLCJwYXRoIjoiL2EifV0=""#;
    check(
        validating,
        &format!(r#"{{"uid": "u", {patch}}}"#),
        &format!("{invalid}validating webhook may not return response.patch"),
    );
    check(
        mutating,
        &format!(r#"{{"uid": "u", "allowed": true, {patch}}}"#),
        &format!("{invalid}webhook returned response.patch but not response.patchType"),
    );
    check(
        mutating,
        &format!(r#"{{"uid": "u", "allowed": true, "patchType": "JSONPatch", {patch}}}"#),
        "patch: true, Notes { warnings: [], audit: [] }",
    );
    assert_eq!(
        outcome(validating, r#"{"response": {"uid": "u", "allowed": true}}"#),
        format!("{invalid}expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=")
    );
}

#[test]
fn dry_run_is_sent_only_to_webhooks_without_side_effects() {
    let kind = api::core::pod::kind();
    let user = User::anonymous();
    let mut request = attributes(&kind, &user, Operation::Create);
    request.dry_run = true;
    let check = |effects: &str, expect: Option<&str>| {
        let hook = hook(&format!(
            r#"{{"name": "h", "sideEffects": "{effects}", "failurePolicy": "Ignore", "admissionReviewVersions": ["v1"]}}"#
        ));
        let failure = hook.review_version(&request).err();
        let error = failure
            .and_then(|it| hook.apply_failure_policy(it, Phase::Validating, (0, 0), &mut Notes::default()).err());
        assert_eq!(error.as_ref().map(|status| status.message.as_str()), expect);
    };
    check("None", None);
    check("NoneOnDryRun", None);
    check("Some", Some("admission webhook \"h\" does not support dry run"));
}
