//! Keeps the DNS zone up to date: one watch per resource type, with incremental updates.

use std::net::IpAddr;
use std::sync::{Arc, PoisonError};

use apimachinery::meta::MetaMut;
use apimachinery::{Key, Resource, Value};
use client::Client;
use client::cache::{self, ChangeQueue, ChangedKeys, ClosedError, Reader, Source};
use controller::kinds;
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::serve::Knowledge;
use crate::zone::Zone;

/// Maximum pending change notices; beyond that everything is evaluated.
const NOTICES_MAX: usize = 10_000;

/// A resource type with the function that applies its objects to the zone.
struct Kind {
    resource: &'static Resource,
    set: fn(&mut Zone, &Key, Option<&Value>),
}

const KINDS: [Kind; 3] = [
    Kind { resource: &kinds::SERVICES, set: Zone::set_service },
    Kind { resource: &kinds::ENDPOINT_SLICES, set: Zone::set_slice },
    Kind { resource: &kinds::NAMESPACES, set: |zone, key, object| zone.set_namespace(&key.name, object.is_some()) },
];

/// Watches the API server for as long as the future is polled. The zone is complete once all caches are synced.
pub async fn follow(client: Client, knowledge: Arc<Knowledge>) -> Result<(), ClosedError> {
    let mut watches = JoinSet::new();
    let nodes = follow_nodes(&client, &knowledge, &mut watches);
    let mut fed = Vec::new();
    for kind in KINDS {
        let source = Source::all(client.clone(), kind.resource.clone());
        let (reflector, reader) = cache::new(source, cache::Settings::default(), Vec::new(), small);
        let notices = ChangeQueue::new(NOTICES_MAX);
        reader.subscribe(&notices, |change, keys| keys.push(change.key.clone()));
        watches.spawn(reflector.run().in_current_span());
        fed.push((kind, reader, notices));
    }
    for (kind, reader, _) in &fed {
        reader.synced().await?;
        refresh(&knowledge, kind, reader, ChangedKeys::All);
    }
    knowledge.zone.write().unwrap_or_else(PoisonError::into_inner).complete = true;
    tracing::info!("DNS zone is complete");
    let mut tasks = JoinSet::new();
    tasks.spawn(nodes.in_current_span());
    for (kind, reader, notices) in fed {
        let knowledge = Arc::clone(&knowledge);
        let task = async move {
            loop {
                let changed = notices.take().await;
                refresh(&knowledge, &kind, &reader, changed);
            }
        };
        tasks.spawn(task.in_current_span());
    }
    while tasks.join_next().await.is_some() {}
    Err(ClosedError)
}

/// Watches the addresses of nodes, which may send queries of their pods: a query to another node's server has the
/// source address of the node that masquerades the pod. The zone does not wait for them.
fn follow_nodes(
    client: &Client,
    knowledge: &Arc<Knowledge>,
    watches: &mut JoinSet<()>,
) -> impl Future<Output = ()> + Send + 'static {
    let source = Source::all(client.clone(), kinds::NODES.clone());
    let (reflector, reader) = cache::new(source, cache::Settings::default(), Vec::new(), |node| addresses_of(&node));
    let notices = ChangeQueue::new(NOTICES_MAX);
    reader.subscribe(&notices, |change, keys| {
        if change.old != change.new {
            keys.push(change.key.clone());
        }
    });
    watches.spawn(reflector.run().in_current_span());
    let knowledge = Arc::clone(knowledge);
    async move {
        loop {
            let changed = notices.take().await;
            let nodes = reader.snapshot().objects;
            let names: Vec<String> = match changed {
                ChangedKeys::Keys(keys) => keys.into_iter().map(|key| key.name.to_string()).collect(),
                ChangedKeys::All => {
                    let all = nodes.iter().map(|entry| entry.key.name.to_string());
                    all.chain(knowledge.clients.nodes()).collect()
                }
            };
            for name in names {
                let addresses = nodes.get(&Key::cluster(name.as_str())).cloned().unwrap_or_default();
                knowledge.clients.set_node(&name, addresses);
            }
        }
    }
}

fn addresses_of(node: &Value) -> Vec<IpAddr> {
    let list = node.get("status").and_then(|status| status.get("addresses")).and_then(Value::as_array);
    let texts = list.unwrap_or_default().iter().filter_map(|address| address.str_at(&["address"]));
    texts.filter_map(|text| text.parse().ok()).collect()
}

fn refresh(knowledge: &Knowledge, kind: &Kind, reader: &Reader<Value>, changed: ChangedKeys) {
    let objects = reader.snapshot().objects;
    let mut zone = knowledge.zone.write().unwrap_or_else(PoisonError::into_inner);
    match changed {
        ChangedKeys::Keys(keys) => {
            for key in keys {
                (kind.set)(&mut zone, &key, objects.get(&key));
            }
        }
        ChangedKeys::All => {
            for key in zone.known(kind.resource) {
                if objects.get(&key).is_none() {
                    (kind.set)(&mut zone, &key, None);
                }
            }
            for entry in objects.iter() {
                (kind.set)(&mut zone, &entry.key, Some(&entry.value));
            }
        }
    }
}

/// Removes the parts of an object that the zone does not need, which are most of it.
fn small(mut object: Value) -> Value {
    if let Some(mut meta) = MetaMut::of(&mut object) {
        meta.remove("managedFields");
        meta.remove("annotations");
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    object
}
