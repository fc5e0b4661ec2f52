use api::resources::PODS;
use apimachinery::value;
use controller::testing::{FakeCluster, check_properties, kubelet, run_until_stable};

use super::*;

fn new_cluster(spec: Value) -> FakeCluster {
    let mut cluster = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
    cluster.add(&kinds::RESOURCE_QUOTAS, value!({"metadata": {"namespace": "a", "name": "q"}, "spec": spec}));
    for (name, namespace, phase) in [("x", "a", "Running"), ("y", "a", "Succeeded"), ("z", "b", "Running")] {
        let resources = value!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "1Gi"}});
        cluster.add(
            &kinds::PODS,
            value!({"metadata": {"namespace": namespace, "name": name},
                "spec": {"containers": [{"name": "c", "resources": resources}]}, "status": {"phase": phase}}),
        );
    }
    cluster.add(&kinds::PODS, value!({"metadata": {"namespace": "a", "name": "best"}, "spec": {"containers": [{}]}}));
    cluster
}

fn used(cluster: &FakeCluster) -> String {
    cluster.get(&kinds::RESOURCE_QUOTAS, &Key::new("a", "q")).unwrap()["status"]["used"].to_string()
}

#[test]
fn running_pods_are_counted_and_terminated_pods_are_not() {
    let hard = value!({"pods": "9", "requests.cpu": "4", "limits.memory": "8Gi", "count/pods": "9", "count/deployments.apps": "1"});
    let mut cluster = new_cluster(value!({"hard": hard}));
    check_properties::<ResourceQuota>(&cluster, |_| false);
    run_until_stable::<ResourceQuota>(&mut cluster, |_| false);
    let expect =
        r#"{"count/deployments.apps":"0","count/pods":"3","limits.memory":"1Gi","pods":"2","requests.cpu":"500m"}"#;
    assert_eq!(used(&cluster), expect);
    cluster.delete(&kinds::PODS, &Key::new("a", "x"), None, Some(0));
    run_until_stable::<ResourceQuota>(&mut cluster, |_| false);
    let expect = r#"{"count/deployments.apps":"0","count/pods":"2","limits.memory":"0","pods":"1","requests.cpu":"0"}"#;
    assert_eq!(used(&cluster), expect);
}

/// Simulates admission: creates a pod if the quota allows it, and adds its usage.
fn admit(cluster: &mut FakeCluster, name: &str) -> bool {
    let key = Key::new("a", "q");
    let quota = cluster.get(&kinds::RESOURCE_QUOTAS, &key).unwrap();
    let amount = |at: &[&str]| quota.str_at(at).and_then(|text| text.parse::<usize>().ok());
    let (Some(used), Some(hard)) = (amount(&["status", "used", "pods"]), amount(&["status", "hard", "pods"])) else {
        return false;
    };
    if used >= hard {
        return false;
    }
    cluster.add(&kinds::PODS, value!({"metadata": {"namespace": "a", "name": name}, "spec": {"containers": [{}]}}));
    cluster.change(&kinds::RESOURCE_QUOTAS, &key, |quota| {
        let used = value!({"status": {"used": {"pods": ((used + 1).to_string())}}});
        *quota = apimachinery::patch::merge::apply(std::mem::take(quota), used);
    });
    true
}

fn running(cluster: &FakeCluster) -> usize {
    let is_terminal = |pod: &Value| pod.str_at(&["status", "phase"]) == Some("Succeeded");
    cluster.of(PODS).in_namespace("a").filter(|it| !is_terminal(&it.value)).count()
}

fn plan_with(cluster: &FakeCluster, view: &Cache) -> Plan {
    controller::decide::<ResourceQuota>(view, &(), &Key::new("a", "q"), cluster.now)
}

#[test]
fn recalculation_waits_for_a_cache_as_new_as_the_quota() {
    let mut cluster = new_cluster(value!({"hard": {"pods": "9"}}));
    run_until_stable::<ResourceQuota>(&mut cluster, |_| false);
    assert_eq!(used(&cluster), r#"{"pods":"2"}"#);
    cluster.hold(PODS);
    assert!(admit(&mut cluster, "new"));
    let view = cluster.cache::<ResourceQuota>();
    let queries = ResourceQuota::queries(&view, &Key::new("a", "q"), cluster.now);
    assert_eq!(queries, [ServerQuery { as_of: Some(cluster.revision()), ..ServerQuery::all(&kinds::PODS, "a") }]);
    let expect = "wake at 2023-11-14T22:13:21Z\nwaiting: pods are cached at an older version than the quota's\n";
    assert_eq!(plan_with(&cluster, &view).to_string(), expect);
    drop(view);
    let plan = plan_with(&cluster, &cluster.cache_for::<ResourceQuota>(&Key::new("a", "q"), None));
    assert_eq!(plan, Plan::default(), "the server says what the cache does not");
    cluster.show(PODS);
    assert_eq!(plan_with(&cluster, &cluster.cache::<ResourceQuota>()), Plan::default());
}

#[test]
fn lagging_watch_never_admits_more_than_the_quota() {
    for seed in 0..200_u64 {
        let mut state = seed;
        let mut roll = |sides: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % sides
        };
        let mut cluster = new_cluster(value!({"hard": {"pods": "4"}}));
        run_until_stable::<ResourceQuota>(&mut cluster, |_| false);
        for step in 0..60 {
            match roll(8) {
                0..3 => drop(admit(&mut cluster, &format!("p{step}"))),
                3 => {
                    let pods = cluster.of(PODS);
                    let at = usize::try_from(roll(pods.len().max(1) as u64)).unwrap();
                    if let Some(pod) = pods.iter().nth(at) {
                        cluster.delete(&kinds::PODS, &pod.key, None, Some(0));
                    }
                }
                4 => cluster.hold(PODS),
                5 => cluster.show(PODS),
                choice => {
                    let key = Key::new("a", "q");
                    let view = if choice == 6 {
                        cluster.cache::<ResourceQuota>()
                    } else {
                        cluster.cache_for::<ResourceQuota>(&key, None)
                    };
                    let plan = plan_with(&cluster, &view);
                    drop(view);
                    plan.actions.iter().for_each(|action| cluster.execute(action).unwrap());
                }
            }
            let pods = running(&cluster);
            assert!(pods <= 4, "seed {seed}, step {step}: {pods} pods\n{}", cluster.log.join("\n"));
        }
        cluster.show(PODS);
        run_until_stable::<ResourceQuota>(&mut cluster, |_| false);
        let pods = running(&cluster);
        assert_eq!(used(&cluster), format!(r#"{{"pods":"{pods}"}}"#), "seed {seed}");
    }
}

#[test]
fn unwatched_kinds_are_counted_when_new_and_every_five_minutes() {
    let mut cluster =
        new_cluster(value!({"hard": {"count/widgets.example.org": "4", "count/leases.coordination.k8s.io": "2"}}));
    let (key, minute) = (Key::new("a", "q"), Duration::from_seconds(60));
    let lease = |name: &str| value!({"metadata": {"namespace": "a", "name": name}});
    cluster.add(&kinds::LEASES, lease("one"));
    let mut memory = None;
    let mut reconcile = |cluster: &mut FakeCluster| {
        let view = cluster.cache_for::<ResourceQuota>(&key, memory.as_ref());
        let plan = controller::decide::<ResourceQuota>(&view, &(), &key, cluster.now);
        drop(view);
        plan.actions.iter().for_each(|action| cluster.execute(action).unwrap());
        memory.clone_from(&plan.remember);
        (used(cluster), plan.wake_at.map(|at| at.since(cluster.now).whole_seconds()))
    };
    let one = r#"{"count/leases.coordination.k8s.io":"1"}"#.to_owned();
    assert_eq!(reconcile(&mut cluster), (one.clone(), Some(300)), "nobody knows widgets");
    cluster.add(&kinds::LEASES, lease("two"));
    cluster.now = cluster.now.plus(minute);
    assert_eq!(reconcile(&mut cluster), (one, Some(240)), "the server adds what is created");
    cluster.now = cluster.now.plus(Duration::from_seconds(240));
    assert_eq!(reconcile(&mut cluster), (r#"{"count/leases.coordination.k8s.io":"2"}"#.to_owned(), Some(300)));
    let spec = value!({"group": "example.org", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
        "versions": [{"name": "v1", "served": true}]});
    cluster
        .add(&kinds::CUSTOM_RESOURCE_DEFINITIONS, value!({"metadata": {"name": "widgets.example.org"}, "spec": spec}));
    let queries = ResourceQuota::queries(
        &cluster.cache::<ResourceQuota>().reminded(Some(cluster.now.to_string().into())),
        &key,
        cluster.now,
    );
    let quota = cluster.get(&kinds::RESOURCE_QUOTAS, &key).unwrap().clone();
    let widgets = ServerQuery::all(&Resource::namespaced("example.org", "v1", "widgets", "Widget"), "a").since(&quota);
    assert!(queries.iter().eq([&widgets]), "it is new to the quota: {queries:?}");
    cluster.set_response(&widgets, Ok(value!({"items": [{}, {}, {}]})));
    let both = r#"{"count/leases.coordination.k8s.io":"2","count/widgets.example.org":"3"}"#.to_owned();
    assert_eq!(reconcile(&mut cluster), (both, Some(300)));
}

#[test]
fn quota_scopes_limit_the_counted_pods() {
    let mut cluster = new_cluster(value!({"hard": {"pods": "9"}, "scopes": ["BestEffort"]}));
    run_until_stable::<ResourceQuota>(&mut cluster, kubelet);
    assert_eq!(used(&cluster), r#"{"pods":"1"}"#);
}
