//! Tests of RBAC roles and bindings, written as manifests.

use std::slice::from_ref;

use apimachinery::value;
use proptest::prelude::*;

use super::*;
use crate::attributes::Resource;

fn rule(verbs: &str, groups: &str, resources: &str, names: &str, paths: &str) -> Rule {
    let list = |values: &str| values.split_whitespace().map(|word| Str::from(word.trim_matches('"'))).collect();
    Rule {
        verbs: list(verbs),
        api_groups: list(groups),
        resources: list(resources),
        resource_names: list(names),
        non_resource_urls: list(paths),
    }
}

fn permits(rule: &Rule, verb: &str, target: Target<'_>) -> bool {
    rule.permits(&Attributes { user: &User::anonymous(), verb, target })
}

#[test]
fn rule_allows_the_resources_it_names() {
    let check = |rule: &Rule, verb, resource, subresource, name, expect| {
        let target = Resource {
            group: "apps",
            resource,
            subresource,
            name,
            namespace: "ns",
            version: "v1",
            ..Resource::default()
        };
        assert_eq!(permits(rule, verb, Target::Resource(target)), expect, "{rule:?} {verb} {target:?}");
    };
    let plain = rule("get list", "apps", "deployments", "", "");
    check(&plain, "get", "deployments", "", "a", true);
    check(&plain, "list", "deployments", "", "", true);
    check(&plain, "watch", "deployments", "", "", false);
    check(&plain, "get", "deployments", "scale", "a", false);
    check(&plain, "get", "replicasets", "", "a", false);
    check(&rule("get", "batch", "deployments", "", ""), "get", "deployments", "", "a", false);
    check(&rule("*", "*", "*", "", ""), "deletecollection", "deployments", "status", "", true);
    check(&rule("get", "apps", "deployments/scale", "", ""), "get", "deployments", "scale", "a", true);
    check(&rule("get", "apps", "deployments/scale", "", ""), "get", "deployments", "", "a", false);
    check(&rule("get", "apps", "*/scale", "", ""), "get", "replicasets", "scale", "a", true);
    check(&rule("get", "apps", "*/scale", "", ""), "get", "replicasets", "status", "a", false);
    check(&rule("get", "apps", "deployments", "a b", ""), "get", "deployments", "", "b", true);
    check(&rule("get", "apps", "deployments", "a b", ""), "get", "deployments", "", "c", false);
    check(&rule("list", "apps", "deployments", "a", ""), "list", "deployments", "", "", false);
    check(&rule("get", "", "", "", "/healthz"), "get", "deployments", "", "a", false);
}

#[test]
fn rule_allows_the_paths_it_names() {
    let check = |patterns: &str, path, expect| {
        assert_eq!(permits(&rule("get", "", "", "", patterns), "get", Target::Path(path)), expect, "{patterns} {path}");
    };
    check("/healthz", "/healthz", true);
    check("/healthz", "/healthz/etcd", false);
    check("/healthz/*", "/healthz/etcd", true);
    check("/healthz/*", "/healthz", false);
    check("*", "/anything", true);
}

fn policy() -> Policy {
    let mut policy = Policy::default();
    policy.set_role("", "reader", vec![rule("get list", "\"\"", "pods", "", "")]);
    policy.set_role("a", "writer", vec![rule("create", "\"\"", "pods", "", "")]);
    let bind = |kind: &str, role: &str, subject: Value| {
        Binding::from_object(&value!({"roleRef": {"kind": kind, "name": role}, "subjects": [subject]}))
    };
    policy.set_binding("", "all-read", bind("ClusterRole", "reader", value!({"kind": "Group", "name": "devs"})));
    policy.set_binding("a", "eve-writes", bind("Role", "writer", value!({"kind": "User", "name": "eve"})));
    policy.set_binding("b", "bob-reads", bind("ClusterRole", "reader", value!({"kind": "User", "name": "bob"})));
    policy.set_binding("b", "lost", bind("Role", "gone", value!({"kind": "User", "name": "bob"})));
    let robot = value!({"kind": "ServiceAccount", "namespace": "ci", "name": "robot"});
    policy.set_binding("", "robot", bind("ClusterRole", "reader", robot));
    policy
}

fn authorize(policy: &Policy, user: &User, verb: &str, namespace: &str) -> Decision {
    let pods = Resource { resource: "pods", namespace, version: "v1", ..Resource::default() };
    policy.authorize(&Attributes { user, verb, target: Target::Resource(pods) })
}

#[test]
fn decision_names_the_binding_or_the_missing_role() {
    let check = |user: &User, verb, namespace, expect: Decision| {
        assert_eq!(authorize(&policy(), user, verb, namespace), expect, "{user:?} {verb} {namespace}");
    };
    let allow = |grant: &str| Decision::Allow(format!("RBAC: allowed by {grant}"));
    let silent = || Decision::NoOpinion(String::new());
    let eve = User::authenticated("eve", ["devs".into()]);
    let bob = User::authenticated("bob", []);
    let devs = r#"ClusterRoleBinding "all-read" of ClusterRole "reader" to Group "devs""#;
    check(&eve, "get", "", allow(devs));
    check(&eve, "get", "z", allow(devs));
    check(&eve, "create", "a", allow(r#"RoleBinding "eve-writes/a" of Role "writer" to User "eve""#));
    check(&eve, "create", "b", silent());
    check(&bob, "get", "", silent());
    check(&bob, "get", "b", allow(r#"RoleBinding "bob-reads/b" of ClusterRole "reader" to User "bob""#));
    check(&bob, "create", "b", Decision::NoOpinion(r#"RBAC: role.rbac.authorization.k8s.io "gone" not found"#.into()));
    let robot = service_account::user("ci", "robot", "");
    check(
        &robot,
        "list",
        "",
        allow(r#"ClusterRoleBinding "robot" of ClusterRole "reader" to ServiceAccount "robot/ci""#),
    );
}

#[test]
fn removed_binding_grants_nothing() {
    let mut policy = policy();
    policy.remove_binding("a", "eve-writes");
    policy.remove_binding("", "all-read");
    assert!(policy.by_subject.keys().all(|(_, subject)| *subject != Subject::User("eve".into())));
    let eve = User::authenticated("eve", ["devs".into()]);
    assert_eq!(authorize(&policy, &eve, "get", "a"), Decision::NoOpinion(String::new()));
}

#[test]
fn service_account_without_a_namespace_is_in_the_namespace_of_its_role_binding() {
    let subjects = |metadata: Value, subject: Value| {
        let role = value!({"kind": "Role", "name": "r"});
        Binding::from_object(&value!({"metadata": metadata, "roleRef": role, "subjects": [subject]})).subjects
    };
    let account = |namespace: &str| vec![Subject::ServiceAccount(namespace.into(), "sa".into())];
    let unset = || value!({"kind": "ServiceAccount", "name": "sa"});
    let empty = value!({"kind": "ServiceAccount", "name": "sa", "namespace": ""});
    let other = value!({"kind": "ServiceAccount", "name": "sa", "namespace": "other"});
    assert_eq!(subjects(value!({"namespace": "ns"}), unset()), account("ns"));
    assert_eq!(subjects(value!({"namespace": "ns"}), empty), account("ns"));
    assert_eq!(subjects(value!({"namespace": "ns"}), other), account("other"));
    assert_eq!(subjects(value!({}), unset()), [], "a ClusterRoleBinding has no namespace");
}

#[test]
fn several_rules_can_cover_a_requested_rule_together() {
    let check = |owned: &[Rule], requested: Rule, expect: &[Rule]| {
        let owned: Vec<&Rule> = owned.iter().collect();
        assert_eq!(uncovered(&owned, &[requested]).rules, expect);
    };
    let get_pods = rule("get", "\"\"", "pods", "", "");
    let list_pods = rule("list", "\"\"", "pods", "", "");
    check(&[get_pods.clone(), list_pods.clone()], rule("get list", "\"\"", "pods", "", ""), &[]);
    check(from_ref(&get_pods), rule("get list", "\"\"", "pods", "", ""), &[list_pods]);
    check(from_ref(&get_pods), rule("get", "\"\"", "pods", "a", ""), &[]);
    check(&[rule("get", "\"\"", "pods", "a", "")], get_pods.clone(), from_ref(&get_pods));
    check(&[get_pods], rule("*", "\"\"", "pods", "", ""), &[rule("*", "\"\"", "pods", "", "")]);
    check(&[rule("*", "*", "*", "", "")], rule("get", "apps", "deployments/scale", "x", ""), &[]);
    check(&[rule("get", "apps", "*/scale", "", "")], rule("get", "apps", "deployments/scale", "", ""), &[]);
    check(&[rule("get", "", "", "", "/a/*")], rule("get", "", "", "", "/a/b"), &[]);
    check(&[rule("get", "", "", "", "/a/b")], rule("get", "", "", "", "/a/*"), &[rule("get", "", "", "", "/a/*")]);
}

#[test]
fn role_that_expands_to_billions_of_permissions_is_compared_in_bounded_time_and_memory() {
    let values: Vec<Str> = (0..225).map(|word| Str::from(word.to_string())).collect();
    let wide = Rule {
        verbs: values.clone(),
        api_groups: values.clone(),
        resources: values.clone(),
        resource_names: values.clone(),
        ..Rule::default()
    };
    let found = uncovered(&[], from_ref(&wide));
    assert!(found.rules.len() <= 100 && found.is_truncated);
    // Covered by one rule without expansion, or by two halves that cannot be compared completely.
    assert_eq!(uncovered(&[&wide], from_ref(&wide)), UncoveredRules::default());
    let [even, odd] = [0, 1].map(|half| {
        let names = values.iter().skip(half).step_by(2).cloned().collect();
        Rule { resource_names: names, ..wide.clone() }
    });
    let found = uncovered(&[&even, &odd], from_ref(&wide));
    assert!(found.is_truncated && found.rules == [wide.clone()], "{} rules", found.rules.len());
    let repeated = Rule { verbs: vec!["get".into(); 100_000], ..rule("", "\"\"", "pods", "", "") };
    assert_eq!(uncovered(&[], &[repeated]).rules, [rule("get", "\"\"", "pods", "", "")]);
}

fn rules() -> impl Strategy<Value = Rule> {
    let values = |values: &'static [&'static str]| {
        prop::collection::vec(prop::sample::select(values), 0..3)
            .prop_map(|values| values.into_iter().map(Str::from).collect::<Vec<_>>())
    };
    let verbs = values(&["get", "list", "*"]);
    let groups = values(&["", "apps", "*"]);
    let resources = values(&["pods", "pods/log", "*/log", "*"]);
    let names = values(&["a", "b"]);
    (verbs, groups, resources, names).prop_map(|(verbs, api_groups, resources, resource_names)| Rule {
        verbs,
        api_groups,
        resources,
        resource_names,
        non_resource_urls: Vec::new(),
    })
}

proptest! {
    /// If no permission is uncovered, the requested rule allows no request that the owned rules deny.
    #[test]
    fn covered_rules_allow_no_additional_request(owned in prop::collection::vec(rules(), 0..4), requested in rules()) {
        let refs: Vec<&Rule> = owned.iter().collect();
        prop_assume!(uncovered(&refs, from_ref(&requested)).rules.is_empty());
        for verb in ["get", "list", "watch"] {
            for group in ["", "apps", "batch"] {
                for (resource, subresource) in [("pods", ""), ("pods", "log"), ("nodes", "log"), ("nodes", "")] {
                    for name in ["a", "b", "c", ""] {
                        let target = Target::Resource(Resource { group, resource, subresource, name, ..Resource::default() });
                        let escapes = permits(&requested, verb, target) && !owned.iter().any(|rule| permits(rule, verb, target));
                        prop_assert!(!escapes, "{verb} {target:?}");
                    }
                }
            }
        }
    }
}
