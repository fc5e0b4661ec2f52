//! One change of one object, with the bytes that watchers are sent of it.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use machinery::table::IncludeObject;
use machinery::{Str, Value};
use mvcc::Revision;
use registry::accept::{Encoding, Form};
use tokio::sync::OnceCell;

use super::Entry;

/// A change: what was, and what is.
#[derive(Debug)]
pub struct Change {
    /// When.
    pub revision: Revision,
    /// The object before, if there was one.
    pub before: Option<Arc<Entry>>,
    /// The object after, if there is one.
    pub after: Option<Arc<Entry>>,
    frames: Mutex<Vec<(FrameKey, Bytes)>>,
    converted: Mutex<Vec<Converted>>,
}

/// One side of a change in another version, made by whoever needs it first.
#[derive(Debug)]
struct Converted {
    api_version: Str,
    revision: Revision,
    object: Arc<OnceCell<Arc<Value>>>,
}

/// What a watcher is told that a change is; a selector may see another than there was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Kubernetes' own")]
pub enum What {
    Added,
    Modified,
    Deleted,
}

/// Everything that tells the bytes for one watcher from those for another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameKey {
    /// `apps/v1`.
    pub api_version: Str,
    /// How.
    pub encoding: Encoding,
    /// What of it.
    pub form: Form,
    /// What of it in a row.
    pub include: IncludeObject,
    /// As what.
    pub what: What,
}

/// More forms of one change than any cluster's clients ask for; beyond that each watcher makes its own.
const FRAMES_MAX: usize = 8;

impl Change {
    /// A change that nobody has asked for yet.
    pub fn new(revision: Revision, before: Option<Arc<Entry>>, after: Option<Arc<Entry>>) -> Self {
        Self { revision, before, after, frames: Mutex::default(), converted: Mutex::default() }
    }

    /// The bytes for a watcher, made once for all who ask for the same.
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

    /// One side of the change in another version, asked for once however many watch.
    pub async fn converted<E>(
        &self,
        entry: &Entry,
        api_version: &Str,
        make: impl Future<Output = Result<Value, E>>,
    ) -> Result<Arc<Value>, E> {
        let cell = {
            let mut converted = self.converted.lock().expect("no holder panics");
            let same = |have: &&Converted| have.api_version == *api_version && have.revision == entry.revision;
            match converted.iter().find(same) {
                Some(have) => have.object.clone(),
                None => {
                    let object: Arc<OnceCell<Arc<Value>>> = Arc::default();
                    let (api_version, revision) = (api_version.clone(), entry.revision);
                    converted.push(Converted { api_version, revision, object: object.clone() });
                    object
                }
            }
        };
        cell.get_or_try_init(async || make.await.map(Arc::new)).await.cloned()
    }

    /// The object that a watcher is shown: what is, or what was last.
    pub fn shown(&self) -> &Arc<Entry> {
        self.after.as_ref().or(self.before.as_ref()).expect("a change has a before or an after")
    }
}

impl What {
    /// What a change is to a watcher that sees these sides of it, and the one that it is shown; nothing, if it sees
    /// neither.
    pub fn of<E, O>(before: Option<(E, O)>, after: Option<(E, O)>) -> Option<(Self, E, O)> {
        match (before, after) {
            (None, None) => None,
            (None, Some((entry, object))) => Some((Self::Added, entry, object)),
            (Some(_), Some((entry, object))) => Some((Self::Modified, entry, object)),
            (Some((entry, object)), None) => Some((Self::Deleted, entry, object)),
        }
    }

    /// `ADDED`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}
