//! Tests of impersonation and its authorization checks.

use super::*;
use crate::attributes::Resource;
use crate::{Target, service_account};

const LIST_PODS: Target<'static> = Target::Resource(Resource {
    group: "",
    version: "v1",
    resource: "pods",
    subresource: "",
    namespace: "ns",
    name: "",
    field_selector: &[],
    label_selector: &[],
});

/// Formats a check: verb, resource, subresource and name.
fn line(attributes: &Attributes<'_>) -> String {
    match attributes.target {
        Target::Path(path) => format!("{} {path}", attributes.verb),
        Target::Resource(Resource { group, resource, subresource, namespace, name, .. }) => {
            format!("{} {resource}.{group}/{subresource} {namespace}/{name}", attributes.verb)
        }
    }
}

/// Returns the performed checks and the outcome, if the checks in `allowed` are allowed.
fn trial(
    target_user: &User,
    requester: &User,
    gate: Gate,
    allowed: &[&str],
) -> (Vec<String>, Result<ImpersonatedUser, String>) {
    let attributes = Attributes { user: requester, verb: "list", target: LIST_PODS };
    let mut checks = Vec::new();
    let outcome = Trial::new(target_user, &attributes, gate).run(|attributes| {
        checks.push(line(attributes));
        if allowed.contains(&line(attributes).as_str()) {
            Decision::Allow(String::new())
        } else {
            Decision::NoOpinion("why".into())
        }
    });
    (checks, outcome.map_err(|status| status.message))
}

fn named(name: &str) -> User {
    User { name: name.into(), ..User::default() }
}

fn admin() -> User {
    User::authenticated("admin", [])
}

#[test]
fn impersonation_headers_are_parsed() {
    let headers = [
        ("impersonate-user", "jane"),
        ("Impersonate-Uid", "u"),
        ("Impersonate-Group", "a"),
        ("impersonate-group", "b"),
        ("Impersonate-Extra-Acme.com%2FScopes", "view"),
        ("impersonate-extra-acme.com%2fscopes", "edit"),
        ("Accept", "*/*"),
    ];
    let user = User { uid: "u".into(), groups: vec!["a".into(), "b".into()], ..named("jane") };
    let expect = user.with_extra("acme.com/scopes", "view").with_extra("acme.com/scopes", "edit");
    assert_eq!(target_user(&headers), Ok(Some(expect)));
    assert_eq!(headers.iter().filter(|(name, _)| owns(name)).count(), headers.len() - 1);
    assert_eq!(target_user(&[("Accept", "*/*"), ("Impersonate-User", "")]), Ok(None));
}

#[test]
fn impersonation_requires_a_user() {
    let error_message = |headers: &[(&str, &str)]| target_user(headers).unwrap_err().message;
    assert_eq!(
        error_message(&[("Impersonate-Group", "only")]),
        r#"requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"only"}, Extra:map[string][]string(nil)} without impersonating a user name"#
    );
    assert_eq!(
        error_message(&[("Impersonate-Uid", "u"), ("Impersonate-Extra-a", "1"), ("Impersonate-Extra-a", "2")]),
        r#"requested &user.DefaultInfo{Name:"", UID:"u", Groups:[]string(nil), Extra:map[string][]string{"a":[]string{"1", "2"}}} without impersonating a user name"#
    );
}

#[test]
fn legacy_impersonation_checks_each_attribute() {
    let target_user =
        User { uid: "u".into(), groups: vec!["a".into(), "b".into()], ..named("jane") }.with_extra("k", "v");
    let allowed = [
        "impersonate users./ /jane",
        "impersonate uids.authentication.k8s.io/ /u",
        "impersonate groups./ /a",
        "impersonate groups./ /b",
        "impersonate userextras.authentication.k8s.io/k /v",
    ];
    let (checks, outcome) = trial(&target_user, &admin(), Gate::Legacy, &allowed);
    assert_eq!(checks, allowed);
    let mut user = target_user.clone();
    user.join("system:authenticated");
    assert_eq!(outcome, Ok(ImpersonatedUser { user, constraint: "" }));
    let (checks, outcome) = trial(&target_user, &admin(), Gate::Legacy, &allowed[..3]);
    assert_eq!(checks, allowed[..4]);
    let expected = r#"groups "b" is forbidden: User "admin" cannot impersonate resource "groups" in API group "" at the cluster scope: why"#;
    assert_eq!(outcome.unwrap_err(), expected);
}

#[test]
fn constrained_modes_come_first_and_the_first_denial_is_reported() {
    let (checks, outcome) = trial(&named("jane"), &admin(), Gate::Constrained, &["impersonate users./ /jane"]);
    assert_eq!(checks, ["impersonate-on:user-info:list pods./ ns/", "impersonate users./ /jane"]);
    assert_eq!(outcome.unwrap().constraint, "");
    let (_, denied) = trial(&named("jane"), &admin(), Gate::Constrained, &[]);
    let expected = r#"pods is forbidden: User "admin" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "ns": why"#;
    assert_eq!(denied.unwrap_err(), expected);
    let allowed =
        ["impersonate-on:user-info:list pods./ ns/", "impersonate:user-info users.authentication.k8s.io/ /jane"];
    let (checks, outcome) = trial(&named("jane"), &admin(), Gate::Constrained, &allowed);
    assert_eq!(checks, allowed);
    assert_eq!(outcome.unwrap().constraint, "impersonate:user-info");
}

#[test]
fn impersonated_service_accounts_and_nodes_get_their_groups() {
    let account = "system:serviceaccount:ns:robot";
    let allowed = [
        "impersonate-on:serviceaccount:list pods./ ns/",
        "impersonate:serviceaccount serviceaccounts.authentication.k8s.io/ ns/robot",
    ];
    let (checks, outcome) = trial(&named(account), &admin(), Gate::Constrained, &allowed);
    assert_eq!(checks, allowed);
    assert_eq!(outcome.unwrap().user, service_account::user("ns", "robot", ""));
    let (checks, outcome) = trial(&named(account), &admin(), Gate::Legacy, &["impersonate serviceaccounts./ ns/robot"]);
    assert_eq!(checks, ["impersonate serviceaccounts./ ns/robot"]);
    assert_eq!(outcome.unwrap().user, service_account::user("ns", "robot", ""));

    let allowed =
        ["impersonate-on:arbitrary-node:list pods./ ns/", "impersonate:arbitrary-node nodes.authentication.k8s.io/ /n"];
    let (checks, outcome) = trial(&named("system:node:n"), &admin(), Gate::Constrained, &allowed);
    assert_eq!(checks, allowed);
    assert_eq!(outcome.unwrap().user.groups, ["system:nodes", "system:authenticated"]);
    let (_, outcome) = trial(&named("system:node:n"), &admin(), Gate::Legacy, &["impersonate users./ /system:node:n"]);
    assert_eq!(outcome.unwrap().user.groups, ["system:authenticated"], "the legacy form accepts a node as any user");
}

#[test]
fn daemon_may_impersonate_its_own_node() {
    let daemon = service_account::user("ns", "daemon", "u").with_extra(service_account::NODE_NAME, "n");
    let allowed = [
        "impersonate-on:associated-node:list pods./ ns/",
        "impersonate:associated-node nodes.authentication.k8s.io/ /*",
    ];
    let (checks, outcome) = trial(&named("system:node:n"), &daemon, Gate::Constrained, &allowed);
    assert_eq!(checks, allowed);
    assert_eq!(outcome.unwrap().constraint, "impersonate:associated-node");
    let (checks, _) = trial(&named("system:node:other"), &daemon, Gate::Constrained, &[]);
    assert_eq!(checks[0], "impersonate-on:arbitrary-node:list pods./ ns/");
    let attributes = Attributes { user: &daemon, verb: "list", target: LIST_PODS };
    let mut trial = Trial::new(&named("system:node:n"), &attributes, Gate::Constrained);
    let Next::Authorize(checks) = trial.needs() else { panic!("a question") };
    let keys = &checks.user.extra["authentication.kubernetes.io/associated-node-keys"];
    assert_eq!(keys, &[service_account::NODE_NAME]);
}

#[test]
fn many_groups_use_a_wildcard_check_and_masters_is_denied() {
    let user =
        |groups: &[&str]| User { groups: groups.iter().map(|group| Str::from(*group)).collect(), ..named("jane") };
    let base = ["impersonate-on:user-info:list pods./ ns/", "impersonate:user-info users.authentication.k8s.io/ /jane"];
    let group = |name: &str| format!("impersonate:user-info groups.authentication.k8s.io/ /{name}");
    let all = group("*");
    let (checks, outcome) = trial(&user(&["a", "b", "c", "d"]), &admin(), Gate::Constrained, &[base[0], base[1], &all]);
    assert_eq!(checks, [base[0], base[1], &all]);
    assert!(outcome.is_ok());
    let each: Vec<_> = ["a", "b", "c", "d"].map(group).into();
    let allowed: Vec<&str> = base.into_iter().chain(each.iter().map(String::as_str)).collect();
    let (checks, outcome) = trial(&user(&["a", "b", "c", "d"]), &admin(), Gate::Constrained, &allowed);
    assert_eq!(checks.len(), 7);
    assert!(outcome.is_ok());
    let (checks, denied) = trial(&user(&["system:masters"]), &admin(), Gate::Constrained, &base);
    assert_eq!(checks.last().unwrap(), "impersonate users./ /jane", "the old way is still open");
    let expected = r#"groups.authentication.k8s.io "system:masters" is forbidden: User "admin" cannot impersonate:user-info resource "groups" in API group "authentication.k8s.io" at the cluster scope: impersonating the system:masters group is not allowed"#;
    assert_eq!(denied.unwrap_err(), expected);
}

#[test]
fn constrained_modes_reject_invalid_extras() {
    let base = ["impersonate-on:user-info:list pods./ ns/", "impersonate:user-info users.authentication.k8s.io/ /jane"];
    let check = |key: &str, value: &str, expect: &str| {
        let (_, denied) = trial(&named("jane").with_extra(key, value), &admin(), Gate::Constrained, &base);
        let message = denied.unwrap_err();
        assert!(message.ends_with(expect), "{message}");
    };
    check("", "v", "impersonating the empty string key in extra is not allowed");
    check(
        "k",
        "v",
        "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: \"k\": must be a domain-prefixed path (such as \"acme.io/foo\")",
    );
    check("acme.io/K", "v", "impersonating a non-lowercase key in extra is not allowed: \"acme.io/K\"");
    check("acme.io/k", "", "impersonating the empty string value in extra is not allowed");
}

#[test]
fn anonymous_user_stays_unauthenticated() {
    let (_, outcome) =
        trial(&named("system:anonymous"), &admin(), Gate::Legacy, &["impersonate users./ /system:anonymous"]);
    assert_eq!(outcome.unwrap().user.groups, ["system:unauthenticated"]);
}
