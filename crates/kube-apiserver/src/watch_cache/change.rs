//! Watch cache change: one change of one object, with the encoded watch events.

use std::sync::{Arc, Mutex};

use api_registry::negotiate::{Encoding, Form};
use apimachinery::table::IncludeObject;
use apimachinery::{Str, Value};
use bytes::Bytes;
use mvcc::Revision;
use tokio::sync::OnceCell;

use super::Entry;

/// A change with the object's previous and current state.
#[derive(Debug)]
pub struct Change {
    pub revision: Revision,
    /// The previous object; `None` for a creation.
    pub before: Option<Arc<Entry>>,
    /// The current object; `None` for a deletion.
    pub after: Option<Arc<Entry>>,
    frames: Mutex<Vec<(FrameKey, Bytes)>>,
    converted: Mutex<Vec<ConvertedObject>>,
}

/// One side of a change converted to another version, shared by all watchers of that version.
#[derive(Debug)]
struct ConvertedObject {
    api_version: Str,
    revision: Revision,
    object: Arc<OnceCell<Arc<Value>>>,
}

/// The type of a watch event. With a selector it can differ from the actual change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEventType {
    Added,
    Modified,
    Deleted,
}

/// The parameters that determine the encoded bytes of a watch event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameKey {
    /// For example `apps/v1`.
    pub api_version: Str,
    pub encoding: Encoding,
    /// Object, PartialObjectMetadata or Table.
    pub form: Form,
    /// `includeObject` of table rows.
    pub include: IncludeObject,
    pub what: WatchEventType,
}

/// Maximum number of encodings kept per change. Beyond that each watcher encodes its own.
const FRAMES_MAX: usize = 8;

impl Change {
    pub fn new(revision: Revision, before: Option<Arc<Entry>>, after: Option<Arc<Entry>>) -> Self {
        Self { revision, before, after, frames: Mutex::default(), converted: Mutex::default() }
    }

    /// Returns the encoded event. `make` runs once for all watchers with the same key.
    pub fn frame(&self, key: &FrameKey, make: impl FnOnce() -> Bytes) -> Bytes {
        let mut frames = self.frames.lock().expect("no holder panics");
        if let Some((_, bytes)) = frames.iter().find(|(have, _)| have == key) {
            return bytes.clone();
        }
        let bytes = make();
        if frames.len() < FRAMES_MAX {
            frames.push((key.clone(), bytes.clone()));
        }
        bytes
    }

    /// Returns one side of the change in another version. The conversion runs once for all watchers.
    pub async fn converted<E>(
        &self,
        entry: &Entry,
        api_version: &Str,
        make: impl Future<Output = Result<Value, E>>,
    ) -> Result<Arc<Value>, E> {
        let cell = {
            let mut converted = self.converted.lock().expect("no holder panics");
            let same = |have: &&ConvertedObject| have.api_version == *api_version && have.revision == entry.revision;
            match converted.iter().find(same) {
                Some(have) => have.object.clone(),
                None => {
                    let object: Arc<OnceCell<Arc<Value>>> = Arc::default();
                    let (api_version, revision) = (api_version.clone(), entry.revision);
                    converted.push(ConvertedObject { api_version, revision, object: object.clone() });
                    object
                }
            }
        };
        cell.get_or_try_init(async || make.await.map(Arc::new)).await.cloned()
    }

    /// Returns the current object, or the last one of a deletion.
    pub fn latest(&self) -> &Arc<Entry> {
        self.after.as_ref().or(self.before.as_ref()).expect("a change has a before or an after")
    }
}

impl WatchEventType {
    /// Returns the event type and object for a watcher whose selector matches these sides, or `None` if neither
    /// matches.
    pub fn of<E, O>(before: Option<(E, O)>, after: Option<(E, O)>) -> Option<(Self, E, O)> {
        match (before, after) {
            (None, None) => None,
            (None, Some((entry, object))) => Some((Self::Added, entry, object)),
            (Some(_), Some((entry, object))) => Some((Self::Modified, entry, object)),
            (Some((entry, object)), None) => Some((Self::Deleted, entry, object)),
        }
    }

    /// Returns the name in the watch event, for example `ADDED`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}
