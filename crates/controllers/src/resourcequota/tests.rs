use apimachinery::value;
use controller::testing::{FakeCluster, check_properties, kubelet, settle};

use super::*;

fn world(spec: Value) -> FakeCluster {
    let mut world = FakeCluster::new(Time::from_unix(1_700_000_000, 0));
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

fn used(world: &FakeCluster) -> String {
    world.get(&kinds::RESOURCE_QUOTAS, &Key::new("a", "q")).unwrap()["status"]["used"].to_string()
}

#[test]
fn running_pods_are_counted_and_terminated_pods_are_not() {
    let hard = value!({"pods": "9", "requests.cpu": "4", "limits.memory": "8Gi", "count/pods": "9", "count/deployments.apps": "1"});
    let mut world = world(value!({"hard": hard}));
    check_properties::<ResourceQuota>(&world, |_| false);
    settle::<ResourceQuota>(&mut world, |_| false);
    let expect =
        r#"{"count/deployments.apps":"0","count/pods":"3","limits.memory":"1Gi","pods":"2","requests.cpu":"500m"}"#;
    assert_eq!(used(&world), expect);
    world.delete(&kinds::PODS, &Key::new("a", "x"), None, Some(0));
    settle::<ResourceQuota>(&mut world, |_| false);
    let expect = r#"{"count/deployments.apps":"0","count/pods":"2","limits.memory":"0","pods":"1","requests.cpu":"0"}"#;
    assert_eq!(used(&world), expect);
}

/// Simulates admission: creates a pod if the quota allows it, and adds its usage.
fn admit(world: &mut FakeCluster, name: &str) -> bool {
    let key = Key::new("a", "q");
    let quota = world.get(&kinds::RESOURCE_QUOTAS, &key).unwrap();
    let amount = |at: &[&str]| quota.str_at(at).and_then(|text| text.parse::<usize>().ok());
    let (Some(used), Some(hard)) = (amount(&["status", "used", "pods"]), amount(&["status", "hard", "pods"])) else {
        return false;
    };
    if used >= hard {
        return false;
    }
    world.add(&kinds::PODS, value!({"metadata": {"namespace": "a", "name": name}, "spec": {"containers": [{}]}}));
    world.change(&kinds::RESOURCE_QUOTAS, &key, |quota| {
        let used = value!({"status": {"used": {"pods": ((used + 1).to_string())}}});
        *quota = apimachinery::patch::merge::apply(std::mem::take(quota), used);
    });
    true
}

fn running(world: &FakeCluster) -> usize {
    let ended = |pod: &Value| pod.str_at(&["status", "phase"]) == Some("Succeeded");
    world.of("pods").in_namespace("a").filter(|it| !ended(&it.value)).count()
}

fn look(world: &FakeCluster, view: &Cache) -> Plan {
    controller::decide::<ResourceQuota>(view, &Key::new("a", "q"), world.now)
}

#[test]
fn recalculation_waits_for_a_cache_as_new_as_the_quota() {
    let mut world = world(value!({"hard": {"pods": "9"}}));
    settle::<ResourceQuota>(&mut world, |_| false);
    assert_eq!(used(&world), r#"{"pods":"2"}"#);
    world.hold("pods");
    assert!(admit(&mut world, "new"));
    let view = world.cache::<ResourceQuota>();
    let asks = ResourceQuota::asks(&view, &Key::new("a", "q"), world.now);
    assert_eq!(asks, [Ask { as_of: Some(world.revision()), ..Ask::all(&kinds::PODS, "a") }]);
    let expect = "wake at 2023-11-14T22:13:21Z\nwaiting: pods are cached at an older version than the quota's\n";
    assert_eq!(look(&world, &view).to_string(), expect);
    drop(view);
    let plan = look(&world, &world.cache_for::<ResourceQuota>(&Key::new("a", "q"), None));
    assert_eq!(plan, Plan::default(), "the server says what the cache does not");
    world.show("pods");
    assert_eq!(look(&world, &world.cache::<ResourceQuota>()), Plan::default());
}

#[test]
fn a_lagging_watch_never_admits_more_than_the_quota() {
    for seed in 0..200_u64 {
        let mut state = seed;
        let mut roll = |sides: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % sides
        };
        let mut world = world(value!({"hard": {"pods": "4"}}));
        settle::<ResourceQuota>(&mut world, |_| false);
        for step in 0..60 {
            match roll(8) {
                0..3 => drop(admit(&mut world, &format!("p{step}"))),
                3 => {
                    let pods = world.of("pods");
                    let at = usize::try_from(roll(pods.len().max(1) as u64)).unwrap();
                    if let Some(pod) = pods.iter().nth(at) {
                        world.delete(&kinds::PODS, &pod.key, None, Some(0));
                    }
                }
                4 => world.hold("pods"),
                5 => world.show("pods"),
                chance => {
                    let key = Key::new("a", "q");
                    let view = if chance == 6 {
                        world.cache::<ResourceQuota>()
                    } else {
                        world.cache_for::<ResourceQuota>(&key, None)
                    };
                    let plan = look(&world, &view);
                    drop(view);
                    plan.actions.iter().for_each(|action| world.execute(action).unwrap());
                }
            }
            let pods = running(&world);
            assert!(pods <= 4, "seed {seed}, step {step}: {pods} pods\n{}", world.log.join("\n"));
        }
        world.show("pods");
        settle::<ResourceQuota>(&mut world, |_| false);
        let pods = running(&world);
        assert_eq!(used(&world), format!(r#"{{"pods":"{pods}"}}"#), "seed {seed}");
    }
}

#[test]
fn unwatched_kinds_are_counted_when_new_and_every_five_minutes() {
    let mut world =
        world(value!({"hard": {"count/widgets.example.org": "4", "count/leases.coordination.k8s.io": "2"}}));
    let (key, minute) = (Key::new("a", "q"), Duration::from_seconds(60));
    let lease = |name: &str| value!({"metadata": {"namespace": "a", "name": name}});
    world.add(&kinds::LEASES, lease("one"));
    let mut memory = None;
    let mut look = |world: &mut FakeCluster| {
        let view = world.cache_for::<ResourceQuota>(&key, memory.as_ref());
        let plan = controller::decide::<ResourceQuota>(&view, &key, world.now);
        drop(view);
        plan.actions.iter().for_each(|action| world.execute(action).unwrap());
        memory.clone_from(&plan.remember);
        (used(world), plan.wake_at.map(|at| at.since(world.now).whole_seconds()))
    };
    let one = r#"{"count/leases.coordination.k8s.io":"1"}"#.to_owned();
    assert_eq!(look(&mut world), (one.clone(), Some(300)), "nobody knows widgets");
    world.add(&kinds::LEASES, lease("two"));
    world.now = world.now.plus(minute);
    assert_eq!(look(&mut world), (one, Some(240)), "the server adds what is created");
    world.now = world.now.plus(Duration::from_seconds(240));
    assert_eq!(look(&mut world), (r#"{"count/leases.coordination.k8s.io":"2"}"#.to_owned(), Some(300)));
    let spec = value!({"group": "example.org", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
        "versions": [{"name": "v1", "served": true}]});
    world.add(&kinds::CUSTOM_RESOURCE_DEFINITIONS, value!({"metadata": {"name": "widgets.example.org"}, "spec": spec}));
    let asks = ResourceQuota::asks(
        &world.cache::<ResourceQuota>().reminded(Some(world.now.to_string().into())),
        &key,
        world.now,
    );
    let quota = world.get(&kinds::RESOURCE_QUOTAS, &key).unwrap().clone();
    let widgets =
        Ask::all(&apimachinery::Resource::namespaced("example.org", "v1", "widgets", "Widget"), "a").since(&quota);
    assert!(asks.iter().eq([&widgets]), "it is new to the quota: {asks:?}");
    world.answer(&widgets, Ok(value!({"items": [{}, {}, {}]})));
    let both = r#"{"count/leases.coordination.k8s.io":"2","count/widgets.example.org":"3"}"#.to_owned();
    assert_eq!(look(&mut world), (both, Some(300)));
}

#[test]
fn quota_scopes_limit_the_counted_pods() {
    let mut world = world(value!({"hard": {"pods": "9"}, "scopes": ["BestEffort"]}));
    settle::<ResourceQuota>(&mut world, kubelet);
    assert_eq!(used(&world), r#"{"pods":"1"}"#);
}
