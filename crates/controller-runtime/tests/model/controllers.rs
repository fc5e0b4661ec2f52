//! A test controller run by the driver, which creates as many pods as a ConfigMap requests.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::resources::{CONFIG_MAPS, EVENTS, PODS};
use apimachinery::meta::Meta;
use apimachinery::status::{Reason, Status};
use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Value, value};
use client::cache;
use component_base::events::Recorder;
use controller::testing::FakeCluster;
use controller::{Action, Cache, Controller, EventOnResult, Plan, Regarding, Rejection, Write, kinds};
use controller_runtime::{Caches, Driver, run};
use http::Method;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::api::{Api, names};

struct Copies;

struct Observation<'a> {
    map: &'a Value,
    pods: Vec<&'a Value>,
    rejection: Option<&'a Rejection>,
}

/// The number of decisions on the ConfigMap `bad`.
static PANICS: AtomicUsize = AtomicUsize::new(0);

impl Controller for Copies {
    type Observed<'a> = Observation<'a>;
    type Config = ();
    type Effect = Infallible;
    const NAME: &'static str = "copies";
    const READS: &'static [GroupResource] = &[CONFIG_MAPS, PODS];
    const WRITES: &'static [Write] = &[(PODS, ""), (CONFIG_MAPS, "")];

    fn affected_keys(_: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>) {
        let meta = Meta::of(object);
        match kind {
            PODS => keys.extend(meta.controller().map(|owner| Key::new(meta.namespace(), owner.name()))),
            _ => keys.push(Key::of(object)),
        }
    }

    fn observe<'a>(cache: &'a Cache, _: &(), key: &Key) -> Option<Observation<'a>> {
        let map = cache.get(CONFIG_MAPS, key)?;
        let pods = cache.controlled_by(PODS, Meta::of(map).uid()).collect();
        Some(Observation { map, pods, rejection: cache.rejection() })
    }

    fn plan(observed: &Observation<'_>, _: Time) -> Plan {
        let meta = Meta::of(observed.map);
        if meta.name() == "bad" {
            PANICS.fetch_add(1, Ordering::SeqCst);
            panic!("the controller panics for this key");
        }
        let desired: usize = observed.map.str_at(&["data", "count"]).and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut plan = Plan::default();
        let owner = value!([{"apiVersion": "v1", "kind": "ConfigMap", "uid": (meta.uid()), "name": (meta.name()), "controller": true}]);
        let generate = format!("{}-", meta.name());
        let pod =
            value!({"metadata": {"namespace": (meta.namespace()), "generateName": generate, "ownerReferences": owner}});
        let result_event = EventOnResult {
            regarding: Regarding::object(observed.map),
            done_reason: "SuccessfulCreate",
            done_message: "Created pod".into(),
            failed: Some(("FailedCreate", "Error creating".into())),
        };
        for _ in observed.pods.len()..desired {
            let result_event = Some(Box::new(result_event.clone()));
            plan.push(Action::Create { resource: kinds::PODS.clone(), object: pod.clone(), result_event });
        }
        for pod in observed.pods.iter().skip(desired).filter(|pod| !Meta::of(pod).is_deleting()) {
            plan.push(Action::delete(&kinds::PODS, pod));
        }
        // The last action, which must run even if earlier ones are rejected.
        let annotation = meta.annotation("refused");
        let rejection_message = observed.rejection.map(|rejection| rejection.message.as_str());
        if annotation != rejection_message {
            let mut map = observed.map.clone();
            let mut meta = apimachinery::meta::MetaMut::of(&mut map).unwrap();
            match rejection_message {
                Some(message) => meta.set_annotation("refused", message),
                None => meta.remove_annotation("refused"),
            }
            plan.push(Action::Update { resource: kinds::CONFIG_MAPS.clone(), object: map, result_event: None });
        }
        plan
    }
}

/// Runs the controller until the returned set is dropped.
fn start(api: &Api) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let client = api.client();
    let caches = Caches::start(&client, &cache::Settings::default(), Copies::READS.iter().copied()).unwrap();
    let (events, sending) = Recorder::new(client.clone(), "copies");
    tasks.spawn(sending);
    let driver = Arc::new(Driver { client, caches, events, manager: "copies".into() });
    tasks.spawn(run::<Copies>(driver, Arc::default(), 4));
    tasks
}

fn config_map(name: &str, count: &str) -> Value {
    value!({"metadata": {"namespace": "a", "name": name}, "data": {"count": count}})
}

fn add(api: &Api, name: &str, count: &str) {
    api.change(|cluster| cluster.add(&kinds::CONFIG_MAPS, config_map(name, count)));
}

fn pods(cluster: &FakeCluster) -> usize {
    cluster.of(PODS).len()
}

#[tokio::test(start_paused = true)]
async fn lagging_watches_do_not_cause_duplicates() {
    let api = Api::new(Duration::from_millis(700));
    for number in 0..5 {
        add(&api, &format!("m{number}"), "20");
    }
    let _running = start(&api);
    api.until("a hundred pods", |cluster| pods(cluster) >= 100).await;
    // Unrelated changes trigger the controller before its caches contain its own writes.
    for _ in 0..10 {
        for number in 0..5 {
            let key = Key::new("a", format!("m{number}"));
            api.change(|cluster| {
                cluster.change(&kinds::CONFIG_MAPS, &key, |map| drop(map.as_object_mut().unwrap().insert("x", "y")));
            });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(api.writes("POST pods"), 100);
    for number in 0..5 {
        let key = Key::new("a", format!("m{number}"));
        api.change(|cluster| {
            cluster.change(&kinds::CONFIG_MAPS, &key, |map| *map.get_mut("data").unwrap() = value!({"count": "3"}));
        });
    }
    api.until("fifteen pods", |cluster| pods(cluster) == 15).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(api.writes("DELETE pods"), 85, "no object is deleted twice");
}

#[tokio::test(start_paused = true)]
async fn panicking_decision_affects_only_its_own_key() {
    let api = Api::new(Duration::ZERO);
    add(&api, "bad", "1");
    let _running = start(&api);
    api.until("tried", |_| PANICS.load(Ordering::SeqCst) > 2).await;
    add(&api, "good", "2");
    api.until("two pods", |cluster| pods(cluster) == 2).await;
    let before = PANICS.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let tries = PANICS.load(Ordering::SeqCst) - before;
    assert!((1..25).contains(&tries), "{tries} tries in an hour");
}

#[tokio::test(start_paused = true)]
async fn rejected_action_is_not_repeated_and_is_reported() {
    let api = Api::new(Duration::ZERO);
    api.reject_requests(|method, kind, _| {
        (method == Method::POST && kind == "pods").then(|| Status::failure(Reason::Forbidden, "exceeded quota"))
    });
    add(&api, "x", "100");
    let _running = start(&api);
    let annotation = |cluster: &FakeCluster| {
        let map = cluster.get(&kinds::CONFIG_MAPS, &Key::new("a", "x")).unwrap();
        Meta::of(map).annotation("refused").map(str::to_owned)
    };
    api.until("the rejection is reported", |cluster| annotation(cluster).as_deref() == Some("exceeded quota")).await;
    assert!(api.writes("POST pods") < 10, "{}", api.writes("POST pods"));
    api.until("an event", |cluster| !names(cluster, "events").is_empty()).await;
    api.change(|cluster| {
        let event = &cluster.of(EVENTS).iter().next().unwrap().value.clone();
        assert_eq!(event.str_at(&["reason"]), Some("FailedCreate"));
        assert_eq!(event.str_at(&["message"]), Some("Error creating: exceeded quota"));
    });
    api.accept_all();
    api.until("all pods", |cluster| pods(cluster) == 100).await;
    api.until("no rejection is reported", |cluster| annotation(cluster).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn idle_controller_sends_no_requests() {
    let api = Api::new(Duration::ZERO);
    add(&api, "x", "3");
    let _running = start(&api);
    api.until("three pods", |cluster| pods(cluster) == 3).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = ["POST pods", "PUT configmaps", "DELETE pods"].map(|which| api.writes(which));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(["POST pods", "PUT configmaps", "DELETE pods"].map(|which| api.writes(which)), before);
}

/// Regression test: the Endpoints of two hundred Services, created one round of slow writes after another, took 11 s at
/// the median.
#[tokio::test(start_paused = true)]
async fn slow_writes_delay_only_their_own_keys() {
    let api = Api::new(Duration::ZERO);
    api.slow_writes(Duration::from_millis(250));
    let _running = start(&api);
    for number in 0..200 {
        add(&api, &format!("m{number}"), "1");
    }
    let started = Instant::now();
    api.until("two hundred pods", |cluster| pods(cluster) == 200).await;
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
}
