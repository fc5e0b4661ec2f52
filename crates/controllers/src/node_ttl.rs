//! Node TTL controller: sets the cache TTL of kubelets for Secrets and ConfigMaps by cluster size.

use std::convert::Infallible;

use api::resources::NODES;
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Value, value};
use controller::{Action, Cache, Controller, Patch, Plan, Preconditions, Write, kinds};

const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

/// Minimum and maximum number of nodes for each TTL in seconds. The ranges overlap, so that the TTL does not alternate
/// at a boundary.
const SIZES: &[(usize, usize, &str)] =
    &[(0, 100, "0"), (90, 500, "15"), (450, 1000, "30"), (900, 2000, "60"), (1800, usize::MAX, "300")];

/// Node TTL controller. Its keys are nodes.
pub struct NodeTtl;

/// A node, and the number of nodes.
pub struct Observation<'a> {
    node: &'a Value,
    count: usize,
}

impl Controller for NodeTtl {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "ttl-controller";
    const READS: &'static [GroupResource] = &[NODES];
    const WRITES: &'static [Write] = &[(NODES, "")];

    fn affected_keys(cache: &Cache, _: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        keys.push(Key::of(object));
        // A change of the node count affects the other nodes only when the count crosses a boundary.
        let count = cache.of(NODES).len();
        if SIZES.iter().any(|(min, max, _)| count.saturating_add(1) == *min || count.checked_sub(1) == Some(*max)) {
            keys.extend(cache.of(NODES).iter().map(|it| it.key.clone()));
        }
    }

    /// Ignores updates that do not change the annotation, such as heartbeats.
    fn is_relevant_change(_: GroupResource, old: &Value, new: &Value) -> bool {
        Meta::of(old).annotation(ANNOTATION) != Meta::of(new).annotation(ANNOTATION)
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        Some(Observation { node: cache.get(NODES, key)?, count: cache.of(NODES).len() })
    }

    fn plan(observed: &Observation<'_>, _: Time) -> Plan {
        let node = observed.node;
        let annotation = Meta::of(node).annotation(ANNOTATION);
        let desired = seconds(annotation, observed.count);
        if annotation == Some(desired) || Meta::of(node).is_deleting() {
            return Plan::default();
        }
        Plan::of(Action::Patch {
            resource: kinds::NODES.clone(),
            key: Key::of(node),
            subresource: "",
            only_if: Preconditions::same(node),
            patch: Patch::Merge(value!({"metadata": {"annotations": {"node.alpha.kubernetes.io/ttl": desired}}})),
        })
    }
}

/// Returns the TTL for a number of nodes. The current TTL is kept while its range contains the number.
fn seconds(annotation: Option<&str>, count: usize) -> &'static str {
    let current = SIZES.iter().find(|(_, _, seconds)| Some(*seconds) == annotation);
    let found = match current {
        Some((min, max, _)) if (*min..=*max).contains(&count) => current,
        Some((min, _, _)) if count < *min => SIZES.iter().rev().find(|(min, _, _)| count >= *min),
        _ => SIZES.iter().find(|(_, max, _)| count <= *max),
    };
    found.map_or("0", |(_, _, seconds)| seconds)
}

#[cfg(test)]
mod tests {
    use controller::testing::{FakeCluster, check_properties, run_until_stable};

    use super::*;

    #[test]
    fn ttl_grows_with_the_cluster_with_hysteresis() {
        let check = |annotation: Option<&str>, count: usize, expect: &str| {
            assert_eq!(seconds(annotation, count), expect, "{annotation:?} {count}");
        };
        check(None, 100, "0");
        check(None, 101, "15");
        check(Some("0"), 101, "15");
        check(Some("15"), 95, "15");
        check(Some("15"), 89, "0");
        check(Some("0"), 5000, "300");
        check(Some("300"), 1, "0");
        check(Some("nonsense"), 1, "0");
    }

    #[test]
    fn every_node_is_annotated() {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        for number in 0..101 {
            let annotations = if number % 2 == 0 { value!({"node.alpha.kubernetes.io/ttl": "0"}) } else { value!({}) };
            let metadata = value!({"name": (format!("n{number}")), "annotations": annotations});
            cluster.add(&kinds::NODES, value!({"metadata": metadata}));
        }
        check_properties::<NodeTtl>(&cluster, |_| false);
        run_until_stable::<NodeTtl>(&mut cluster, |_| false);
        assert!(cluster.of(NODES).iter().all(|it| Meta::of(&it.value).annotation(ANNOTATION) == Some("15")));
    }
}
