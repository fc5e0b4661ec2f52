//! Volume expansion: emits the ExternalExpanding event for claims that await expansion by their CSI driver's resizer.

use std::convert::Infallible;

use api::amounts::quantity;
use api::resources::{EVENTS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES};
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Value};
use controller::{Action, Cache, Controller, EventType, Plan, Regarding, Write};

/// Volume expansion controller. Its keys are claims.
pub struct Expander;

/// A claim, and the volume it is bound to.
pub struct Observation<'a> {
    claim: &'a Value,
    volume: &'a Value,
}

impl Controller for Expander {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "volume_expand";
    const READS: &'static [GroupResource] = &[PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES];
    const WRITES: &'static [Write] = &[(EVENTS, "")];

    fn affected_keys(_: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        keys.extend((kind == PERSISTENT_VOLUME_CLAIMS && wants_more(object)).then(|| Key::of(object)));
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let claim = cache.get(PERSISTENT_VOLUME_CLAIMS, key).filter(|claim| wants_more(claim))?;
        let volume = cache.get(PERSISTENT_VOLUMES, &Key::cluster(claim.text_at(&["spec", "volumeName"])))?;
        Some(Observation { claim, volume })
    }

    fn plan(observed: &Observation<'_>, _: Time) -> Plan {
        let Observation { claim, volume } = observed;
        if volume.text_at(&["spec", "claimRef", "uid"]) != Meta::of(claim).uid() {
            return Plan::default();
        }
        let event = Action::Event {
            regarding: Regarding::object(claim),
            kind: EventType::Normal,
            reason: "ExternalExpanding",
            message: "waiting for an external controller to expand this PVC".to_owned(),
        };
        Plan { actions: vec![event], ..Plan::waiting("the external resizer expands the volume") }
    }
}

/// Whether a bound claim requests more storage than its capacity.
fn wants_more(claim: &Value) -> bool {
    let requested = claim.at(&["spec", "resources", "requests", "storage"]).and_then(quantity);
    let has = claim.at(&["status", "capacity", "storage"]).and_then(quantity);
    claim.text_at(&["status", "phase"]) == "Bound" && requested.zip(has).is_some_and(|(requested, has)| requested > has)
}

#[cfg(test)]
mod tests {
    use apimachinery::value;
    use controller::kinds;
    use controller::testing::{FakeCluster, check_properties, run_until_stable};

    use super::*;

    #[test]
    fn claim_awaiting_expansion_gets_an_event() {
        let check = |requested: &str, has: &str, phase: &str, expect: usize| {
            let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
            cluster.add(
                &kinds::PERSISTENT_VOLUME_CLAIMS,
                value!({"metadata": {"namespace": "a", "name": "c"}, "status": {"phase": phase, "capacity": {"storage": has}},
                    "spec": {"volumeName": "v", "resources": {"requests": {"storage": requested}}}}),
            );
            cluster.add(
                &kinds::PERSISTENT_VOLUMES,
                value!({"metadata": {"name": "v"}, "spec": {"claimRef": {"uid": "uid-1"}}}),
            );
            check_properties::<Expander>(&cluster, |_| false);
            run_until_stable::<Expander>(&mut cluster, |_| false);
            assert_eq!(cluster.log.len(), expect, "{requested} {has} {phase}: {:?}", cluster.log);
        };
        check("2Gi", "1Gi", "Bound", 1);
        check("1Gi", "1024Mi", "Bound", 0);
        check("2Gi", "1Gi", "Pending", 0);
    }
}
