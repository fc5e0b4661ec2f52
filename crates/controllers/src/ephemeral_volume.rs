//! Ephemeral volume controller: creates the claims of generic ephemeral volumes, owned by the pod.

use std::convert::Infallible;

use api::resources::{EVENTS, PERSISTENT_VOLUME_CLAIMS, PODS};
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Object, Value};
use controller::{Action, Cache, Controller, EventType, Plan, Regarding, Write, kinds};

use crate::adoption;

/// Ephemeral volume controller. Its keys are pods.
pub struct EphemeralVolume;

/// A pod, and its ephemeral volumes with the existing claims of their names.
pub struct Observation<'a> {
    pod: &'a Value,
    volumes: Vec<(&'a Value, Option<&'a Value>)>,
}

impl Controller for EphemeralVolume {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "ephemeral-volume-controller";
    const READS: &'static [GroupResource] = &[PODS, PERSISTENT_VOLUME_CLAIMS];
    const WRITES: &'static [Write] = &[(PERSISTENT_VOLUME_CLAIMS, ""), (EVENTS, "")];

    fn affected_keys(_: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        let meta = Meta::of(object);
        match kind {
            PODS => keys.extend(ephemeral(object).next().map(|_| Key::of(object))),
            _ => keys.extend(
                meta.controller()
                    .filter(|owner| owner.kind() == "Pod")
                    .map(|owner| Key::new(meta.namespace(), owner.name())),
            ),
        }
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let pod = cache.get(PODS, key)?;
        let with_claim = |volume: &'a Value| {
            let name = claim_name(pod, volume);
            (volume, cache.get(PERSISTENT_VOLUME_CLAIMS, &Key::new(key.namespace.clone(), name)))
        };
        Some(Observation { pod, volumes: ephemeral(pod).map(with_claim).collect() })
    }

    fn plan(observed: &Observation<'_>, _: Time) -> Plan {
        let pod = observed.pod;
        let mut plan = Plan::default();
        if Meta::of(pod).is_deleting() {
            return plan;
        }
        for (volume, found) in &observed.volumes {
            match found {
                None => plan.push(create(pod, volume)),
                Some(found) if Meta::of(found).controller().is_some_and(|it| it.uid() == Meta::of(pod).uid()) => {}
                Some(found) => plan.push(Action::Event {
                    regarding: Regarding::object(pod),
                    kind: EventType::Warning,
                    reason: "FailedBinding",
                    message: format!(
                        "ephemeral volume controller: PVC {}/{} was not created for pod {}/{} (pod is not owner)",
                        Meta::of(found).namespace(),
                        Meta::of(found).name(),
                        Meta::of(pod).namespace(),
                        Meta::of(pod).name(),
                    ),
                }),
            }
        }
        plan
    }
}

fn ephemeral(pod: &Value) -> impl Iterator<Item = &Value> {
    pod.list_at(&["spec", "volumes"]).iter().filter(|volume| volume.get("ephemeral").is_some())
}

fn claim_name(pod: &Value, volume: &Value) -> String {
    format!("{}-{}", Meta::of(pod).name(), volume.text_at(&["name"]))
}

fn create(pod: &Value, volume: &Value) -> Action {
    let template = volume.at(&["ephemeral", "volumeClaimTemplate"]).unwrap_or(&Value::Null);
    let mut metadata = Object::new();
    metadata.insert("namespace", Meta::of(pod).namespace());
    metadata.insert("name", claim_name(pod, volume));
    for field in ["labels", "annotations"] {
        if let Some(value) = template.at(&["metadata", field]) {
            metadata.insert(field, value.clone());
        }
    }
    metadata.insert("ownerReferences", vec![adoption::reference(pod)]);
    let spec = template.get("spec").cloned().unwrap_or_else(Value::object);
    let object =
        apimachinery::value!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec});
    Action::Create { resource: kinds::PERSISTENT_VOLUME_CLAIMS.clone(), object, result_event: None }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;
    use controller::testing::{FakeCluster, check_properties, run_until_stable};

    use super::*;

    #[test]
    fn claim_owned_by_the_pod_is_created_for_each_ephemeral_volume() {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        let template = value!({"metadata": {"labels": {"l": "v"}}, "spec": {"accessModes": ["ReadWriteOnce"]}});
        let volumes =
            value!([{"name": "data", "ephemeral": {"volumeClaimTemplate": template}}, {"name": "x", "emptyDir": {}}]);
        cluster.add(&kinds::PODS, value!({"metadata": {"namespace": "a", "name": "p"}, "spec": {"volumes": volumes}}));
        check_properties::<EphemeralVolume>(&cluster, |_| false);
        run_until_stable::<EphemeralVolume>(&mut cluster, |_| false);
        let claim = cluster.get(&kinds::PERSISTENT_VOLUME_CLAIMS, &Key::new("a", "p-data")).unwrap();
        assert_eq!((Meta::of(claim).label("l"), Meta::of(claim).controller().unwrap().name()), (Some("v"), "p"));
        assert_eq!(claim["spec"]["accessModes"][0], "ReadWriteOnce".into());
        assert_eq!(cluster.of(PERSISTENT_VOLUME_CLAIMS).len(), 1);
    }

    #[test]
    fn claim_of_another_owner_is_not_used() {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        cluster.add(&kinds::PERSISTENT_VOLUME_CLAIMS, value!({"metadata": {"namespace": "a", "name": "p-data"}}));
        let volumes = value!([{"name": "data", "ephemeral": {"volumeClaimTemplate": {}}}]);
        cluster.add(&kinds::PODS, value!({"metadata": {"namespace": "a", "name": "p"}, "spec": {"volumes": volumes}}));
        run_until_stable::<EphemeralVolume>(&mut cluster, |_| false);
        assert!(
            cluster.log[0].contains("PVC a/p-data was not created for pod a/p (pod is not owner)"),
            "{:?}",
            cluster.log
        );
    }
}
