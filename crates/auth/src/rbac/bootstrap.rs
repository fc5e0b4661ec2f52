//! RBAC bootstrap policy: the default roles and bindings of every cluster.

use apimachinery::{Object, Str, Value, value};

const TEXT: &str = include_str!("bootstrap.txt");
const API_VERSION: &str = "rbac.authorization.k8s.io/v1";
const API_GROUP: &str = "rbac.authorization.k8s.io";
const BROKEN: &str = "the bootstrap policy follows its grammar";

/// Returns all roles and bindings, roles first, so that no binding exists without its role.
///
/// They have upstream's bootstrapping label and autoupdate annotation, so that a newer server may extend them.
pub fn objects() -> Vec<Value> {
    let mut objects = Vec::new();
    let mut lines = TEXT.lines().filter(|line| !line.starts_with('#')).peekable();
    while let Some(line) = lines.next() {
        let fields: Vec<&str> = line.split(' ').collect();
        match fields.as_slice() {
            ["role", name, marks @ ..] => {
                let mut rules = Vec::new();
                while let Some(rule) = lines.next_if(|line| line.starts_with('\t')) {
                    rules.push(read_rule(&rule[1..]));
                }
                objects.push(role(name, marks, rules));
            }
            ["bind", name, role_kind, role, subjects @ ..] => objects.push(binding(name, role_kind, role, subjects)),
            _ => panic!("{BROKEN}: {line}"),
        }
    }
    objects
}

fn role(name: &str, marks: &[&str], rules: Vec<Value>) -> Value {
    let kind = if name.contains('/') { "Role" } else { "ClusterRole" };
    let mut role = object(kind, name);
    let fields = role.as_object_mut().expect(BROKEN);
    for mark in marks.chunks(2) {
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{}", mark[1]);
        if mark[0] == "part-of" {
            let labels = fields.get_mut("metadata").and_then(|metadata| metadata.get_mut("labels"));
            labels.and_then(Value::as_object_mut).expect(BROKEN).insert(label, "true");
        } else {
            let labels: Object = [(label, "true")].into_iter().collect();
            fields.insert("aggregationRule", value!({"clusterRoleSelectors": [{"matchLabels": labels}]}));
        }
    }
    // The rules of an aggregated role are computed by the aggregation controller.
    fields.insert("rules", if rules.is_empty() { Value::Null } else { Value::Array(rules) });
    role
}

fn read_rule(text: &str) -> Value {
    let list = |values: &str| -> Value {
        Value::Array(values.split(',').map(|word| Value::from(if word == "-" { "" } else { word })).collect())
    };
    match text.split(' ').collect::<Vec<_>>().as_slice() {
        [verbs, paths] => value!({"verbs": (list(verbs)), "nonResourceURLs": (list(paths))}),
        [verbs, groups, resources] => {
            value!({"verbs": (list(verbs)), "apiGroups": (list(groups)), "resources": (list(resources))})
        }
        [verbs, groups, resources, names] => value!({
            "verbs": (list(verbs)),
            "apiGroups": (list(groups)),
            "resources": (list(resources)),
            "resourceNames": (list(names)),
        }),
        _ => panic!("{BROKEN}: {text}"),
    }
}

fn binding(name: &str, role_kind: &str, role: &str, subjects: &[&str]) -> Value {
    let kind = if name.contains('/') { "RoleBinding" } else { "ClusterRoleBinding" };
    let mut binding = object(kind, name);
    let fields = binding.as_object_mut().expect(BROKEN);
    fields.insert("roleRef", value!({"apiGroup": API_GROUP, "kind": role_kind, "name": role}));
    if !subjects.is_empty() {
        fields.insert("subjects", Value::Array(subjects.iter().map(|subject| read_subject(subject)).collect()));
    }
    binding
}

fn read_subject(text: &str) -> Value {
    let (kind, name) = text.split_once('=').expect(BROKEN);
    match name.split_once('/') {
        Some((namespace, name)) if kind == "ServiceAccount" => {
            value!({"kind": kind, "namespace": namespace, "name": name})
        }
        _ => value!({"apiGroup": API_GROUP, "kind": kind, "name": name}),
    }
}

fn object(kind: &str, full_name: &str) -> Value {
    let labels = value!({"kubernetes.io/bootstrapping": "rbac-defaults"});
    let annotations = value!({"rbac.authorization.kubernetes.io/autoupdate": "true"});
    let mut metadata: Object = [("annotations", annotations), ("labels", labels)].into_iter().collect();
    let (namespace, name) = full_name.split_once('/').unwrap_or(("", full_name));
    metadata.insert("name", Str::from(name));
    if !namespace.is_empty() {
        metadata.insert("namespace", Str::from(namespace));
    }
    value!({"apiVersion": API_VERSION, "kind": kind, "metadata": metadata})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Resource;
    use crate::rbac::{Binding, Policy, Rule};
    use crate::{Attributes, Authorizer, Decision, Target, User, service_account};

    fn fresh() -> Policy {
        let mut policy = Policy::default();
        for object in objects() {
            let namespace = object.text_at(&["metadata", "namespace"]);
            let name = object.str_at(&["metadata", "name"]).unwrap();
            if object["kind"].as_str().unwrap().ends_with("Binding") {
                policy.set_binding(namespace, name, Binding::from_object(&object));
            } else {
                policy.set_role(namespace, name, Rule::all_from_object(&object));
            }
        }
        policy
    }

    #[test]
    fn bootstrap_policy_allows_the_components_of_a_new_cluster() {
        let check = |user: &User, verb, group, resource, namespace, expect: bool| {
            let target = Target::Resource(Resource { group, resource, namespace, ..Resource::default() });
            let decision = fresh().authorize(&Attributes { user, verb, target });
            assert_eq!(matches!(decision, Decision::Allow(_)), expect, "{user:?} {verb} {resource}: {decision:?}");
        };
        let admin = User::authenticated("root", ["system:masters".into()]);
        let scheduler = User::authenticated("system:kube-scheduler", []);
        let deployments = service_account::user("kube-system", "deployment-controller", "");
        let nobody = User::authenticated("nobody", []);
        check(&admin, "delete", "any.example", "things", "a", true);
        check(&scheduler, "list", "", "nodes", "", true);
        check(&scheduler, "delete", "", "secrets", "a", false);
        check(&deployments, "create", "apps", "replicasets", "a", true);
        check(&deployments, "list", "", "secrets", "a", false);
        check(&nobody, "create", "authorization.k8s.io", "selfsubjectaccessreviews", "", true);
        check(&nobody, "list", "", "pods", "a", false);
    }

    /// A user who may write endpoints can direct the traffic of a Service or Ingress controller into namespaces that
    /// NetworkPolicies protect from that user.
    #[test]
    fn cve_2021_25740_edit_and_admin_may_read_endpoints_and_not_write_them() {
        let objects = objects();
        let aggregated = |label: &str| -> Vec<Rule> {
            let label = format!("rbac.authorization.k8s.io/aggregate-to-{label}");
            let roles = objects.iter().filter(|role| role["metadata"]["labels"].get(&label).is_some());
            roles.flat_map(Rule::all_from_object).collect()
        };
        let user = User::authenticated("tenant", []);
        for label in ["edit", "admin", "view"] {
            let mut policy = Policy::default();
            policy.set_role("", label, aggregated(label));
            let binding = apimachinery::value!({"metadata": {"namespace": "a", "name": "b"},
                "roleRef": {"kind": "ClusterRole", "name": label}, "subjects": [{"kind": "User", "name": "tenant"}]});
            policy.set_binding("a", "b", Binding::from_object(&binding));
            for (group, resource) in [("", "endpoints"), ("discovery.k8s.io", "endpointslices")] {
                for verb in ["create", "update", "patch", "delete", "deletecollection", "get"] {
                    let resource = Resource { group, resource, namespace: "a", ..Resource::default() };
                    let decision =
                        policy.authorize(&Attributes { user: &user, verb, target: Target::Resource(resource) });
                    let expect = verb == "get" && label == "view";
                    assert_eq!(matches!(decision, Decision::Allow(_)), expect, "{label} {verb} {}", resource.resource);
                }
            }
        }
    }

    #[test]
    fn edit_role_cannot_write_endpoints() {
        let mut policy = fresh();
        let rule = binding("ns/editors", "ClusterRole", "system:aggregate-to-edit", &["User=editor"]);
        policy.set_binding("ns", "editors", Binding::from_object(&rule));
        let rule = binding("ns/admins", "ClusterRole", "system:aggregate-to-admin", &["User=editor"]);
        policy.set_binding("ns", "admins", Binding::from_object(&rule));
        let user = User::authenticated("editor", []);
        let may = |verb, group, resource| {
            let target = Target::Resource(Resource { group, resource, namespace: "ns", ..Resource::default() });
            matches!(policy.authorize(&Attributes { user: &user, verb, target }), Decision::Allow(_))
        };
        assert!(
            may("create", "", "services") && may("create", "rbac.authorization.k8s.io", "roles"),
            "the bindings count"
        );
        for verb in ["create", "update", "patch", "delete"] {
            assert!(!may(verb, "", "endpoints"), "{verb} endpoints");
            assert!(!may(verb, "discovery.k8s.io", "endpointslices"), "{verb} endpointslices");
        }
    }

    #[test]
    fn every_binding_refers_to_an_existing_role() {
        let policy = fresh();
        for ((namespace, name), binding) in &policy.bindings {
            let role_namespace = if binding.cluster_role { Str::default() } else { namespace.clone() };
            assert!(policy.roles.contains_key(&(role_namespace, binding.role.clone())), "{namespace}/{name}");
        }
    }

    #[test]
    fn anonymous_users_may_read_health_and_version() {
        let user = User::anonymous();
        let authorize = |path| fresh().authorize(&Attributes { user: &user, verb: "get", target: Target::Path(path) });
        assert!(matches!(authorize("/healthz"), Decision::Allow(_)));
        assert!(matches!(authorize("/version"), Decision::Allow(_)));
        assert!(matches!(authorize("/metrics"), Decision::NoOpinion(_)));
    }
}
