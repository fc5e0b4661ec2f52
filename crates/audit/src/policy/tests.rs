use super::*;
use crate::request::User;

const HEAD: &str = "kind: Policy\napiVersion: audit.k8s.io/v1\n";

fn parse(rest: &str) -> Result<ParsedPolicy, Error> {
    Policy::parse(format!("{HEAD}{rest}").as_bytes())
}

fn pods<'a>(namespace: &'a str, subresource: &'a str, name: &'a str) -> Target<'a> {
    Target::Resource { group: "", version: "v1", resource: "pods", subresource, namespace, name }
}

#[test]
fn first_matching_rule_applies() {
    let policy = parse(
        "omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  users: [system:kube-proxy]
  verbs: [watch]
  resources: [{group: '', resources: [endpoints, services]}]
- level: Request
  userGroups: [auditors]
  omitStages: [Panic]
  omitManagedFields: false
- level: Metadata
  resources: [{group: '', resources: ['secrets', 'serviceaccounts/token']}, {group: authentication.k8s.io}]
- level: RequestResponse
  namespaces: [kube-system]
  resources: [{group: '', resources: ['pods/*', '*/scale'], resourceNames: [a]}]
- level: Request
  nonResourceURLs: ['/healthz*', /version]
- level: Metadata
  namespaces: ['']
",
    )
    .unwrap()
    .policy;
    let check = |user: &str, groups: &[&str], verb: &str, target: Target<'_>, expect: Level| {
        let groups = groups.iter().map(|group| Str::from(*group)).collect();
        let user = User { username: user.into(), groups, ..User::default() };
        let attributes = Attributes { user: &user, verb, target };
        assert_eq!(policy.evaluate(&attributes).level, expect, "{attributes:?}");
    };
    let core = |resource: &'static str, subresource: &'static str, namespace: &'static str| Target::Resource {
        group: "",
        version: "v1",
        resource,
        subresource,
        namespace,
        name: "a",
    };
    check("system:kube-proxy", &[], "watch", core("services", "", "a"), Level::None);
    check("system:kube-proxy", &["auditors"], "list", core("services", "", "a"), Level::Request);
    check("ann", &["x", "auditors"], "get", Target::Path("/any"), Level::Request);
    check("ann", &[], "create", core("serviceaccounts", "token", "a"), Level::Metadata);
    check("ann", &[], "create", core("serviceaccounts", "", "a"), Level::None);
    let reviews = Target::Resource {
        group: "authentication.k8s.io",
        version: "v1",
        resource: "tokenreviews",
        subresource: "",
        namespace: "",
        name: "",
    };
    check("ann", &[], "create", reviews, Level::Metadata);
    check("ann", &[], "get", pods("kube-system", "log", "a"), Level::RequestResponse);
    check("ann", &[], "get", pods("kube-system", "", "a"), Level::RequestResponse);
    check("ann", &[], "get", pods("kube-system", "", "b"), Level::None);
    check("ann", &[], "get", core("deployments", "scale", "kube-system"), Level::RequestResponse);
    check("ann", &[], "get", pods("default", "log", "a"), Level::None);
    check("ann", &[], "get", Target::Path("/healthz/ping"), Level::Request);
    check("ann", &[], "get", Target::Path("/versions"), Level::None);
    check("ann", &[], "list", core("nodes", "", ""), Level::Metadata);

    let auditor = User { groups: vec!["auditors".into()], ..User::default() };
    let attributes = Attributes { user: &auditor, verb: "get", target: Target::Path("/") };
    let verdict = policy.evaluate(&attributes);
    let stages = Stages::default().with(Stage::RequestReceived).with(Stage::Panic);
    assert_eq!(verdict, AuditDecision { level: Level::Request, omit_stages: stages, omit_managed_fields: false });
    let nobody = policy.evaluate(&Attributes { user: &User::default(), ..attributes });
    assert!(nobody.omit_managed_fields && nobody.omit_stages.has(Stage::RequestReceived));
}

#[test]
fn invalid_policies_are_rejected() {
    let check = |rest: &str, expect: &str| assert_eq!(parse(rest).unwrap_err().to_string(), expect, "{rest}");
    check("rules: []\n", "loaded illegal policy with 0 rules");
    check("rules: [{}]\n", "rules[0].level: Required value");
    check(
        "rules: [{level: Some}]\n",
        r#"rules[0].level: Unsupported value: "Some": supported values: "None", "Metadata", "Request", "RequestResponse""#,
    );
    check(
        "rules: [{level: None, nonResourceURLs: [healthz, '/a*b', '*']}]\n",
        r#"[rules[0].nonResourceURLs[0]: Invalid value: "healthz": non-resource URL rules must begin with a '/' character, rules[0].nonResourceURLs[1]: Invalid value: "/a*b": non-resource URL wildcards '*' must be the final character of the rule]"#,
    );
    check(
        "rules: [{level: None, namespaces: [a], nonResourceURLs: [/a]}]\n",
        r#"rules[0].nonResourceURLs: Invalid value: ["/a"]: rules cannot apply to both regular resources and non-resource URLs"#,
    );
    check(
        "rules: [{level: None, resources: [{resourceNames: [a]}]}]\n",
        r#"rules[0].resources.resourceNames: Invalid value: ["a"]: using resourceNames requires at least one resource"#,
    );
    check(
        "rules: [{level: None, omitStages: [Never]}]\n",
        r#"rules[0].omitStages[0]: Invalid value: "Never": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic"#,
    );
    check(
        "omitStages: [Never]\nrules: [{level: None}]\n",
        r#"omitStages[0]: Invalid value: "Never": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic"#,
    );
    let group = parse("rules: [{level: None, resources: [{group: rbac.authorization.k8s.io/v1}]}]\n").unwrap_err();
    assert!(group.to_string().starts_with(
        "rules[0].resources.group: Invalid value: \"rbac.authorization.k8s.io/v1\": a lowercase RFC 1123 subdomain"
    ));
    let beta = Policy::parse(b"kind: Policy\napiVersion: audit.k8s.io/v1beta1\nrules: [{level: None}]\n").unwrap_err();
    assert_eq!(
        beta.to_string(),
        r#"failed decoding: no kind "Policy" is registered for version "audit.k8s.io/v1beta1""#
    );
}

#[test]
fn unknown_policy_field_is_a_warning() {
    let parsed = parse("rules: [{level: Metadata, usrs: [a]}]\n").unwrap();
    assert_eq!(
        parsed.warning.unwrap(),
        r#"Audit policy contains errors, falling back to lenient decoding: strict decoding error: unknown field "rules[0].usrs""#
    );
}
