//! Says in the status of a ResourceQuota what its namespace uses.
//!
//! The API server adds to it what each write uses, in the same transaction. This controller starts the count, and corrects it
//! when something is deleted or ends. Like upstream's it may see a quota before the pod that was just added to it, and then
//! counts one too few until it sees the pod: in that moment the server lets one more in than the quota allows.

use std::collections::BTreeSet;

use api::quota::amounts::{self, Amounts};
use api::quota::{scopes, usage};
use machinery::meta::Meta;
use machinery::quantity::{Format, Quantity};
use machinery::time::Time;
use machinery::{Key, Object, Str, Value};
use reconcile::{Action, Cache, Controller, Plan, kinds};

/// The controller.
pub struct ResourceQuota;

/// A quota, and the objects of each kind in its namespace that it counts.
pub struct Observed<'a> {
    quota: &'a Value,
    objects: Vec<(&'static str, Vec<&'a Value>)>,
}

impl Controller for ResourceQuota {
    type Observed<'a> = Observed<'a>;
    const NAME: &'static str = "resourcequota-controller";
    // DEVIATION: `count/…` of custom resources is not corrected after deletions; upstream counts every kind that discovery finds.
    const READS: &'static [&'static str] = &[
        "resourcequotas",
        "pods",
        "services",
        "persistentvolumeclaims",
        "configmaps",
        "secrets",
        "replicationcontrollers",
        "serviceaccounts",
        "deployments.apps",
        "replicasets.apps",
        "statefulsets.apps",
        "daemonsets.apps",
        "jobs.batch",
        "cronjobs.batch",
        "resourceclaims.resource.k8s.io",
    ];
    const WRITES: &'static [&'static str] = &["resourcequotas/status"];

    fn concerns(cache: &Cache, kind: &str, object: &Value, keys: &mut Vec<Key>) {
        if kind == "resourcequotas" {
            keys.push(Key::of(object));
        }
        // What was created or grew, the server has added already; it is counted again all the same, since the sum is cheap.
        for entry in cache.of("resourcequotas").in_namespace(Meta::of(object).namespace()) {
            if hard(&entry.value).keys().any(|name| counted_by(kind, name)) {
                keys.push(entry.key.clone());
            }
        }
    }

    fn observe<'a>(cache: &'a Cache, key: &Key) -> Option<Observed<'a>> {
        let quota = cache.get("resourcequotas", key)?;
        let hard = hard(quota);
        let counted = Self::READS.iter().filter(|kind| hard.keys().any(|name| counted_by(kind, name)));
        let objects = counted.map(|kind| (*kind, cache.in_namespace(kind, &key.namespace).collect()));
        Some(Observed { quota, objects: objects.collect() })
    }

    fn plan(observed: &Observed<'_>, now: Time) -> Plan {
        let quota = observed.quota;
        let hard = hard(quota);
        let mut used = Amounts::new();
        let mut known: BTreeSet<Str> = BTreeSet::new();
        for (kind, objects) in &observed.objects {
            let (plural, group) = split(kind);
            known.extend(hard.keys().filter(|name| usage::counts(group, plural, name)).cloned());
            for object in objects.iter().filter(|object| scopes::match_all(quota, group, plural, object)) {
                amounts::add(&mut used, &usage::of(group, plural, object, now));
            }
        }
        used.retain(|name, _| known.contains(name));
        for name in known {
            used.entry(name).or_insert_with(|| Quantity::new(0, Format::DecimalSI));
        }
        let same = |field: &str, amounts: &Amounts| {
            quota.at(&["status", field]).is_some() && amounts::read(quota.at(&["status", field])) == *amounts
        };
        if same("hard", &hard) && same("used", &used) {
            return Plan::default();
        }
        let status: Object = [("hard", amounts::write(&hard)), ("used", amounts::write(&used))].into_iter().collect();
        let mut object = quota.clone();
        object.as_object_mut().expect("an object of a cache is one").insert("status", status);
        Plan::of(Action::UpdateStatus { resource: kinds::RESOURCE_QUOTAS.clone(), object })
    }
}

fn hard(quota: &Value) -> Amounts {
    amounts::read(quota.at(&["spec", "hard"]))
}

fn counted_by(kind: &str, name: &str) -> bool {
    let (plural, group) = split(kind);
    usage::counts(group, plural, name)
}

/// `deployments.apps` as plural and group.
fn split(kind: &str) -> (&str, &str) {
    kind.split_once('.').unwrap_or((kind, ""))
}

#[cfg(test)]
mod tests {
    use machinery::value;
    use reconcile::testing::{World, kubelet, obeys_laws, settle};

    use super::*;

    fn world(spec: Value) -> World {
        let mut world = World::new(Time::from_unix(1_700_000_000, 0));
        world.add(&kinds::RESOURCE_QUOTAS, value!({"metadata": {"namespace": "a", "name": "q"}, "spec": spec}));
        for (name, namespace, phase) in [("x", "a", "Running"), ("y", "a", "Succeeded"), ("z", "b", "Running")] {
            let resources = value!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "1Gi"}});
            world.add(
                &kinds::PODS,
                value!({"metadata": {"namespace": namespace, "name": name},
                    "spec": {"containers": [{"name": "c", "resources": resources}]}, "status": {"phase": phase}}),
            );
        }
        world.add(&kinds::PODS, value!({"metadata": {"namespace": "a", "name": "best"}, "spec": {"containers": [{}]}}));
        world
    }

    fn used(world: &World) -> String {
        world.get(&kinds::RESOURCE_QUOTAS, &Key::new("a", "q")).unwrap()["status"]["used"].to_string()
    }

    #[test]
    fn what_runs_in_the_namespace_is_counted_and_what_ended_is_not() {
        let hard = value!({"pods": "9", "requests.cpu": "4", "limits.memory": "8Gi", "count/pods": "9", "count/deployments.apps": "1"});
        let mut world = world(value!({"hard": hard}));
        obeys_laws::<ResourceQuota>(&world, |_| false);
        settle::<ResourceQuota>(&mut world, |_| false);
        let expect =
            r#"{"count/deployments.apps":"0","count/pods":"3","limits.memory":"1Gi","pods":"2","requests.cpu":"500m"}"#;
        assert_eq!(used(&world), expect);
        world.delete(&kinds::PODS, &Key::new("a", "x"), None, Some(0));
        settle::<ResourceQuota>(&mut world, |_| false);
        let expect =
            r#"{"count/deployments.apps":"0","count/pods":"2","limits.memory":"0","pods":"1","requests.cpu":"0"}"#;
        assert_eq!(used(&world), expect);
    }

    #[test]
    fn a_scope_narrows_what_is_counted() {
        let mut world = world(value!({"hard": {"pods": "9"}, "scopes": ["BestEffort"]}));
        settle::<ResourceQuota>(&mut world, kubelet);
        assert_eq!(used(&world), r#"{"pods":"1"}"#);
    }
}
