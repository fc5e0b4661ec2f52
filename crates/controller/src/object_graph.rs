//! Metadata of objects of every kind, including custom ones, for ownership decisions.
//!
//! A [`GlobalController`] reads objects of every kind. The caches cannot prove some facts, such as the absence of an
//! object. For these it returns queries to the API server instead of a plan. The next call passes the responses.

mod item;
mod model;

use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::collection::{Collection, Entry, IndexBy};
use apimachinery::meta::Scope;
use apimachinery::time::Time;
use apimachinery::{Key, Resource, Str, Value};

use crate::Plan;

pub use item::{FOREGROUND, Item, ORPHAN, Owner};
pub use model::{run_until_stable, step};

pub type Items = Collection<Item>;

/// A kind that the server serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The resource in its preferred version.
    pub resource: Arc<Resource>,
    /// The supported verbs: `list`, `delete`, `deletecollection`.
    pub verbs: Vec<Str>,
}

/// The kinds that the server serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovery {
    /// Each kind once, in its preferred version.
    pub kinds: Vec<Kind>,
    /// Every version of every kind.
    pub served: Vec<Resource>,
    /// Group versions whose aggregated server does not respond.
    pub stale: Vec<String>,
}

/// All objects, as a snapshot for each kind.
pub struct ObjectGraph {
    pub discovery: Arc<Discovery>,
    /// Whether the items of all kinds are known.
    pub whole: bool,
    items: Vec<(Arc<Resource>, Items)>,
}

/// A query for a fact that the caches cannot prove.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Query {
    /// Reads an object, or finds that it does not exist.
    Object {
        /// Such as `apps/v1`.
        api_version: Str,
        /// Such as `Deployment`.
        kind: Str,
        key: Key,
    },
    /// Repeats discovery, because the known kinds may be outdated.
    Kinds,
    /// Lists all objects of a kind in a namespace.
    Contents {
        /// Such as `deployments.apps`.
        kind: Str,
        namespace: Str,
    },
}

/// The API server's response to a [`Query`].
#[derive(Clone, Debug, PartialEq)]
pub enum QueryResponse {
    /// The object does not exist.
    Absent,
    Object(Value),
    Kinds(Arc<Discovery>),
    Items(Vec<(Key, Item)>),
    /// The request failed, or the kind is not served.
    Failed(String),
}

pub type Answers = BTreeMap<Query, QueryResponse>;

/// One step of a decision.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The responses to these queries are needed before a plan can be made.
    Query(Vec<Query>),
    /// The plan to execute.
    Execute(Plan),
}

/// A controller over objects of every kind.
pub trait GlobalController: 'static {
    /// The name in flags, logs and field managers.
    const NAME: &'static str;

    /// Adds the keys to reconcile after a change of an object. The implementation defines the meaning of keys.
    fn affected_keys(of: &Key, old: Option<&Item>, new: Option<&Item>, keys: &mut Vec<Key>);

    /// Decides about a key, without I/O, clock or randomness.
    fn decide(everything: &ObjectGraph, key: &Key, answers: &Answers, now: Time) -> Step;
}

impl Kind {
    /// Whether the kind supports a verb.
    pub fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|have| have == verb)
    }

    pub fn is_namespaced(&self) -> bool {
        self.resource.scope == Scope::Namespaced
    }
}

impl Discovery {
    /// Returns the resource of an apiVersion and kind.
    pub fn resource(&self, api_version: &str, kind: &str) -> Option<&Resource> {
        self.served.iter().find(|have| have.kind == kind && have.api_version() == api_version)
    }

    /// Returns the kind with a name such as `deployments.apps`.
    pub fn kind(&self, name: &str) -> Option<&Kind> {
        self.kinds.iter().find(|kind| kind.resource.to_string() == name)
    }
}

impl ObjectGraph {
    /// Returns a snapshot with one collection for each watched kind.
    pub const fn new(discovery: Arc<Discovery>, items: Vec<(Arc<Resource>, Items)>, whole: bool) -> Self {
        Self { discovery, whole, items }
    }

    pub fn all(&self) -> impl Iterator<Item = &Entry<Item>> {
        self.items.iter().flat_map(|(_, items)| items.iter()).map(Arc::as_ref)
    }

    /// Returns the item with this UID.
    pub fn item(&self, uid: &str) -> Option<&Entry<Item>> {
        self.items.iter().find_map(|(_, items)| items.by("uid", uid).next()).map(Arc::as_ref)
    }

    /// Returns the item of a kind with this key.
    pub fn get(&self, resource: &Resource, key: &Key) -> Option<&Entry<Item>> {
        let (_, items) = self.items.iter().find(|(have, _)| have.is_version_of(resource))?;
        items.entry(key).map(Arc::as_ref)
    }

    /// Returns the items that have the object with this UID as an owner.
    pub fn dependents<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = &'a Entry<Item>> {
        self.items.iter().flat_map(move |(_, items)| items.by("owner", uid)).map(Arc::as_ref)
    }
}

/// Returns the indexes of items.
pub fn item_index_by() -> Vec<IndexBy<Item>> {
    let uid = |_: &Key, item: &Item| vec![item.uid.clone()];
    let owner = |_: &Key, item: &Item| item.owners.iter().map(|owner| owner.uid.clone()).collect();
    vec![IndexBy::new("uid", uid), IndexBy::new("owner", owner)]
}
