//! Watch events of a server in the same process: objects are passed without serialization and shared by all caches.
//!
//! ```text
//!   request with [`WantShared`] ──> server over the network: ignores it, the body is parsed
//!                        └──> in-process server: [`Objects`] or [`ResponseObject`] in the response, errors in the body
//! ```

use std::sync::{Arc, Mutex, PoisonError};

use apimachinery::collection::Entry;
use apimachinery::meta::MetaMut;
use apimachinery::{Key, Value};
use tokio::sync::mpsc;

use crate::clock::now;

/// Channel capacity, enough to keep both sides busy.
const OBJECTS_MAX: usize = 64;

/// An immutable object without managedFields (about a third of its size), shared by all caches of this process.
pub type SharedObject = Arc<Entry<Value>>;

/// Request extension: the response may contain shared objects.
#[derive(Clone, Copy, Debug)]
pub struct WantShared;

/// Response extension for a watch: the channel of the objects.
#[derive(Clone)]
pub struct Objects(Arc<Mutex<Option<mpsc::Receiver<SharedEvent>>>>);

/// Response extension for other requests: the object instead of a body.
#[derive(Clone, Debug)]
pub struct ResponseObject(pub Value);

/// An event for a cache.
#[derive(Debug)]
pub enum SharedEvent {
    /// An object was added or modified.
    Applied(SharedObject),
    /// An object was deleted.
    Deleted {
        key: Key,
        /// The revision of the deletion.
        revision: u64,
    },
    /// All events up to this version were sent.
    Bookmark {
        resource_version: String,
        /// All initial events were sent.
        initial_events_end: bool,
    },
}

/// Returns an entry without managedFields.
pub fn new_shared_object(mut object: Value) -> SharedObject {
    if let Some(mut meta) = MetaMut::of(&mut object) {
        meta.remove("managedFields");
    }
    Arc::new(Entry::of(object, now()))
}

impl Objects {
    /// Returns a sender, and the extension for the response.
    pub fn channel() -> (mpsc::Sender<SharedEvent>, Self) {
        let (sender, receiver) = mpsc::channel(OBJECTS_MAX);
        (sender, Self(Arc::new(Mutex::new(Some(receiver)))))
    }

    /// Returns the receiver at the first call.
    pub(crate) fn take(&self) -> Option<mpsc::Receiver<SharedEvent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
