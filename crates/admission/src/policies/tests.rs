use apimachinery::json;

use super::*;
use crate::reinvocation::Reinvocation;
use crate::testing::{Cluster, attributes};
use crate::{Notes, Operation, Plugin};

fn policy(kind: &str, spec: &str) -> (String, String) {
    let policy = format!(r#"{{"metadata":{{"name":"p","uid":"{kind}","resourceVersion":"1"}},"spec":{spec}}}"#);
    let rules = r#""matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["*"],"resources":["configmaps"]}]}"#;
    (
        policy.replace("MATCH", rules),
        r#"{"metadata":{"name":"b"},"spec":{"policyName":"p","validationActions":["Deny"]}}"#.to_owned(),
    )
}

fn validate(spec: &str, binding: Option<&str>, object: &str) -> (Result<(), String>, Notes) {
    let (policy, bound) = policy("v", spec);
    let cluster = Cluster::default()
        .with("", "namespaces", r#"{"metadata":{"name":"n","labels":{"team":"a"}}}"#)
        .with("", "configmaps", r#"{"metadata":{"name":"limits","namespace":"n"},"data":{"max":"2"}}"#)
        .with(GROUP, "validatingadmissionpolicies", &policy)
        .with(GROUP, "validatingadmissionpolicybindings", binding.unwrap_or(&bound));
    let (kind, user) = (api::core::config_map::kind(), auth::User::authenticated("eve", []));
    let object = json::parse(object.as_bytes()).unwrap();
    let mut notes = Notes::default();
    let plugin = ValidatingAdmissionPolicy::default();
    let verdict = plugin.validate(&attributes(&kind, &user, Operation::Create), &object, &cluster, &mut notes);
    (verdict.map_err(|status| format!("{} {}", status.code, status.message)), notes)
}

fn check(spec: &str, object: &str, expect: Result<(), &str>) {
    let (verdict, _) = validate(spec, None, object);
    let start = "configmaps \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ";
    assert_eq!(verdict.map_err(|text| text.replacen(start, "", 1)), expect.map_err(str::to_owned), "{spec}");
}

const MAP: &str =
    r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"n"},"data":{"a":"1","b":"2"}}"#;

#[test]
fn false_validation_rejects_with_its_message() {
    check(r#"{MATCH,"validations":[{"expression":"size(object.data) < 3"}]}"#, MAP, Ok(()));
    let failed = "422 failed expression: size(object.data) < 2";
    check(r#"{MATCH,"validations":[{"expression":"size(object.data) < 2"}]}"#, MAP, Err(failed));
    check(
        r#"{MATCH,"variables":[{"name":"n","expression":"size(object.data)"}],
            "validations":[{"expression":"variables.n < 2","messageExpression":"'has ' + string(variables.n)","reason":"Forbidden"}]}"#,
        MAP,
        Err("403 has 2"),
    );
    check(
        r#"{MATCH,"validations":[{"expression":"request.userInfo.username == 'eve' && oldObject == null"}]}"#,
        MAP,
        Ok(()),
    );
    check(
        r#"{MATCH,"validations":[{"expression":"namespaceObject.metadata.labels.team == 'b'","message":"no"}]}"#,
        MAP,
        Err("422 no"),
    );
    check(
        r#"{MATCH,"validations":[{"expression":"authorizer.group('').resource('pods').check('get').allowed()","message":"no"}]}"#,
        MAP,
        Err("422 no"),
    );
}

#[test]
fn evaluation_errors_follow_the_failure_policy() {
    let wrong = "422 expression 'object.nope' resulted in error: no such key: nope";
    check(r#"{MATCH,"validations":[{"expression":"object.nope"}]}"#, MAP, Err(wrong));
    check(r#"{MATCH,"failurePolicy":"Ignore","validations":[{"expression":"object.nope"}]}"#, MAP, Ok(()));
}

#[test]
fn match_conditions_and_selectors_skip_a_policy() {
    let no = r#""validations":[{"expression":"false"}]"#;
    check(
        &format!(r#"{{MATCH,"matchConditions":[{{"name":"c","expression":"object.metadata.name == 'y'"}}],{no}}}"#),
        MAP,
        Ok(()),
    );
    let other = r#""matchConstraints":{"namespaceSelector":{"matchLabels":{"team":"b"}},"resourceRules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["CREATE"],"resources":["*"]}]}"#;
    check(&format!("{{{other},{no}}}"), MAP, Ok(()));
    check(&format!("{{{},{no}}}", other.replace(r#""b""#, r#""a""#)), MAP, Err("422 failed expression: false"));
}

#[test]
fn missing_params_follow_parameter_not_found_action() {
    let spec = r#"{MATCH,"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},
        "validations":[{"expression":"size(object.data) < int(params.data.max)"}]}"#;
    let bound = |name: &str| {
        format!(
            r#"{{"metadata":{{"name":"b"}},"spec":{{"policyName":"p","validationActions":["Deny"],
            "paramRef":{{"name":"{name}","parameterNotFoundAction":"Deny"}}}}}}"#
        )
    };
    assert!(validate(spec, Some(&bound("limits")), MAP).0.unwrap_err().contains("failed expression"));
    let missing = validate(spec, Some(&bound("nope")), MAP).0.unwrap_err();
    assert!(missing.ends_with("no params found for policy binding with `Deny` parameterNotFoundAction"), "{missing}");
}

#[test]
fn binding_can_warn_and_add_audit_annotations() {
    let spec = r#"{MATCH,"validations":[{"expression":"false","message":"no"}],
        "auditAnnotations":[{"key":"k","valueExpression":"'name ' + object.metadata.name"}]}"#;
    let warn = r#"{"metadata":{"name":"b"},"spec":{"policyName":"p","validationActions":["Warn"]}}"#;
    let (verdict, notes) = validate(spec, Some(warn), MAP);
    assert_eq!(verdict, Ok(()));
    assert_eq!(notes.warnings, ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': no"]);
    assert_eq!(notes.audit, [("p/k".to_owned(), "name x".to_owned())]);
}

#[test]
fn mutations_apply_objects_and_patches_in_order() {
    let (policy, bound) = policy(
        "m",
        r#"{MATCH,"mutations":[
            {"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{metadata: Object.metadata{labels: {\"l\": string(size(object.data))}}}"}},
            {"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: \"add\", path: \"/data/c\", value: object.metadata.labels.l}]"}}]}"#,
    );
    let cluster = Cluster::default()
        .with("", "namespaces", r#"{"metadata":{"name":"n"}}"#)
        .with(GROUP, "mutatingadmissionpolicies", &policy)
        .with(GROUP, "mutatingadmissionpolicybindings", &bound);
    let (kind, user) = (api::core::config_map::kind(), auth::User::default());
    let mut object = json::parse(MAP.as_bytes()).unwrap();
    let plugin = MutatingAdmissionPolicy::default();
    let attributes = attributes(&kind, &user, Operation::Create);
    let (mut notes, mut round) = (Notes::default(), Reinvocation::default());
    plugin.admit_round(&attributes, &mut object, &cluster, &mut notes, &mut round).unwrap();
    assert_eq!(Meta::of(&object).label("l"), Some("2"));
    assert_eq!(object.str_at(&["data", "c"]), Some("2"));
}
