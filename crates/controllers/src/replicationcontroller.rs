//! ReplicationController controller: the same rules as for ReplicaSets.

use api::resources::{EVENTS, PODS, REPLICATION_CONTROLLERS};
use apimachinery::{GroupResource, Resource};
use controller::{Write, kinds};

use crate::replicaset::{Kind, Replicas};

pub type ReplicationController = Replicas<OfReplicationControllers>;

pub struct OfReplicationControllers;

impl Kind for OfReplicationControllers {
    const KIND: &'static str = "ReplicationController";
    const COMPONENT: &'static str = "replication-controller";
    const READS: &'static [GroupResource] = &[REPLICATION_CONTROLLERS, PODS];
    const WRITES: &'static [Write] = &[(PODS, ""), (REPLICATION_CONTROLLERS, "status"), (EVENTS, "")];
    const RESOURCE: &'static Resource = &kinds::REPLICATION_CONTROLLERS;
    const REPORTS_TERMINATING: bool = false;
}

#[cfg(test)]
mod tests {
    use apimachinery::time::Time;
    use apimachinery::{Key, value};
    use controller::testing::{FakeCluster, check_properties, kubelet, run_until_stable};

    use super::*;

    #[test]
    fn replicationcontroller_converges_to_its_replicas() {
        let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
        let template = value!({"metadata": {"labels": {"app": "rc"}}, "spec": {"containers": []}});
        let spec = value!({"replicas": 2, "selector": {"app": "rc"}, "template": template});
        cluster.add(
            &kinds::PODS,
            value!({"metadata": {"namespace": "a", "name": "x", "labels": {"app": "rc"}}, "spec": {}}),
        );
        let set = value!({"metadata": {"namespace": "a", "name": "rc"}, "spec": spec});
        cluster.add(&kinds::REPLICATION_CONTROLLERS, set);
        check_properties::<ReplicationController>(&cluster, kubelet);
        run_until_stable::<ReplicationController>(&mut cluster, kubelet);
        assert_eq!(cluster.of(PODS).len(), 2, "one adopted and one made");
        let status = &cluster.get(&kinds::REPLICATION_CONTROLLERS, &Key::new("a", "rc")).unwrap()["status"];
        let expect =
            r#"{"availableReplicas":2,"fullyLabeledReplicas":2,"observedGeneration":1,"readyReplicas":2,"replicas":2}"#;
        assert_eq!(status.to_string(), expect);
    }
}
