//! Follows every kind that the server has, as kinds come and go, and keeps of each object what says whom it belongs to.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use client::cache::{self, Notices, Reader, Source};
use client::{Client, Error, ListOptions, Target, discovery};
use machinery::collection::Collection;
use machinery::{Key, Resource, Value};
use reconcile::everything::{Answer, Discovery, Everything, Item, Items, Kind, Question, Sweeper, item_index_by};
use reconcile::kinds;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::execute::Effect;

/// A kind that could not be read for this long no longer holds up decisions about all others.
const UNREADABLE_MAX: Duration = Duration::from_secs(30);
/// Waits between looks after something was defined: a server may take a while to serve it.
const LOOKS: [Duration; 3] = [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(5)];
/// Objects in one answer where a namespace's contents are asked for.
const PAGE: u32 = 500;

/// Everything there is, for all who want to know. Clones share it.
#[derive(Clone)]
pub struct Census(Arc<Shared>);

struct Shared {
    client: Client,
    metadata: Client,
    settings: cache::Settings,
    state: RwLock<State>,
    /// Whether the server was ever asked.
    asked: watch::Sender<bool>,
    subscribers: Mutex<Vec<Subscriber>>,
}

#[derive(Default)]
struct State {
    discovery: Arc<Discovery>,
    followed: Vec<Followed>,
}

struct Followed {
    resource: Arc<Resource>,
    reader: Reader<Item>,
    since: Instant,
    watch: AbortHandle,
}

type Route = fn(&Key, Option<&Item>, Option<&Item>, &mut Vec<Key>);

struct Subscriber {
    notices: Notices,
    route: Route,
}

impl Census {
    /// Knows nothing until [`Census::run`] is polled.
    pub fn new(client: &Client, settings: cache::Settings) -> Self {
        Self(Arc::new(Shared {
            client: client.clone(),
            metadata: client.metadata_only(),
            settings,
            state: RwLock::default(),
            asked: watch::Sender::default(),
            subscribers: Mutex::default(),
        }))
    }

    /// Keeps it true and does not end; dropping it ends it.
    pub async fn run(self) {
        let mut watches = JoinSet::new();
        let notices = Notices::new(1);
        for resource in [&kinds::CUSTOM_RESOURCE_DEFINITIONS, &kinds::API_SERVICES] {
            let source = Source::all(self.0.metadata.clone(), resource.clone());
            let (reflector, reader) = cache::digest(source, self.0.settings.clone(), Vec::new(), |_| ());
            reader.subscribe(&notices, |change, keys| keys.push(change.key.clone()));
            watches.spawn(reflector.run());
        }
        let mut waits = self.0.settings.backoff.waits();
        loop {
            for look in LOOKS {
                tokio::time::sleep(look).await;
                while let Err(error) = self.look(&mut watches).await {
                    tracing::warn!(error = %error, "what the server has could not be found out");
                    tokio::time::sleep(waits.next_wait()).await;
                }
                waits.reset();
            }
            notices.take().await;
        }
    }

    /// Waits for the items of all kinds to be known, though not for ever for one that cannot be read.
    pub(crate) async fn known(&self) {
        // The sender lives as long as this does.
        drop(self.0.asked.subscribe().wait_for(|asked| *asked).await);
        let readers: Vec<Reader<Item>> = {
            let state = self.0.state.read().unwrap_or_else(PoisonError::into_inner);
            state.followed.iter().map(|followed| followed.reader.clone()).collect()
        };
        let deadline = Instant::now() + UNREADABLE_MAX;
        for reader in readers {
            drop(tokio::time::timeout_at(deadline, reader.synced()).await);
        }
    }

    /// Has the keys told that a change of any object concerns.
    pub(crate) fn subscribe<S: Sweeper>(&self, notices: &Notices) {
        let subscriber = Subscriber { notices: notices.clone(), route: S::concerns };
        let state = self.0.state.read().unwrap_or_else(PoisonError::into_inner);
        for followed in &state.followed {
            tell(&followed.reader, &subscriber);
        }
        self.0.subscribers.lock().unwrap_or_else(PoisonError::into_inner).push(subscriber);
    }

    /// Everything as it is now.
    pub(crate) fn everything(&self) -> Everything {
        let state = self.0.state.read().unwrap_or_else(PoisonError::into_inner);
        let mut whole = *self.0.asked.borrow();
        let mut items: Vec<(Arc<Resource>, Items)> = Vec::with_capacity(state.followed.len());
        for followed in &state.followed {
            let progress = followed.reader.progress();
            whole &= progress.synced || (progress.failure.is_some() && followed.since.elapsed() > UNREADABLE_MAX);
            items.push((Arc::clone(&followed.resource), followed.reader.snapshot().objects));
        }
        Everything::new(Arc::clone(&state.discovery), items, whole)
    }

    /// What the server itself says to the client of whoever asks: what all may watch, only some may get.
    pub(crate) async fn ask(&self, client: &Client, question: &Question) -> Answer {
        let discovery = Arc::clone(&self.0.state.read().unwrap_or_else(PoisonError::into_inner).discovery);
        match question {
            Question::Object { api_version, kind, key } => {
                let Some(resource) = discovery.resource(api_version, kind) else {
                    return Answer::Failed(format!("the server has no {kind} of {api_version}"));
                };
                match client.get(&Target::object(resource, key)).await {
                    Ok(object) => Answer::Object(object),
                    Err(error) if error.is_not_found() => Answer::Absent,
                    Err(error) => Answer::Failed(error.to_string()),
                }
            }
            Question::Kinds => match self.discover().await {
                Ok(found) => {
                    let found = Arc::new(found);
                    // Following them is left to whoever does it; whoever asks on is to be understood at once.
                    self.0.state.write().unwrap_or_else(PoisonError::into_inner).discovery = Arc::clone(&found);
                    Answer::Kinds(found)
                }
                Err(error) => Answer::Failed(error.to_string()),
            },
            Question::Contents { kind, namespace } => {
                // What is not known is not empty: the next look knows whether there is such a kind.
                let Some(found) = discovery.kind(kind) else {
                    return Answer::Failed(format!("the server has no {kind}"));
                };
                let target = Target::within(&found.resource, namespace.clone());
                let options = ListOptions { limit: PAGE, ..ListOptions::default() };
                match client.metadata_only().list_all(&target, &options).await {
                    Ok(list) => {
                        let items = list.items.iter();
                        Answer::Items(items.map(|it| (Key::of(it), Item::of(&found.resource, it))).collect())
                    }
                    Err(error) if error.is_not_found() => Answer::Items(Vec::new()),
                    Err(error) => Answer::Failed(error.to_string()),
                }
            }
        }
    }

    /// Waits for the copies to show what was written.
    pub(crate) async fn seen(&self, effect: &Effect) {
        let kind = match effect {
            Effect::Written { kind, .. } | Effect::Deleted { kind, .. } => kind,
        };
        let Some(mut reader) = self.reader(kind) else { return };
        match effect {
            Effect::Written { revision, .. } => drop(reader.reached(*revision).await),
            Effect::Deleted { key, uid, .. } => {
                let is_there =
                    |items: &Collection<Item>| items.get(key).is_some_and(|item| !item.deleting && item.uid == *uid);
                while is_there(&reader.snapshot().objects) && reader.advanced().await.is_ok() {}
            }
        }
    }

    fn reader(&self, kind: &str) -> Option<Reader<Item>> {
        let state = self.0.state.read().unwrap_or_else(PoisonError::into_inner);
        let followed = state.followed.iter().find(|followed| followed.resource.to_string() == kind)?;
        Some(followed.reader.clone())
    }

    /// What the server has.
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

    /// Asks what the server has, follows what is new and lets go of what is no more.
    async fn look(&self, watches: &mut JoinSet<()>) -> Result<(), Error> {
        let found = self.discover().await?;
        let shared = &self.0;
        let mut state = shared.state.write().unwrap_or_else(PoisonError::into_inner);
        // What a silent server has is not known: keep what was followed of it.
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
            subscribers.iter().for_each(|subscriber| tell(&reader, subscriber));
            let watch = watches.spawn(reflector.run());
            state.followed.push(Followed { resource, reader, since: Instant::now(), watch });
        }
        drop(subscribers);
        state.discovery = Arc::new(found);
        drop(state);
        self.0.asked.send_replace(true);
        Ok(())
    }
}

fn tell(reader: &Reader<Item>, subscriber: &Subscriber) {
    let route = subscriber.route;
    reader.subscribe(&subscriber.notices, move |change, keys| route(change.key, change.old, change.new, keys));
}

/// Events come and go by themselves and own nothing.
fn is_followed(kind: &Kind) -> bool {
    let can = ["list", "watch", "delete"].iter().all(|verb| kind.can(verb));
    can && !(kind.resource.plural == "events" && matches!(kind.resource.group.as_str(), "" | "events.k8s.io"))
}
