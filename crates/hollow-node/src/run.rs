//! Registers hollow nodes, renews their leases, and simulates the kubelet of their pods.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{Key, Value, value};
use client::backoff::Backoff;
use client::cache::{self, ChangeQueue, ChangedKeys, Reader, Source};
use client::{Client, DeleteOptions, Error, Patch, Target, WriteOptions};
use controller::kinds;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::node::{self, Size};
use crate::pod_lifecycle::{PodWrite, step};

/// Maximum number of concurrent requests.
const REQUESTS_MAX: usize = 64;
/// Maximum number of queued pod changes before all pods are reconciled.
const NOTICES_MAX: usize = 200_000;
/// Backoff after a failed request.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), max: Duration::from_secs(30) };

/// Number and properties of the nodes.
#[derive(Clone, Debug)]
pub struct Settings {
    pub nodes: u32,
    /// Name prefix, followed by the index.
    pub prefix: String,
    pub size: Size,
}

/// Running hollow nodes. Dropping this stops their heartbeats; the objects remain.
pub struct Nodes {
    _tasks: JoinSet<()>,
}

struct Inner {
    client: Client,
    /// Nodes by name: index, and number of assigned addresses.
    nodes: BTreeMap<String, (u32, AtomicU32)>,
    settings: Settings,
    permits: Semaphore,
}

impl Nodes {
    /// Registers the nodes, then keeps nodes and pods up to date.
    pub async fn start(client: Client, settings: Settings) -> Result<Self, Error> {
        let names = (0..settings.nodes).map(|index| (format!("{}{index}", settings.prefix), index));
        let nodes = names.map(|(name, index)| (name, (index, AtomicU32::new(0)))).collect();
        let shared = Arc::new(Inner { client, nodes, settings, permits: Semaphore::new(REQUESTS_MAX) });
        register_all(&shared).await?;
        let source = Source::all(shared.client.clone(), kinds::PODS.clone());
        let (reflector, pods) = cache::new_shared(source, cache::Settings::default(), Vec::new());
        let notices = ChangeQueue::new(NOTICES_MAX);
        pods.subscribe(&notices, |change, keys| keys.push(change.key.clone()));
        let mut tasks = JoinSet::new();
        tasks.spawn(reflector.run());
        tasks.spawn(play(Arc::clone(&shared), pods, notices));
        tasks.spawn(renew_all(shared));
        Ok(Self { _tasks: tasks })
    }
}

/// Reads the clock; the only place in this crate that does.
fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_unix(since.as_secs().try_into().unwrap_or(i64::MAX), since.subsec_nanos())
}

async fn register_all(shared: &Arc<Inner>) -> Result<(), Error> {
    let mut under_way = JoinSet::new();
    for (name, (index, _)) in &shared.nodes {
        let (shared, name, index) = (Arc::clone(shared), name.clone(), *index);
        under_way.spawn(async move {
            let _permit = shared.permits.acquire().await;
            register(&shared, &name, index).await
        });
    }
    while let Some(registered) = under_way.join_next().await {
        if let Ok(registered) = registered {
            registered?;
        }
    }
    Ok(())
}

async fn register(shared: &Inner, name: &str, index: u32) -> Result<(), Error> {
    let options = WriteOptions::default();
    let created = shared.client.create(&Target::all(&kinds::NODES), &node::object(name), &options).await;
    match created {
        Err(error) if !error.is_already_exists() => return Err(error),
        _ => {}
    }
    let status = value!({"status": (node::status(name, index, &shared.settings.size, now()))});
    let target = Target::object(&kinds::NODES, &Key::cluster(name)).subresource("status");
    shared.client.patch(&target, &Patch::Strategic(status), &options).await?;
    renew(shared, name).await
}

/// Renews all leases, evenly spread over the renewal interval.
async fn renew_all(shared: Arc<Inner>) {
    let count = u32::try_from(shared.nodes.len()).unwrap_or(u32::MAX).max(1);
    let pause = Duration::from_secs(node::RENEW_SECONDS) / count;
    loop {
        for name in shared.nodes.keys() {
            tokio::time::sleep(pause).await;
            if let Err(error) = renew(&shared, name).await {
                tracing::warn!(node = name, error = %error, "failed to renew the lease");
            }
        }
        if shared.nodes.is_empty() {
            return;
        }
    }
}

async fn renew(shared: &Inner, name: &str) -> Result<(), Error> {
    let (lease, options) = (node::lease(name, now()), WriteOptions::default());
    let target = Target::named(&kinds::LEASES, node::LEASE_NAMESPACE, name);
    let patch = Patch::Merge(value!({"spec": (lease["spec"].clone())}));
    match shared.client.patch(&target, &patch, &options).await {
        Err(error) if error.is_not_found() => {
            let target = Target::within(&kinds::LEASES, node::LEASE_NAMESPACE);
            shared.client.create(&target, &lease, &options).await.map(drop)
        }
        other => other.map(drop),
    }
}

/// Reconciles each changed pod.
async fn play(shared: Arc<Inner>, pods: Reader<Value>, notices: ChangeQueue) {
    let mut under_way: JoinSet<()> = JoinSet::new();
    loop {
        let changed = tokio::select! {
            changed = notices.take() => changed,
            Some(_) = under_way.join_next() => continue,
        };
        let objects = pods.snapshot().objects;
        let keys: Vec<Key> = match changed {
            ChangedKeys::Keys(keys) => keys.into_iter().collect(),
            ChangedKeys::All => objects.iter().map(|entry| entry.key.clone()).collect(),
        };
        for key in keys {
            let Some(pod) = objects.get(&key) else { continue };
            let node = pod.text_at(&["spec", "nodeName"]);
            let Some((index, given)) = shared.nodes.get(node) else { continue };
            let address = node::pod_address(*index, given.fetch_add(1, Ordering::Relaxed));
            let Some(step) = step(pod, node::address(*index), address, now()) else { continue };
            under_way.spawn(write_pod(Arc::clone(&shared), key, Meta::of(pod).uid().to_owned(), step, notices.clone()));
        }
    }
}

/// Executes one write for a pod. On failure the pod is queued again, unless it changed or was deleted, which queues it
/// anyway.
async fn write_pod(shared: Arc<Inner>, key: Key, uid: String, step: PodWrite, notices: ChangeQueue) {
    let result = {
        let _permit = shared.permits.acquire().await;
        match step {
            PodWrite::Delete => {
                let options = DeleteOptions { grace_seconds: Some(0), uid: Some(uid), ..DeleteOptions::default() };
                shared.client.delete(&Target::object(&kinds::PODS, &key), &options).await
            }
            PodWrite::Status(status) => {
                let target = Target::object(&kinds::PODS, &key).subresource("status");
                let patch = Patch::Strategic(value!({"metadata": {"uid": uid}, "status": status}));
                shared.client.patch(&target, &patch, &WriteOptions::default()).await
            }
        }
    };
    match result {
        Ok(_) => {}
        Err(error) if error.is_not_found() || error.is_conflict() => {}
        Err(error) => {
            tracing::warn!(pod = %key, error = %error, "failed to update the pod status");
            tokio::time::sleep(BACKOFF.after(0, client::backoff::random())).await;
            notices.add([key]);
        }
    }
}
