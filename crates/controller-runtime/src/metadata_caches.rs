//! Metadata of objects of every kind: follows discovery, watches every kind, and keeps owners and finalizers.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use api::resources::{EVENTS, EVENTS_K8S_IO};
use apimachinery::collection::Collection;
use apimachinery::{Key, Resource, Value};
use client::cache::{self, ChangeQueue, Reader, Source};
use client::{Client, Error, ListOptions, Target, discovery};
use controller::kinds;
use controller::object_graph::{
    Discovery, GlobalController, Item, Items, Kind, ObjectGraph, Query, QueryResponse, item_index_by,
};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tracing::Instrument;

use crate::effect::Effect;

/// Time after which a kind that cannot be read no longer blocks decisions about other kinds.
const UNREADABLE_MAX: Duration = Duration::from_secs(30);
/// Delays between discoveries after a change of CRDs or APIServices, because a server may serve a new kind late.
const LOOKS: [Duration; 3] = [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(5)];
/// Page size of list requests for a namespace's contents.
const PAGE: u32 = 500;

/// The metadata of all objects. Clones share it.
#[derive(Clone)]
pub struct MetadataCaches(Arc<Inner>);

struct Inner {
    client: Client,
    metadata: Client,
    settings: cache::Settings,
    state: RwLock<State>,
    /// Whether discovery has succeeded once.
    discovered: watch::Sender<bool>,
    subscribers: Mutex<Vec<Subscriber>>,
}

#[derive(Default)]
struct State {
    discovery: Arc<Discovery>,
    followed: Vec<WatchedKind>,
}

struct WatchedKind {
    resource: Arc<Resource>,
    reader: Reader<Item>,
    since: Instant,
    watch: AbortHandle,
}

type Route = fn(&Key, Option<&Item>, Option<&Item>, &mut Vec<Key>);

struct Subscriber {
    notices: ChangeQueue,
    route: Route,
}

impl MetadataCaches {
    /// Returns empty caches, which [`MetadataCaches::run`] fills.
    pub fn new(client: &Client, settings: cache::Settings) -> Self {
        Self(Arc::new(Inner {
            client: client.clone(),
            metadata: client.metadata_only(),
            settings,
            state: RwLock::default(),
            discovered: watch::Sender::default(),
            subscribers: Mutex::default(),
        }))
    }

    /// Runs discovery and watches forever. Drop the future to stop it.
    pub async fn run(self) {
        let mut watches = JoinSet::new();
        let notices = ChangeQueue::new(1);
        for resource in [&kinds::CUSTOM_RESOURCE_DEFINITIONS, &kinds::API_SERVICES] {
            let source = Source::all(self.0.metadata.clone(), resource.clone());
            let (reflector, reader) = cache::digest(source, self.0.settings.clone(), Vec::new(), |_| ());
            reader.subscribe(&notices, |change, keys| keys.push(change.key.clone()));
            watches.spawn(reflector.run().in_current_span());
        }
        let mut waits = self.0.settings.backoff.waits();
        loop {
            for delay in LOOKS {
                tokio::time::sleep(delay).await;
                while let Err(error) = self.refresh_kinds(&mut watches).await {
                    tracing::warn!(error = %error, "discovery failed; retrying");
                    tokio::time::sleep(waits.next_wait()).await;
                }
                waits.reset();
            }
            notices.take().await;
        }
    }

    /// Waits until the items of all kinds are known, with a time limit for kinds that cannot be read.
    pub(crate) async fn known(&self) {
        // Cannot fail: the sender lives as long as `self`.
        drop(self.0.discovered.subscribe().wait_for(|discovered| *discovered).await);
        let readers: Vec<Reader<Item>> = {
            let state = self.0.state.read().unwrap_or_else(PoisonError::into_inner);
            state.followed.iter().map(|followed| followed.reader.clone()).collect()
        };
        let deadline = Instant::now() + UNREADABLE_MAX;
        for reader in readers {
            drop(tokio::time::timeout_at(deadline, reader.synced()).await);
        }
    }

    /// Adds the affected keys of every change to `notices`.
    pub(crate) fn subscribe<S: GlobalController>(&self, notices: &ChangeQueue) {
        let subscriber = Subscriber { notices: notices.clone(), route: S::affected_keys };
        let state = self.0.state.read().unwrap_or_else(PoisonError::into_inner);
        for followed in &state.followed {
            notify(&followed.reader, &subscriber);
        }
        self.0.subscribers.lock().unwrap_or_else(PoisonError::into_inner).push(subscriber);
    }

    /// Returns the current snapshots of all kinds.
    pub(crate) fn everything(&self) -> ObjectGraph {
        let state = self.0.state.read().unwrap_or_else(PoisonError::into_inner);
        let mut whole = *self.0.discovered.borrow();
        let mut items: Vec<(Arc<Resource>, Items)> = Vec::with_capacity(state.followed.len());
        for followed in &state.followed {
            let progress = followed.reader.progress();
            whole &= progress.synced || (progress.failure.is_some() && followed.since.elapsed() > UNREADABLE_MAX);
            items.push((Arc::clone(&followed.resource), followed.reader.snapshot().objects));
        }
        ObjectGraph::new(Arc::clone(&state.discovery), items, whole)
    }

    /// Sends a query with the controller's client, whose permissions to get objects differ from those of the shared
    /// watches.
    pub(crate) async fn send_query(&self, client: &Client, question: &Query) -> QueryResponse {
        let discovery = Arc::clone(&self.0.state.read().unwrap_or_else(PoisonError::into_inner).discovery);
        match question {
            Query::Object { api_version, kind, key } => {
                let Some(resource) = discovery.resource(api_version, kind) else {
                    return QueryResponse::Failed(format!("the server has no {kind} of {api_version}"));
                };
                match client.get(&Target::object(resource, key)).await {
                    Ok(object) => QueryResponse::Object(object),
                    Err(error) if error.is_not_found() => QueryResponse::Absent,
                    Err(error) => QueryResponse::Failed(error.to_string()),
                }
            }
            Query::Kinds => match self.discover().await {
                Ok(found) => {
                    let found = Arc::new(found);
                    // Further queries use the new discovery immediately. `MetadataCaches::run` starts the watches.
                    self.0.state.write().unwrap_or_else(PoisonError::into_inner).discovery = Arc::clone(&found);
                    QueryResponse::Kinds(found)
                }
                Err(error) => QueryResponse::Failed(error.to_string()),
            },
            Query::Contents { kind, namespace } => {
                // An unknown kind does not count as empty. The next discovery shows whether it exists.
                let Some(found) = discovery.kind(kind) else {
                    return QueryResponse::Failed(format!("the server has no {kind}"));
                };
                let target = Target::within(&found.resource, namespace.clone());
                let options = ListOptions { limit: PAGE, ..ListOptions::default() };
                match client.metadata_only().list_all(&target, &options).await {
                    Ok(list) => {
                        let items = list.items.iter();
                        QueryResponse::Items(items.map(|it| (Key::of(it), Item::of(&found.resource, it))).collect())
                    }
                    Err(error) if error.is_not_found() => QueryResponse::Items(Vec::new()),
                    Err(error) => QueryResponse::Failed(error.to_string()),
                }
            }
        }
    }

    /// Waits until the caches contain a written object.
    pub(crate) async fn seen(&self, effect: &Effect) {
        let Some(mut reader) = self.reader(effect.resource()) else { return };
        match effect {
            Effect::Written { revision, .. } => drop(reader.reached(*revision).await),
            Effect::Deleted { key, uid, .. } => {
                let is_there =
                    |items: &Collection<Item>| items.get(key).is_some_and(|item| !item.deleting && item.uid == *uid);
                while is_there(&reader.snapshot().objects) && reader.advanced().await.is_ok() {}
            }
        }
    }

    fn reader(&self, resource: &Resource) -> Option<Reader<Item>> {
        let state = self.0.state.read().unwrap_or_else(PoisonError::into_inner);
        let followed = state.followed.iter().find(|followed| followed.resource.is_version_of(resource))?;
        Some(followed.reader.clone())
    }

    /// Runs discovery.
    async fn discover(&self) -> Result<Discovery, Error> {
        let discovered = discovery::discover(&self.0.client).await?;
        let mut found = Discovery { stale: discovered.stale, ..Discovery::default() };
        for served in discovered.served {
            if served.preferred {
                found.kinds.push(Kind { resource: Arc::new(served.resource.clone()), verbs: served.verbs });
            }
            found.served.push(served.resource);
        }
        Ok(found)
    }

    /// Runs discovery, watches new kinds, and stops the watches of removed kinds.
    async fn refresh_kinds(&self, watches: &mut JoinSet<()>) -> Result<(), Error> {
        let found = self.discover().await?;
        let shared = &self.0;
        let mut state = shared.state.write().unwrap_or_else(PoisonError::into_inner);
        // The kinds of an unresponsive aggregated server are unknown: keep their watches.
        let stale = |resource: &Resource| found.stale.iter().any(|name| *name == resource.api_version());
        state.followed.retain(|followed| {
            let stays = stale(&followed.resource) || found.kinds.iter().any(|kind| kind.resource == followed.resource);
            if !stays {
                followed.watch.abort();
            }
            stays
        });
        let subscribers = shared.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        for kind in found.kinds.iter().filter(|kind| is_followed(kind)) {
            if state.followed.iter().any(|followed| followed.resource == kind.resource) {
                continue;
            }
            let resource = Arc::clone(&kind.resource);
            let source = Source::all(shared.metadata.clone(), (*resource).clone());
            let of = Arc::clone(&resource);
            let digest = move |object: &Value| Item::of(&of, object);
            let (reflector, reader) = cache::digest(source, shared.settings.clone(), item_index_by(), digest);
            subscribers.iter().for_each(|subscriber| notify(&reader, subscriber));
            let watch = watches.spawn(reflector.run().in_current_span());
            state.followed.push(WatchedKind { resource, reader, since: Instant::now(), watch });
        }
        drop(subscribers);
        state.discovery = Arc::new(found);
        drop(state);
        self.0.discovered.send_replace(true);
        Ok(())
    }
}

fn notify(reader: &Reader<Item>, subscriber: &Subscriber) {
    let route = subscriber.route;
    reader.subscribe(&subscriber.notices, move |change, keys| route(change.key, change.old, change.new, keys));
}

/// Whether a kind is watched. Events expire and own no objects.
fn is_followed(kind: &Kind) -> bool {
    let can = ["list", "watch", "delete"].iter().all(|verb| kind.can(verb));
    can && ![EVENTS, EVENTS_K8S_IO].iter().any(|events| kind.resource.is(*events))
}
