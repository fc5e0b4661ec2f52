//! Objects of every kind that the server has, custom ones too, as what little of them is needed to say who belongs to whom.
//!
//! A [`Sweeper`] is a control loop over all of them. What the copies cannot tell for certain, such as that an object is absent, it
//! asks the server before it decides: a decision is either a plan or a list of questions, whose answers come with the next one.

mod item;
mod model;

use std::collections::BTreeMap;
use std::sync::Arc;

use machinery::collection::{Collection, Entry, IndexBy};
use machinery::meta::Scope;
use machinery::time::Time;
use machinery::{Key, Resource, Str, Value};

use crate::Plan;

pub use item::{FOREGROUND, Item, ORPHAN, Owner};
pub use model::{settle, step};

/// The items of a kind.
pub type Items = Collection<Item>;

/// A kind that the server says it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Where it is found, in the version that the server prefers.
    pub resource: Arc<Resource>,
    /// What can be done with it: `list`, `delete`, `deletecollection`.
    pub verbs: Vec<Str>,
}

/// What the server says it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovery {
    /// Each kind once, in the version that the server prefers.
    pub kinds: Vec<Kind>,
    /// Every version of every kind.
    pub served: Vec<Resource>,
    /// Groups and versions whose own server does not answer.
    pub stale: Vec<String>,
}

/// Everything there is, as it was at one moment for each kind.
pub struct Everything {
    /// What the server says it has.
    pub discovery: Arc<Discovery>,
    /// Whether the items of all kinds are known.
    pub whole: bool,
    items: Vec<(Arc<Resource>, Items)>,
}

/// What only the server can say.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// Whether there is such an object, and what it is.
    Object {
        /// `apps/v1`.
        api_version: Str,
        /// `Deployment`.
        kind: Str,
        /// Which one.
        key: Key,
    },
    /// What kinds there are now: what is known of them is a moment old.
    Kinds,
    /// All objects of a kind in a namespace.
    Contents {
        /// `deployments.apps`.
        kind: Str,
        /// The namespace.
        namespace: Str,
    },
}

/// What the server said.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// There is no such object.
    Absent,
    /// There is.
    Object(Value),
    /// These kinds.
    Kinds(Arc<Discovery>),
    /// These are there.
    Items(Vec<(Key, Item)>),
    /// It did not say, or not in words that count.
    Failed(String),
}

/// The answers so far.
pub type Answers = BTreeMap<Question, Answer>;

/// One step of a decision.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// This must be known first.
    Ask(Vec<Question>),
    /// This is to be done.
    Act(Plan),
}

/// A control loop over objects of every kind.
pub trait Sweeper: 'static {
    /// Its name, as flags, logs and field managers have it.
    const NAME: &'static str;

    /// Which keys a change of an object concerns. What a key is of, the sweeper knows.
    fn concerns(of: &Key, old: Option<&Item>, new: Option<&Item>, keys: &mut Vec<Key>);

    /// Decides about a key: no I/O, no clock, no randomness.
    fn decide(everything: &Everything, key: &Key, answers: &Answers, now: Time) -> Step;
}

impl Kind {
    /// Whether something can be done with it.
    pub fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|have| have == verb)
    }

    /// Whether its objects live in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.resource.scope == Scope::Namespaced
    }
}

impl Discovery {
    /// Where objects are found that state this version and kind.
    pub fn resource(&self, api_version: &str, kind: &str) -> Option<&Resource> {
        self.served.iter().find(|have| have.kind == kind && have.api_version() == api_version)
    }

    /// The kind that is called so: `deployments.apps`.
    pub fn kind(&self, name: &str) -> Option<&Kind> {
        self.kinds.iter().find(|kind| kind.resource.to_string() == name)
    }
}

impl Everything {
    /// These items, one collection for each kind that is followed.
    pub const fn new(discovery: Arc<Discovery>, items: Vec<(Arc<Resource>, Items)>, whole: bool) -> Self {
        Self { discovery, whole, items }
    }

    /// All items.
    pub fn all(&self) -> impl Iterator<Item = &Entry<Item>> {
        self.items.iter().flat_map(|(_, items)| items.iter()).map(Arc::as_ref)
    }

    /// The item with this identifier.
    pub fn item(&self, uid: &str) -> Option<&Entry<Item>> {
        self.items.iter().find_map(|(_, items)| items.by("uid", uid).next()).map(Arc::as_ref)
    }

    /// The item of a kind with this key.
    pub fn get(&self, resource: &Resource, key: &Key) -> Option<&Entry<Item>> {
        let same = |have: &Resource| have.plural == resource.plural && have.group == resource.group;
        let (_, items) = self.items.iter().find(|(have, _)| same(have))?;
        items.entry(key).map(Arc::as_ref)
    }

    /// The items that name the object with this identifier as an owner.
    pub fn dependents<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = &'a Entry<Item>> {
        self.items.iter().flat_map(move |(_, items)| items.by("owner", uid)).map(Arc::as_ref)
    }
}

/// The indexes that items have.
pub fn item_index_by() -> Vec<IndexBy<Item>> {
    let uid = |_: &Key, item: &Item| vec![item.uid.clone()];
    let owner = |_: &Key, item: &Item| item.owners.iter().map(|owner| owner.uid.clone()).collect();
    vec![IndexBy::new("uid", uid), IndexBy::new("owner", owner)]
}
