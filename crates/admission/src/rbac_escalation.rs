//! RBAC escalation check: a role or binding can only grant permissions that its author has, unless the author may
//! `escalate` or `bind`.

use std::collections::BTreeMap;

use api::resources::{CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES};
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::status::{GroupName, Status};
use apimachinery::{Str, Value, go};
use auth::rbac::{Binding, Policy, Rule, UncoveredRules, uncovered};
use auth::user::MASTERS;
use auth::{Resource, User};

use super::{Attributes, Notes, Plugin, View};

const GROUP: &str = "rbac.authorization.k8s.io";
/// Maximum length of the list of missing permissions in an error message.
const LISTED_BYTES_MAX: usize = 8 << 10;

pub(crate) struct RbacEscalation;

impl Plugin for RbacEscalation {
    fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: &Value,
        view: &dyn View,
        _: &mut Notes,
    ) -> Result<(), Status> {
        let plural = attributes.kind.plural.as_str();
        if attributes.kind.group != GROUP || !attributes.writes_object() || attributes.user.is_in(MASTERS) {
            return Ok(());
        }
        if attributes.old.is_some_and(|old| only_changes_gc_fields(old, object)) {
            return Ok(());
        }
        match plural {
            "roles" | "clusterroles" => role(attributes, object, view),
            "rolebindings" | "clusterrolebindings" => binding(attributes, object, view),
            _ => Ok(()),
        }
    }
}

/// Whether an update only changes fields that the garbage collector writes: it must be able to delete a role that it
/// could not grant. Labels are excluded, because they select the ClusterRoles that an aggregated role includes.
fn only_changes_gc_fields(old: &Value, object: &Value) -> bool {
    const GC_FIELDS: [&str; 5] = ["ownerReferences", "finalizers", "selfLink", "managedFields", "resourceVersion"];
    let [old, object] = [old, object].map(|object| {
        let mut rest = object.clone();
        if let Some(mut meta) = MetaMut::of(&mut rest) {
            for field in GC_FIELDS {
                meta.remove(field);
            }
        }
        rest
    });
    old == object
}

fn role(attributes: &Attributes<'_>, object: &Value, view: &dyn View) -> Result<(), Status> {
    let resource = Resource {
        group: GROUP,
        version: &attributes.version.name,
        resource: &attributes.kind.plural,
        namespace: attributes.namespace,
        // The URL of a create contains no name, so an `escalate` permission with resourceNames does not apply to it.
        name: attributes.old.map_or("", |old| Meta::of(old).name()),
        ..Resource::default()
    };
    if may(attributes.user, "escalate", resource, view) {
        return Ok(());
    }
    if let Some(message) = missing(attributes, &Rule::all_from_object(object), view) {
        return Err(attributes.forbidden(object, message));
    }
    // The old aggregation rule is checked too: an update must not drop the rule to keep the aggregated permissions.
    if aggregates(object) || attributes.old.is_some_and(aggregates) {
        let all = || vec![Str::from("*")];
        let everything = [
            Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() },
            Rule { verbs: all(), non_resource_urls: all(), ..Rule::default() },
        ];
        if missing(attributes, &everything, view).is_some() {
            return Err(attributes.forbidden(object, "must have cluster-admin privileges to use the aggregationRule"));
        }
    }
    Ok(())
}

fn aggregates(role: &Value) -> bool {
    let selectors = role.at(&["aggregationRule", "clusterRoleSelectors"]).and_then(Value::as_array);
    selectors.is_some_and(|selectors| !selectors.is_empty())
}

fn binding(attributes: &Attributes<'_>, object: &Value, view: &dyn View) -> Result<(), Status> {
    let reference = &object["roleRef"];
    let name = reference.text_at(&["name"]);
    let (kind, namespace) =
        if reference.text_at(&["kind"]) == "ClusterRole" { (CLUSTER_ROLES, "") } else { (ROLES, attributes.namespace) };
    let resource = Resource {
        group: GROUP,
        version: "*",
        resource: kind.plural,
        namespace: attributes.namespace,
        name,
        ..Resource::default()
    };
    if may(attributes.user, "bind", resource, view) {
        return Ok(());
    }
    let Some(role) = view.object(kind, namespace, name) else {
        return Err(Status::not_found(GroupName::new(kind.group, kind.plural), name));
    };
    match missing(attributes, &Rule::all_from_object(&role), view) {
        Some(message) => Err(attributes.forbidden(object, message)),
        None => Ok(()),
    }
}

fn may(user: &User, verb: &str, resource: Resource<'_>, view: &dyn View) -> bool {
    view.allows(&auth::Attributes { user, verb, target: auth::Target::Resource(resource) })
}

/// Returns the message that lists the permissions that the user would grant without having them.
fn missing(attributes: &Attributes<'_>, requested: &[Rule], view: &dyn View) -> Option<String> {
    let policy = policy(attributes.namespace, view);
    let (owned, unknown) = policy.rules_for(attributes.user, attributes.namespace);
    let UncoveredRules { rules: lacking, is_truncated } = uncovered(&owned, requested);
    if lacking.is_empty() {
        return None;
    }
    let mut lines: Vec<String> = compact(lacking).iter().map(format_rule).collect();
    lines.sort();
    lines.dedup();
    let (user, groups) = (go::quote(&attributes.user.name), list(&attributes.user.groups));
    let mut lines = lines.join("\n");
    let is_cut = lines.len() > LISTED_BYTES_MAX;
    lines.truncate(lines.floor_char_boundary(LISTED_BYTES_MAX));
    if is_truncated || is_cut {
        lines.push_str("\n... (more permissions are missing than are listed)");
    }
    let mut message =
        format!("user {user} (groups={groups}) is attempting to grant RBAC permissions not currently held:\n{lines}");
    if !unknown.is_empty() {
        message.push_str(&format!("; resolution errors: [{}]", unknown.join(", ")));
    }
    Some(message)
}

/// Returns the roles and bindings that apply in a namespace.
fn policy(namespace: &str, view: &dyn View) -> Policy {
    let mut policy = Policy::default();
    let cluster = (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, "");
    let of_namespace = (ROLES, ROLE_BINDINGS, namespace);
    let places = [Some(cluster), Some(of_namespace).filter(|_| !namespace.is_empty())];
    for (roles, bindings, role_namespace) in places.into_iter().flatten() {
        for role in view.objects(roles, role_namespace) {
            policy.set_role(role_namespace, Meta::of(&role).name(), Rule::all_from_object(&role));
        }
        for binding in view.objects(bindings, role_namespace) {
            policy.set_binding(role_namespace, Meta::of(&binding).name(), Binding::from_object(&binding));
        }
    }
    policy
}

/// Merges rules for the same resources by combining their verbs.
fn compact(rules: Vec<Rule>) -> Vec<Rule> {
    let mut by_target: BTreeMap<[Vec<Str>; 3], Rule> = BTreeMap::new();
    let mut others = Vec::new();
    for rule in rules {
        if rule.resources.is_empty() {
            others.push(rule);
            continue;
        }
        let key = [rule.api_groups.clone(), rule.resources.clone(), rule.resource_names.clone()];
        match by_target.get_mut(&key) {
            Some(have) => have.verbs.extend(rule.verbs),
            None => {
                by_target.insert(key, rule);
            }
        }
    }
    by_target.into_values().chain(others).collect()
}

fn format_rule(rule: &Rule) -> String {
    let parts = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.non_resource_urls),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ];
    let parts = parts.iter().filter(|(_, values)| !values.is_empty());
    let parts: Vec<String> = parts.map(|(name, values)| format!("{name}:{}", list(values))).collect();
    format!("{{{}}}", parts.join(", "))
}

fn list(values: &[Str]) -> String {
    let values: Vec<String> = values.iter().map(|word| go::quote(word)).collect();
    format!("[{}]", values.join(" "))
}

#[cfg(test)]
mod tests {
    use apimachinery::json;

    use super::*;
    use crate::Operation;
    use crate::testing::{Cluster, attributes};

    #[test]
    fn role_can_only_grant_permissions_of_its_author() {
        let cluster = Cluster::default()
            .with(GROUP, "clusterroles", r#"{"metadata":{"name":"r"},"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}"#)
            .with(GROUP, "clusterrolebindings", r#"{"metadata":{"name":"b"},"roleRef":{"kind":"ClusterRole","name":"r"},"subjects":[{"kind":"User","name":"eve"}]}"#);
        let (kind, user) = (api::rbac::role::kind(), User::authenticated("eve", []));
        let check = |rules: &str, expect: Result<(), &str>| {
            let role = json::parse(format!(r#"{{"metadata":{{"name":"x"}},"rules":[{rules}]}}"#).as_bytes()).unwrap();
            let verdict = RbacEscalation.validate(
                &attributes(&kind, &user, Operation::Create),
                &role,
                &cluster,
                &mut Notes::default(),
            );
            let start = "roles.rbac.authorization.k8s.io \"x\" is forbidden: user \"eve\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n";
            assert_eq!(verdict.map_err(|status| status.message), expect.map_err(|text| format!("{start}{text}")));
        };
        check(r#"{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}"#, Ok(()));
        check(
            r#"{"verbs":["get","list","watch"],"apiGroups":[""],"resources":["pods"]}"#,
            Err(r#"{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}"#),
        );
    }

    /// Updates a ClusterRole as user eve, who has no other permissions.
    fn update(old: &str, new: &str) -> Result<(), String> {
        let (kind, user) = (api::rbac::cluster_role::kind(), User::authenticated("eve", []));
        let [old, new] = [old, new].map(|text| json::parse(text.as_bytes()).unwrap());
        let attributes = Attributes { old: Some(&old), ..attributes(&kind, &user, Operation::Update) };
        RbacEscalation
            .validate(&attributes, &new, &Cluster::default(), &mut Notes::default())
            .map_err(|status| status.message)
    }

    #[test]
    fn relabelling_cluster_admin_for_aggregation_is_an_escalation() {
        let admin = |metadata: &str| {
            format!(
                r#"{{"metadata":{{"name":"cluster-admin"{metadata}}},"rules":[{{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}}]}}"#
            )
        };
        let labelled = admin(r#","labels":{"rbac.authorization.k8s.io/aggregate-to-view":"true"}"#);
        assert!(update(&admin(""), &labelled).unwrap_err().contains("not currently held"));
        assert!(update(&admin(""), &admin(r#","annotations":{"a":"b"}"#)).is_err());
        assert_eq!(
            update(&admin(""), &admin(r#","ownerReferences":[],"finalizers":["a/b"],"managedFields":[{}]"#)),
            Ok(())
        );
    }

    #[test]
    fn removing_an_aggregation_rule_requires_the_permission_to_set_it() {
        let role = |rest: &str| format!(r#"{{"metadata":{{"name":"x"}}{rest}}}"#);
        let before = role(r#","aggregationRule":{"clusterRoleSelectors":[{}]}"#);
        let error = update(&before, &role("")).unwrap_err();
        assert!(error.ends_with("must have cluster-admin privileges to use the aggregationRule"), "{error}");
    }

    #[test]
    fn list_of_missing_permissions_is_truncated() {
        let values: Vec<String> = (0..200).map(|word| format!("\"{word}{}\"", "x".repeat(200))).collect();
        let values = values.join(",");
        let wide = format!(
            r#"{{"metadata":{{"name":"x"}},"rules":[{{"verbs":[{values}],"apiGroups":[{values}],"resources":[{values}],"resourceNames":[{values}]}}]}}"#
        );
        let error = update(r#"{"metadata":{"name":"x"}}"#, &wide).unwrap_err();
        assert!(error.len() < 2 * LISTED_BYTES_MAX, "{}", error.len());
        assert!(error.ends_with("... (more permissions are missing than are listed)"), "{error}");
    }
}
