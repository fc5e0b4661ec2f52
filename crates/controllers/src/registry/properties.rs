//! Property tests of every controller in generated clusters with objects of all kinds.

use std::collections::BTreeSet;

use apimachinery::time::Time;
use apimachinery::{Value, value};
use controller::object_graph::GlobalController;
use controller::testing::{FakeCluster, check_properties_with, kubelet};
use controller::{Controller, Setup, kinds};
use proptest::prelude::*;

use super::{ROWS, Row, SWEEPERS, Setups, Visitor, each};

/// A deterministic random number generator.
struct TestRng(u64);

impl TestRng {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn few(&mut self, sides: u64) -> i64 {
        i64::try_from(self.roll(sides)).unwrap()
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[usize::try_from(self.roll(from.len() as u64)).unwrap()]
    }
}

fn template(app: &str) -> Value {
    value!({"metadata": {"labels": {"app": app}}, "spec": {"restartPolicy": "Always", "containers": [{"name": "c", "image": "i"}]}})
}

fn named(name: &str, spec: Value) -> Value {
    value!({"metadata": {"namespace": "a", "name": name, "labels": {"app": name}}, "spec": spec})
}

fn selector(app: &str) -> Value {
    value!({"matchLabels": {"app": app}})
}

/// Adds one node; the kubelet simulation supports only one.
fn add_node(cluster: &mut FakeCluster, rng: &mut TestRng) {
    let now = cluster.now.to_string();
    let ready = value!([{"type": "Ready", "status": (rng.pick(&["True", "True", "False", "Unknown"])),
        "lastHeartbeatTime": (now.clone()), "lastTransitionTime": now}]);
    let labels = value!({"kubernetes.io/hostname": "node", "topology.kubernetes.io/zone": (rng.pick(&["x", "y"]))});
    let node = value!({"metadata": {"name": "node", "labels": labels}, "spec": {},
        "status": {"conditions": ready, "allocatable": {"cpu": "4", "pods": "10"}}});
    cluster.add(&kinds::NODES, node);
}

fn add_workloads(cluster: &mut FakeCluster, rng: &mut TestRng) {
    let sets = [(&kinds::DEPLOYMENTS, "web"), (&kinds::REPLICA_SETS, "set"), (&kinds::STATEFUL_SETS, "db")];
    for (resource, name) in sets {
        let spec = value!({"replicas": (rng.few(4)), "selector": (selector(name)), "template": (template(name)),
            "serviceName": name, "podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
            "updateStrategy": {"type": "RollingUpdate"}});
        cluster.add(resource, named(name, spec));
    }
    let spec = value!({"replicas": (rng.few(3)), "selector": {"app": "rc"}, "template": (template("rc"))});
    cluster.add(&kinds::REPLICATION_CONTROLLERS, named("rc", spec));
    let spec = value!({"selector": (selector("ds")), "template": (template("ds")), "revisionHistoryLimit": 10,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}});
    cluster.add(&kinds::DAEMON_SETS, named("ds", spec));
    let mut of_job = template("job");
    of_job.get_mut("spec").unwrap().as_object_mut().unwrap().insert("restartPolicy", "Never");
    let spec = value!({"completions": (1 + rng.few(3)), "parallelism": (1 + rng.few(2)), "backoffLimit": 6,
        "completionMode": "NonIndexed", "selector": (selector("job")), "template": of_job});
    cluster.add(&kinds::JOBS, named("job", spec));
    let spec = value!({"schedule": "0 0 1 1 *", "concurrencyPolicy": "Allow", "suspend": true,
        "jobTemplate": {"spec": {"template": (template("cron"))}}});
    cluster.add(&kinds::CRON_JOBS, named("cron", spec));
    let spec = value!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 1, "maxReplicas": 3});
    cluster.add(&kinds::HORIZONTAL_POD_AUTOSCALERS, named("web", spec));
    let spec = value!({"selector": (selector("web")), "minAvailable": (rng.few(3))});
    cluster.add(&kinds::POD_DISRUPTION_BUDGETS, named("web", spec));
}

fn add_pods(cluster: &mut FakeCluster, rng: &mut TestRng) {
    for number in 0..rng.roll(5) {
        let name = format!("p{number}");
        let phase = rng.pick(&["", "Running", "Running", "Succeeded", "Failed"]);
        let spec = value!({"nodeName": (if phase.is_empty() { "" } else { "node" }),
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]});
        let labels = value!({"app": (rng.pick(&["web", "set", "db", "other"]))});
        let status = if phase.is_empty() {
            value!({})
        } else {
            value!({"phase": phase, "podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}]})
        };
        cluster.add(
            &kinds::PODS,
            value!({"metadata": {"namespace": "a", "name": name, "labels": labels}, "spec": spec, "status": status}),
        );
    }
}

fn add_the_rest(cluster: &mut FakeCluster, rng: &mut TestRng) {
    for name in ["a", "kube-system"] {
        let spec = value!({"finalizers": ["kubernetes"]});
        cluster
            .add(&kinds::NAMESPACES, value!({"metadata": {"name": name}, "spec": spec, "status": {"phase": "Active"}}));
    }
    for app in ["web", "absent"] {
        let spec = value!({"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "ipFamilies": ["IPv4"],
            "selector": {"app": app}, "ports": [{"port": 80, "targetPort": 80, "protocol": "TCP"}]});
        cluster.add(&kinds::SERVICES, named(app, spec));
    }
    let spec = value!({"storageClassName": (rng.pick(&["", "late"])), "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    cluster.add(
        &kinds::PERSISTENT_VOLUME_CLAIMS,
        value!({"metadata": {"namespace": "a", "name": "c"}, "spec": spec, "status": {"phase": "Pending"}}),
    );
    for number in 0..rng.roll(3) {
        let spec = value!({"capacity": {"storage": (format!("{}Gi", number + 1))}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/x"}});
        cluster.add(
            &kinds::PERSISTENT_VOLUMES,
            value!({"metadata": {"name": (format!("v{number}"))}, "spec": spec, "status": {"phase": "Available"}}),
        );
    }
    cluster.add(&kinds::STORAGE_CLASSES, value!({"metadata": {"name": "late"}, "provisioner": "example.org/p", "volumeBindingMode": "WaitForFirstConsumer"}));
    let spec = value!({"hard": {"pods": "3", "configmaps": "9", "count/jobs.batch": "2"}});
    cluster.add(&kinds::RESOURCE_QUOTAS, named("q", spec));
    let rule = value!({"clusterRoleSelectors": [(value!({"matchLabels": {"part": "yes"}}))]});
    cluster.add(&kinds::CLUSTER_ROLES, value!({"metadata": {"name": "whole"}, "aggregationRule": rule, "rules": []}));
    for number in 0..rng.roll(3) {
        let rules = value!([{"apiGroups": [""], "resources": [(format!("r{number}"))], "verbs": ["get"]}]);
        let labels = value!({"part": (rng.pick(&["yes", "no"]))});
        cluster.add(
            &kinds::CLUSTER_ROLES,
            value!({"metadata": {"name": (format!("part{number}")), "labels": labels}, "rules": rules}),
        );
    }
    cluster.add(
        &kinds::STORAGE_VERSION_MIGRATIONS,
        value!({"metadata": {"name": "m"}, "spec": {"resource": {"group": "", "resource": "configmaps"}}}),
    );
    cluster.add(&kinds::CONFIG_MAPS, value!({"metadata": {"namespace": "a", "name": "m"}}));
    let annotations = value!({"kubernetes.io/service-account.name": (rng.pick(&["default", "absent"]))});
    cluster.add(&kinds::SECRETS, value!({"metadata": {"namespace": "a", "name": "t", "annotations": annotations}, "type": "kubernetes.io/service-account-token"}));
}

fn new_cluster(seed: u64) -> FakeCluster {
    let (mut cluster, mut rng) = (FakeCluster::new(Time::from_unix(1_700_000_000, 0)), TestRng(seed));
    add_the_rest(&mut cluster, &mut rng);
    add_node(&mut cluster, &mut rng);
    add_workloads(&mut cluster, &mut rng);
    add_pods(&mut cluster, &mut rng);
    cluster
}

/// Checks the properties of every row and records the visited rows.
struct Laws {
    cluster: FakeCluster,
    checked: BTreeSet<&'static str>,
}

impl Visitor for Laws {
    fn visit<C: Controller>(&mut self, row: &'static Row, setup: Setup<C>) {
        check_properties_with::<C>(&setup.config, &self.cluster, kubelet);
        self.checked.insert(row.name);
    }

    // Global controllers have separate property tests, because they read objects of every kind and send queries.
    fn visit_sweeper<S: GlobalController>(&mut self, row: &'static Row) {
        self.checked.insert(row.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn properties_of_every_controller_hold_in_mixed_clusters(seed: u64) {
        let mut properties = Laws { cluster: new_cluster(seed), checked: BTreeSet::new() };
        each(&Setups::default(), &mut properties);
        for row in ROWS.iter().chain(&SWEEPERS) {
            prop_assert!(properties.checked.contains(row.name), "{} is not checked", row.name);
        }
    }
}
