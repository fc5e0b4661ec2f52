//! ClusterRole aggregation: sets the rules of a ClusterRole with an aggregationRule to the union of the selected roles.

use std::convert::Infallible;

use api::resources::CLUSTER_ROLES;
use apimachinery::labels;
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Value, value};
use controller::{Action, Cache, Controller, Plan, Write, kinds};

pub struct ClusterRoleAggregation;

/// An aggregated ClusterRole, and all ClusterRoles sorted by name.
pub struct Observation<'a> {
    role: &'a Value,
    all: Vec<&'a Value>,
}

impl Controller for ClusterRoleAggregation {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "clusterrole-aggregation-controller";
    const READS: &'static [GroupResource] = &[CLUSTER_ROLES];
    const WRITES: &'static [Write] = &[(CLUSTER_ROLES, "")];

    fn affected_keys(cache: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        // Any role may be selected by any aggregated role.
        keys.extend(cache.of(kind).iter().filter(|entry| is_aggregated(&entry.value)).map(|entry| entry.key.clone()));
        if is_aggregated(object) {
            keys.push(Key::of(object));
        }
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let roles = cache.of(Self::READS[0]);
        let role = roles.get(key).filter(|role| is_aggregated(role))?;
        Some(Observation { role, all: roles.iter().map(|entry| &entry.value).collect() })
    }

    fn plan(observed: &Observation<'_>, _: Time) -> Plan {
        let name = Meta::of(observed.role).name();
        let mut rules: Vec<Value> = Vec::new();
        for selector in observed.role.list_at(&["aggregationRule", "clusterRoleSelectors"]) {
            let Ok(selector) = labels::from_object(Some(selector)) else {
                return Plan::waiting("a selector is invalid");
            };
            let parts =
                observed.all.iter().filter(|role| Meta::of(role).name() != name && selector.matches_object(role));
            for rule in parts.flat_map(|role| role.list_at(&["rules"])) {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
        if observed.role.list_at(&["rules"]) == rules.as_slice() {
            return Plan::default();
        }
        let object = value!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name}, "rules": rules});
        Plan::of(Action::Apply { resource: kinds::CLUSTER_ROLES.clone(), subresource: "", object })
    }
}

fn is_aggregated(role: &Value) -> bool {
    role.get("aggregationRule").is_some_and(|rule| !rule.is_null())
}

#[cfg(test)]
mod tests {
    use controller::testing::{FakeCluster, check_properties, run_until_stable};

    use super::*;

    #[test]
    fn aggregated_rules_are_the_union_of_selected_roles_without_duplicates() {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        let rule = |verb: &str| value!({"verbs": [verb], "resources": ["pods"]});
        let mut add = |name: &str, label: &str, rules: Vec<Value>| {
            cluster.add(
                &kinds::CLUSTER_ROLES,
                value!({"metadata": {"name": name, "labels": {"to": label}}, "rules": rules}),
            );
        };
        add("z", "view", vec![rule("get"), rule("list")]);
        add("a", "view", vec![rule("list"), rule("watch")]);
        add("other", "edit", vec![rule("delete")]);
        let selectors = value!([{"matchLabels": {"to": "view"}}, {"matchLabels": {"to": "none"}}]);
        cluster.add(
            &kinds::CLUSTER_ROLES,
            value!({"metadata": {"name": "view", "labels": {"to": "view"}}, "aggregationRule": {"clusterRoleSelectors": selectors},
                "rules": [(rule("stale"))]}),
        );
        check_properties::<ClusterRoleAggregation>(&cluster, |_| false);
        run_until_stable::<ClusterRoleAggregation>(&mut cluster, |_| false);
        let role = cluster.get(&kinds::CLUSTER_ROLES, &Key::cluster("view")).unwrap();
        assert_eq!(role["rules"], Value::Array(vec![rule("list"), rule("watch"), rule("get")]));
        assert_eq!(cluster.log.len(), 1);
    }
}
