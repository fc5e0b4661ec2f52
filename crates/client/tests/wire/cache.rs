//! Wire tests of caches: initial fill, recovery from failures, readers and subscribers.

use std::time::Duration;

use apimachinery::collection::IndexBy;
use apimachinery::{Key, Str, Value, value};
use client::backoff::Backoff;
use client::cache::{self, ChangeQueue, ChangedKeys, Reader, Source};
use http::StatusCode;
use tokio::task::JoinHandle;

use crate::requests::{CONFIG_MAPS, config_map};
use crate::server::{Call, DEADLINE, Server, Stream};

/// The cached value: the version of the object.
type CachedVersion = String;

struct Running {
    server: Server,
    reader: Reader<CachedVersion>,
    notices: ChangeQueue,
    task: JoinHandle<()>,
}

impl Running {
    async fn start() -> Self {
        let server = Server::start().await;
        let settings = cache::Settings {
            backoff: Backoff { first: Duration::from_millis(5), max: Duration::from_millis(20) },
            page_limit: 2,
            ..cache::Settings::default()
        };
        let index = IndexBy::new("version", |_, version: &CachedVersion| vec![Str::from(version.as_str())]);
        let keep = |object: Value| object.text_at(&["metadata", "resourceVersion"]).to_owned();
        let (reflector, reader) =
            cache::new(Source::all(server.client(), CONFIG_MAPS.clone()), settings, vec![index], keep);
        let notices = ChangeQueue::new(100);
        reader.subscribe(&notices, |change, keys| keys.push(change.key.clone()));
        let task = tokio::spawn(reflector.run());
        Self { server, reader, notices, task }
    }

    /// Responds to the first request with the initial events `x` at 1 and `y` at 2 and the end at 5.
    async fn fill(&mut self) -> Stream {
        let call = self.server.next().await;
        assert!(call.query.contains("sendInitialEvents=true"), "{}", call.query);
        let stream = call.stream();
        stream.event("ADDED", config_map("x", 1)).await;
        stream.event("ADDED", config_map("y", 2)).await;
        stream.event("BOOKMARK", end_of_initial_events(5)).await;
        self.reached(5).await;
        self.changed(&["x", "y"]).await;
        stream
    }

    async fn reached(&self, revision: u64) {
        let reached = tokio::time::timeout(DEADLINE, self.reader.reached(revision)).await;
        reached.unwrap_or_else(|_| panic!("reached {:?}, not {revision}", self.reader.progress())).unwrap();
    }

    /// Waits until exactly these names are reported as changed.
    async fn changed(&self, names: &[&str]) {
        let mut notified_keys = std::collections::BTreeSet::new();
        let expect: std::collections::BTreeSet<Key> = names.iter().map(|name| Key::new("a", *name)).collect();
        while notified_keys != expect {
            let changed = tokio::time::timeout(DEADLINE, self.notices.take()).await;
            let Ok(ChangedKeys::Keys(keys)) = changed else { panic!("notified of {notified_keys:?}, not {expect:?}") };
            notified_keys.extend(keys);
        }
    }

    fn holds(&self, expect: &[(&str, &str)]) {
        let snapshot = self.reader.snapshot();
        let cached: Vec<_> =
            snapshot.objects.iter().map(|entry| (entry.key.name.as_str(), entry.value.as_str())).collect();
        assert_eq!(cached, expect);
    }

    /// Returns the next request, which must resume from `version`.
    async fn resumed(&mut self, version: u64) -> Call {
        let call = self.server.next().await;
        let expect = format!("watch=true&resourceVersion={version}&allowWatchBookmarks=true");
        assert!(call.query.starts_with(&expect), "{}", call.query);
        call
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn bookmark(version: u64) -> Value {
    let version = version.to_string();
    value!({"kind": "ConfigMap", "metadata": {"resourceVersion": version}})
}

fn end_of_initial_events(version: u64) -> Value {
    let version = version.to_string();
    value!({"metadata": {"resourceVersion": version, "annotations": {"k8s.io/initial-events-end": "true"}}})
}

fn page(version: &str, next: &str, items: Vec<Value>) -> Value {
    let items = Value::Array(items);
    value!({"kind": "ConfigMapList", "apiVersion": "v1",
        "metadata": {"resourceVersion": version, "continue": next}, "items": items})
}

fn expired() -> Value {
    value!({"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old"})
}

#[tokio::test]
async fn cache_fills_from_initial_events_and_follows_changes() {
    let mut running = Running::start().await;
    assert!(!running.reader.progress().synced);
    let stream = running.fill().await;
    running.holds(&[("x", "1"), ("y", "2")]);
    let before = running.reader.snapshot();
    stream.event("MODIFIED", config_map("x", 6)).await;
    stream.event("DELETED", config_map("y", 7)).await;
    stream.event("ADDED", config_map("z", 8)).await;
    running.reached(8).await;
    running.holds(&[("x", "6"), ("z", "8")]);
    running.changed(&["x", "y", "z"]).await;
    assert_eq!(before.objects.len(), 2, "a snapshot no longer changes");
    assert_eq!(before.revision, 5);
    let snapshot = running.reader.snapshot();
    let found: Vec<_> = snapshot.objects.by("version", "8").map(|entry| entry.key.to_string()).collect();
    assert_eq!(found, ["a/z"]);
    stream.event("BOOKMARK", bookmark(50)).await;
    running.reached(50).await;
}

#[tokio::test]
async fn broken_watch_resumes_from_the_reached_version() {
    let mut running = Running::start().await;
    let stream = running.fill().await;
    stream.event("BOOKMARK", bookmark(9)).await;
    running.reached(9).await;
    // The server closes the watch, as after its timeout.
    drop(stream);
    let stream = running.resumed(9).await.stream();
    stream.event("MODIFIED", config_map("x", 10)).await;
    running.reached(10).await;
    // The connection breaks.
    stream.abort().await;
    let stream = running.resumed(10).await.stream();
    // The stream ends in the middle of an event.
    stream.send("{\"type\":\"MODIFIED\",\"obj").await;
    drop(stream);
    let stream = running.resumed(10).await.stream();
    // The stream contains something other than an event.
    stream.send("<html>gateway</html>").await;
    let stream = running.resumed(10).await.stream();
    stream.send("{\"type\":\"MODIFIED\"]}\n").await;
    running.resumed(10).await.respond_with(StatusCode::BAD_GATEWAY, &[], "<html>");
    let stream = running.resumed(10).await.stream();
    stream.event("MODIFIED", config_map("x", 11)).await;
    running.reached(11).await;
    running.holds(&[("x", "11"), ("y", "2")]);
    assert_eq!(running.reader.progress().failure, None);
}

#[tokio::test]
async fn compacted_version_causes_a_relist_that_reports_the_differences() {
    let mut running = Running::start().await;
    let stream = running.fill().await;
    let refill = async |running: &mut Running, version| {
        let call = running.server.next().await;
        assert!(call.query.contains("sendInitialEvents=true"), "{}", call.query);
        let stream = call.stream();
        stream.event("ADDED", config_map("x", 1)).await;
        stream.event("ADDED", config_map("z", version - 1)).await;
        running.holds(&[("x", "1"), ("y", "2")]);
        stream.event("BOOKMARK", end_of_initial_events(version)).await;
        running.reached(version).await;
        stream
    };
    // The expiry arrives as a watch event.
    stream.event("ERROR", expired()).await;
    let stream = refill(&mut running, 90).await;
    running.holds(&[("x", "1"), ("z", "89")]);
    running.changed(&["y", "z"]).await;
    // The expiry is the response to a resumed watch.
    drop(stream);
    running.resumed(90).await.respond_with(StatusCode::GONE, &[], &expired().to_string());
    let call = running.server.next().await;
    assert!(call.query.contains("sendInitialEvents=true"), "{}", call.query);
}

#[tokio::test]
async fn server_without_initial_events_is_listed_in_pages() {
    let mut running = Running::start().await;
    let invalid = value!({"kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422});
    running.server.next().await.respond_with(StatusCode::UNPROCESSABLE_ENTITY, &[], &invalid.to_string());
    let call = running.server.next().await;
    assert_eq!(call.query, "limit=2");
    call.respond(&page("7", "token", vec![config_map("x", 1), config_map("y", 2)]));
    let call = running.server.next().await;
    assert_eq!(call.query, "continue=token&limit=2");
    assert!(!running.reader.progress().synced, "an incomplete list does not sync the cache");
    call.respond(&page("7", "", vec![config_map("z", 3)]));
    let stream = running.resumed(7).await.stream();
    running.holds(&[("x", "1"), ("y", "2"), ("z", "3")]);
    // The next relist lists immediately. Here the continue token of the second page expires.
    stream.event("ERROR", expired()).await;
    running.server.next().await.respond(&page("17", "token", vec![config_map("x", 1), config_map("y", 2)]));
    running.server.next().await.respond_with(StatusCode::GONE, &[], &expired().to_string());
    let call = running.server.next().await;
    assert_eq!(call.query, "", "one response, so no continue token can expire");
    call.respond(&page("18", "", vec![config_map("y", 18)]));
    running.resumed(18).await;
    running.holds(&[("y", "18")]);
}

#[tokio::test]
async fn failing_server_is_retried_and_the_error_is_reported() {
    let mut running = Running::start().await;
    for _ in 0..3 {
        let forbidden =
            value!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no"});
        running.server.next().await.respond_with(StatusCode::FORBIDDEN, &[], &forbidden.to_string());
    }
    let call = running.server.next().await;
    assert_eq!(running.reader.progress().failure.as_deref(), Some("no"));
    // Incomplete initial events do not sync the cache.
    let stream = call.stream();
    stream.event("ADDED", config_map("x", 1)).await;
    drop(stream);
    running.fill().await;
    assert_eq!(running.reader.progress().failure, None);
}

#[tokio::test]
async fn late_subscriber_is_notified_of_existing_objects() {
    let mut running = Running::start().await;
    let _stream = running.fill().await;
    let notices = ChangeQueue::new(100);
    running.reader.subscribe(&notices, |change, keys| {
        keys.extend(change.new.map(|version| Key::cluster(version.as_str())));
    });
    assert_eq!(notices.try_take(), Some(ChangedKeys::Keys([Key::cluster("1"), Key::cluster("2")].into())));
}

#[tokio::test]
async fn readers_get_an_error_after_the_reflector_is_dropped() {
    let running = Running::start().await;
    running.task.abort();
    let synced = tokio::time::timeout(DEADLINE, running.reader.synced()).await.expect("an end");
    assert_eq!(synced, Err(cache::ClosedError));
}

#[tokio::test]
async fn oversized_object_does_not_exhaust_memory() {
    let mut running = Running::start().await;
    let stream = running.fill().await;
    stream.send("{\"type\":\"ADDED\",\"object\":{\"data\":\"").await;
    let much = "x".repeat(1 << 20);
    for _ in 0..17 {
        stream.send(&much).await;
    }
    stream.abandoned().await;
    running.resumed(5).await;
}
