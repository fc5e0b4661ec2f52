//! Tests of valid and invalid authorization configurations.

use super::*;
use crate::attributes::{Resource, Target};
use crate::{Decision, User};

const WEBHOOK: &str = "timeout: 3s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: Deny
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: /etc/authz.kubeconfig}";

fn parse(authorizers: &str) -> Result<Config, String> {
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n{authorizers}"
    );
    Config::parse(&text).map_err(|error| error.to_string())
}

fn webhook(lines: &str) -> Result<Webhook, String> {
    let mut config = parse(&format!("- type: Webhook\n  name: w\n  webhook:\n    {lines}"))?;
    match config.authorizers.remove(0).kind {
        Kind::Webhook(webhook) => Ok(*webhook),
        other => panic!("a webhook, not {other:?}"),
    }
}

#[test]
fn authorizers_keep_the_order_of_the_file() {
    let config = parse(&format!(
        "- {{type: Webhook, name: first}}\n- {{type: Node, name: node}}\n- {{type: RBAC, name: rbac}}\n- type: Webhook\n  name: last\n  webhook:\n    {WEBHOOK}"
    ));
    assert_eq!(config.unwrap_err(), "authorizers[0].webhook: Required value: required when type=Webhook");
    let config = parse("- {type: Node, name: node}\n- {type: RBAC, name: rbac}\n- {type: ABAC, name: abac}\n- {type: AlwaysDeny, name: nobody}").unwrap();
    let names: Vec<_> = config.authorizers.iter().map(|authorizer| authorizer.name.as_str()).collect();
    assert_eq!(names, ["node", "rbac", "abac", "nobody"]);
    assert!(matches!(config.authorizers[0].kind, Kind::Node));
}

#[test]
fn webhook_has_defaults() {
    let plain = webhook(WEBHOOK).unwrap();
    assert_eq!(plain.authorized_ttl, Some(Duration::from_seconds(300)));
    assert_eq!(plain.unauthorized_ttl, Some(Duration::from_seconds(30)));
    assert_eq!((plain.timeout, plain.version), (Duration::from_seconds(3), Version::V1));
    assert_eq!(plain.connection, Connection::KubeConfigFile("/etc/authz.kubeconfig".into()));
    assert_eq!(plain.failure_policy.decision(), Decision::Deny(String::new()));
    let forgetful =
        webhook(&format!("{WEBHOOK}\n    cacheAuthorizedRequests: false\n    unauthorizedTTL: 1s")).unwrap();
    assert_eq!((forgetful.authorized_ttl, forgetful.unauthorized_ttl), (None, Some(Duration::from_seconds(1))));
}

#[test]
fn invalid_configurations_are_rejected() {
    let check = |authorizers: &str, expect: &str| assert_eq!(parse(authorizers).unwrap_err(), expect, "{authorizers}");
    check("  []", "authorizers: Required value: at least one authorization mode must be defined");
    check("- {name: a}", "authorizers[0].type: Required value");
    check(
        "- {type: Foo, name: a}",
        r#"authorizers[0].type: Unsupported value: "Foo": supported values: "ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook""#,
    );
    check("- {type: RBAC, name: a}\n- {type: RBAC, name: b}", r#"authorizers[1].type: Duplicate value: "RBAC""#);
    check("- {type: RBAC, name: a}\n- {type: Node, name: a}", r#"authorizers[1].name: Duplicate value: "a""#);
    check("- {type: RBAC}", "authorizers[0].name: Required value");
    assert!(
        parse("- {type: RBAC, name: A_}").unwrap_err().starts_with(
            r#"authorizers[0].name: Invalid value: "A_": authorizer name is invalid: a lowercase RFC 1123"#
        )
    );
    check(
        "- {type: RBAC, name: a, webhook: {}}",
        r#"authorizers[0].webhook: Invalid value: "non-null": may only be specified when type=Webhook"#,
    );
    check("- {type: RBAC, name: a, webhok: {}}", r#"strict decoding error: unknown field "authorizers[0].webhok""#);
}

#[test]
fn invalid_webhooks_are_rejected() {
    let check = |lines: &str, expect: &str| assert_eq!(webhook(lines).unwrap_err(), expect, "{lines}");
    check(
        "{}",
        "[authorizers[0].timeout: Required value, authorizers[0].subjectAccessReviewVersion: Required value, authorizers[0].failurePolicy: Required value, authorizers[0].connectionInfo.type: Required value]",
    );
    let with = |from: &str, to: &str| WEBHOOK.replace(from, to);
    check(&with("3s", "31s"), r#"authorizers[0].timeout: Invalid value: "31s": must be > 0s and <= 30s"#);
    check(
        &with("3s", "3s\n    authorizedTTL: -1s"),
        r#"authorizers[0].authorizedTTL: Invalid value: "-1s": must be > 0s"#,
    );
    check(
        &with("subjectAccessReviewVersion: v1\n", "subjectAccessReviewVersion: v2\n"),
        r#"authorizers[0].subjectAccessReviewVersion: Unsupported value: "v2": supported values: "v1", "v1beta1""#,
    );
    check(
        &with("Deny", "Allow"),
        r#"authorizers[0].failurePolicy: Unsupported value: "Allow": supported values: "NoOpinion", "Deny""#,
    );
    check(
        &with("/etc/", "etc/"),
        r#"authorizers[0].connectionInfo.kubeConfigFile: Invalid value: "etc/authz.kubeconfig": must be an absolute path"#,
    );
    check(
        &with("type: KubeConfigFile", "type: InClusterConfig"),
        r#"authorizers[0].connectionInfo.kubeConfigFile: Invalid value: "/etc/authz.kubeconfig": can only be set when type=KubeConfigFile"#,
    );
    check(
        &with("{type: KubeConfigFile, kubeConfigFile: /etc/authz.kubeconfig}", "{type: Tunnel}"),
        r#"authorizers[0].connectionInfo.type: Unsupported value: {"Type":"Tunnel","KubeConfigFile":null}: supported values: "InClusterConfig", "KubeConfigFile""#,
    );
}

#[test]
fn match_conditions_are_compiled_on_load() {
    let conditions = |list: &str| webhook(&format!("{WEBHOOK}\n    matchConditions: {list}"));
    let check = |list: &str, expect: &str| {
        let error = conditions(list).unwrap_err();
        assert!(error.starts_with(expect), "{error}");
    };
    check(r#"[{expression: ""}]"#, "authorizers[0].matchConditions[0].expression: Required value");
    check(
        r#"[{expression: "true"}, {expression: "true"}]"#,
        r#"authorizers[0].matchConditions[1].expression: Duplicate value: "true""#,
    );
    check(
        r#"[{expression: "request.user"}]"#,
        r#"authorizers[0].matchConditions[0].expression: Invalid value: "request.user": must evaluate to bool"#,
    );
    check(
        r#"[{expression: "request.nobody == ''"}]"#,
        r#"authorizers[0].matchConditions[0].expression: Invalid value: "request.nobody == ''": compilation failed: ERROR:"#,
    );
    let many: Vec<String> = (0..65).map(|at| format!("{{expression: '{at} == 0'}}")).collect();
    check(
        &format!("[{}]", many.join(", ")),
        "authorizers[0].matchConditions: Too many: 65: must have at most 64 items",
    );
    let unversioned = WEBHOOK.replace("matchConditionSubjectAccessReviewVersion: v1\n", "\n");
    let error = webhook(&format!("{unversioned}\n    matchConditions: [{{expression: 'true'}}]")).unwrap_err();
    assert_eq!(
        error,
        "authorizers[0].matchConditionSubjectAccessReviewVersion: Required value: required if match conditions are specified"
    );
}

#[test]
fn match_conditions_select_the_requests_of_a_webhook() {
    let check = |expressions: &[&str], target: Target<'_>, expect: Result<bool, &str>| {
        let list: Vec<_> = expressions.iter().map(|expression| format!("{{expression: \"{expression}\"}}")).collect();
        let webhook = webhook(&format!("{WEBHOOK}\n    matchConditions: [{}]", list.join(", "))).unwrap();
        let user = User::authenticated("jane", ["devs".into()]);
        let found = webhook.matches(&Attributes { user: &user, verb: "get", target });
        assert_eq!(found, expect.map_err(str::to_owned), "{expressions:?}");
    };
    let pods = Target::Resource(Resource { resource: "pods", namespace: "ns", ..Resource::default() });
    let path = Target::Path("/healthz");
    check(&["'devs' in request.groups"], pods, Ok(true));
    check(&["has(request.resourceAttributes)", "request.resourceAttributes.namespace == 'ns'"], pods, Ok(true));
    check(&["request.resourceAttributes.group == ''", "request.resourceAttributes.name == 'x'"], pods, Ok(false));
    check(&["has(request.resourceAttributes)"], path, Ok(false));
    check(&["has(request.nonResourceAttributes) && request.nonResourceAttributes.path == '/healthz'"], path, Ok(true));
    check(&["request.extra['a'][0] == 'b'", "request.user == 'other'"], pods, Ok(false));
    let expected = "cel evaluation error: expression 'request.extra['a'][0] == 'b'' resulted in error: no such key: a";
    check(&["request.extra['a'][0] == 'b'"], pods, Err(expected));
}
