use api::view::Pod;
use controller::testing::{FakeCluster, check_properties, run_until_stable};
use proptest::prelude::*;

use super::*;

fn start() -> Time {
    Time::from_unix(1_700_000_000, 0)
}

/// Creates ready nodes with a fresh heartbeat, one for each zone number.
fn new_cluster(zones: &[usize]) -> FakeCluster {
    let mut cluster = FakeCluster::new(start());
    for (at, zone) in zones.iter().enumerate() {
        let conditions = value!([{"type": "Ready", "status": "True", "lastHeartbeatTime": (start().to_string())}]);
        cluster.add(
            &kinds::NODES,
            value!({"metadata": {"name": (format!("n{at}")), "labels": {"topology.kubernetes.io/zone": (format!("z{zone}"))}},
                "status": {"conditions": conditions}}),
        );
    }
    cluster
}

fn renew(cluster: &mut FakeCluster, names: &[&str]) {
    let now = cluster.now.micro().to_string();
    for name in names {
        let key = Key::new(LEASES, *name);
        let lease = value!({"metadata": {"namespace": LEASES, "name": (*name)}, "spec": {"renewTime": (now.as_str())}});
        if cluster.get(&kinds::LEASES, &key).is_some() {
            cluster.remove(&kinds::LEASES, &key);
        }
        cluster.add(&kinds::LEASES, lease);
    }
}

fn plan(cluster: &FakeCluster, name: &str) -> Plan {
    controller::decide::<NodeLifecycle>(
        &cluster.cache::<NodeLifecycle>(),
        &Config::default(),
        &Key::cluster(name),
        cluster.now,
    )
}

/// Executes the plans for one node until no action is left for now.
fn act(cluster: &mut FakeCluster, name: &str) {
    for _ in 0..10 {
        let plan = plan(cluster, name);
        if plan.actions.is_empty() {
            return;
        }
        plan.actions.iter().for_each(|action| cluster.execute(action).unwrap());
    }
    panic!("{name} does not settle");
}

fn taints(cluster: &FakeCluster, name: &str) -> Vec<String> {
    let node = cluster.get(&kinds::NODES, &Key::cluster(name)).unwrap();
    let name = |taint: &Value| {
        format!("{}:{}", taint.text_at(&["key"]).trim_start_matches("node.kubernetes.io/"), taint.text_at(&["effect"]))
    };
    node.list_at(&["spec", "taints"]).iter().map(name).collect()
}

#[test]
fn unresponsive_node_becomes_unknown_and_its_pods_not_ready() {
    let mut cluster = new_cluster(&[0, 0]);
    cluster.add(
        &kinds::PODS,
        value!({"metadata": {"namespace": "a", "name": "p"}, "spec": {"nodeName": "n0"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    renew(&mut cluster, &["n0", "n1"]);
    assert_eq!(plan(&cluster, "n0").wake_at, Some(start().plus(Duration::from_seconds(50))));
    cluster.now = start().plus(Duration::from_seconds(51));
    renew(&mut cluster, &["n1"]);
    act(&mut cluster, "n0");
    act(&mut cluster, "n1");
    let node = cluster.get(&kinds::NODES, &Key::cluster("n0")).unwrap();
    let condition = condition::find(node, "Ready").unwrap();
    assert_eq!(
        (condition["status"].as_str(), condition["reason"].as_str()),
        (Some("Unknown"), Some("NodeStatusUnknown"))
    );
    let never = condition::find(node, "DiskPressure").unwrap();
    assert_eq!(never["reason"], "NodeStatusNeverUpdated".into());
    assert_eq!(taints(&cluster, "n0"), ["unreachable:NoSchedule", "unreachable:NoExecute"]);
    assert!(!Pod(cluster.get(&kinds::PODS, &Key::new("a", "p")).unwrap()).is_ready());
    assert_eq!(taints(&cluster, "n1"), [""; 0]);
}

#[test]
fn node_with_another_clock_becomes_unknown_after_the_grace_period() {
    for skew in [-3600, 3600] {
        let mut cluster = new_cluster(&[0, 0]);
        cluster.now = start().plus(Duration::from_seconds(10));
        let renewed = cluster.now.plus(Duration::from_seconds(skew)).micro().to_string();
        let lease =
            value!({"metadata": {"namespace": LEASES, "name": "n0"}, "spec": {"renewTime": (renewed.as_str())}});
        cluster.add(&kinds::LEASES, lease);
        assert_eq!(plan(&cluster, "n0").actions, [], "{skew}");
        assert_eq!(plan(&cluster, "n0").wake_at, Some(start().plus(Duration::from_seconds(60))), "{skew}");
        cluster.now = start().plus(Duration::from_seconds(60));
        assert!(!plan(&cluster, "n0").actions.is_empty(), "{skew}");
    }
}

#[test]
fn either_a_renewed_lease_or_a_heartbeat_keeps_a_node_ready() {
    let mut cluster = new_cluster(&[0, 0]);
    renew(&mut cluster, &["n0"]);
    cluster.now = start().plus(Duration::from_seconds(40));
    let now = cluster.now.to_string();
    cluster.change(&kinds::NODES, &Key::cluster("n0"), |node| {
        let conditions = value!([{"type": "Ready", "status": "True", "lastHeartbeatTime": (now.as_str())}]);
        node.get_mut("status").unwrap().as_object_mut().unwrap().insert("conditions", conditions);
    });
    assert_eq!(plan(&cluster, "n0").wake_at, Some(start().plus(Duration::from_seconds(90))));
}

#[test]
fn recovered_node_loses_only_the_controllers_taints() {
    let mut cluster = new_cluster(&[0, 0]);
    cluster.change(&kinds::NODES, &Key::cluster("n0"), |node| {
        *node = apimachinery::patch::merge::apply(
            node.take(),
            value!({"spec": {"unschedulable": true, "taints": [{"key": "dedicated", "effect": "NoExecute"},
                {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]}}),
        );
    });
    act(&mut cluster, "n0");
    assert_eq!(taints(&cluster, "n0"), ["dedicated:NoExecute", "unschedulable:NoSchedule"]);
}

#[test]
fn no_execute_taints_are_rate_limited_per_zone() {
    let mut cluster = new_cluster(&[0, 0, 0, 0, 0]);
    cluster.now = start().plus(Duration::from_seconds(60));
    renew(&mut cluster, &["n2", "n3", "n4"]);
    act(&mut cluster, "n0");
    act(&mut cluster, "n1");
    assert_eq!(taints(&cluster, "n0"), ["unreachable:NoSchedule", "unreachable:NoExecute"]);
    assert_eq!(taints(&cluster, "n1"), ["unreachable:NoSchedule"], "one in ten seconds");
    assert_eq!(plan(&cluster, "n1").wake_at, Some(cluster.now.plus(Duration::from_seconds(10))));
    cluster.now = cluster.now.plus(Duration::from_seconds(10));
    act(&mut cluster, "n1");
    assert_eq!(taints(&cluster, "n1").len(), 2);
}

#[test]
fn no_node_gets_no_execute_if_all_zones_are_unhealthy() {
    let mut cluster = new_cluster(&[0, 1]);
    cluster.now = start().plus(Duration::from_seconds(60));
    renew(&mut cluster, &["n1"]);
    act(&mut cluster, "n0");
    assert_eq!(taints(&cluster, "n0").len(), 2);
    cluster.now = cluster.now.plus(Duration::from_seconds(60));
    act(&mut cluster, "n1");
    act(&mut cluster, "n0");
    assert_eq!(
        (taints(&cluster, "n0"), taints(&cluster, "n1")),
        (vec!["unreachable:NoSchedule".to_owned()], vec!["unreachable:NoSchedule".to_owned()])
    );
}

#[test]
fn node_conditions_become_no_schedule_taints() {
    let mut cluster = new_cluster(&[0]);
    cluster.change(&kinds::NODES, &Key::cluster("n0"), |node| {
        let conditions = value!([{"type": "Ready", "status": "True", "lastHeartbeatTime": (start().to_string())},
            {"type": "MemoryPressure", "status": "True"}, {"type": "NetworkUnavailable", "status": "True"}]);
        node.get_mut("status").unwrap().as_object_mut().unwrap().insert("conditions", conditions);
    });
    act(&mut cluster, "n0");
    assert_eq!(taints(&cluster, "n0"), ["memory-pressure:NoSchedule", "network-unavailable:NoSchedule"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    #[test]
    fn properties_hold_in_generated_clusters(zones in prop::collection::vec(0..3usize, 1..5), silent in prop::collection::vec(any::<bool>(), 5)) {
        let mut cluster = new_cluster(&zones);
        let names: Vec<String> = (0..zones.len()).filter(|at| !silent[*at]).map(|at| format!("n{at}")).collect();
        cluster.now = start().plus(Duration::from_seconds(30));
        renew(&mut cluster, &names.iter().map(String::as_str).collect::<Vec<_>>());
        check_properties::<NodeLifecycle>(&cluster, |_| false);
        run_until_stable::<NodeLifecycle>(&mut cluster, |_| false);
        for at in 0..zones.len() {
            prop_assert!(!taints(&cluster, &format!("n{at}")).is_empty(), "finally no plan has actions");
        }
    }
}
