//! The effect of an action on the caches.

use apimachinery::{Key, Str};

/// The state that the caches must reach before the key is observed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The kind's cache has reached this revision.
    Written { kind: String, revision: u64 },
    /// The object is being deleted or was deleted.
    Deleted { kind: String, key: Key, uid: Str },
}
