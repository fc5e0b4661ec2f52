//! Objects that a server in the same process tells a watch as they are, so that all who follow them hold the same ones.
//!
//! ```text
//!   request with [`Lean`] ──> server over the network: knows nothing of it, and its bytes are read
//!                        └──> server in this process: [`Objects`] or [`Answered`] in its answer, the body for what fails
//! ```

use std::sync::{Arc, Mutex, PoisonError};

use machinery::collection::Entry;
use machinery::meta::MetaMut;
use machinery::{Key, Value};
use tokio::sync::mpsc;

use crate::watch::Event;

/// Objects under way to a cache: as many as keep both sides busy.
const OBJECTS_MAX: usize = 64;

/// An object without who manages its fields, which is a third of it. Nobody changes it, so anybody may hold it.
pub type Held = Arc<Entry<Value>>;

/// An extension of a request whose answer may be objects as they are.
#[derive(Clone, Copy, Debug)]
pub struct Lean;

/// An extension of the answer to such a request: where the objects come.
#[derive(Clone)]
pub struct Objects(Arc<Mutex<Option<mpsc::Receiver<News>>>>);

/// An extension of the answer to any other such request: the object itself, in the place of a body.
#[derive(Clone, Debug)]
pub struct Answered(pub Value);

/// What a cache is told.
#[derive(Debug)]
pub enum News {
    /// An object is new, or changed.
    Is(Held),
    /// An object is gone, since a version.
    Gone {
        /// Which.
        key: Key,
        /// The version.
        revision: u64,
    },
    /// Everything up to this version was told.
    Bookmark {
        /// The version.
        resource_version: String,
        /// All that was there at the beginning has been told.
        initial_events_end: bool,
    },
}

/// An object as it may be held.
pub fn held(mut object: Value) -> Held {
    if let Some(mut meta) = MetaMut::of(&mut object) {
        meta.remove("managedFields");
    }
    Arc::new(Entry::of(object))
}

impl Objects {
    /// A way for objects: where they are put in, and what goes along with the answer.
    pub fn channel() -> (mpsc::Sender<News>, Self) {
        let (sender, receiver) = mpsc::channel(OBJECTS_MAX);
        (sender, Self(Arc::new(Mutex::new(Some(receiver)))))
    }

    /// Where they come out; for the first who asks.
    pub(crate) fn take(&self) -> Option<mpsc::Receiver<News>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl News {
    /// The same as an event that was read, with its object made by `make`.
    pub(crate) fn of(event: Event, make: impl FnOnce(Value) -> Held) -> Self {
        match event {
            Event::Added(object) | Event::Modified(object) => Self::Is(make(object)),
            Event::Deleted(object) => {
                let Entry { key, revision, .. } = Entry::of(object);
                Self::Gone { key, revision }
            }
            Event::Bookmark { resource_version, initial_events_end } => {
                Self::Bookmark { resource_version, initial_events_end }
            }
        }
    }
}
