//! The effect of an action on the caches.

use apimachinery::{Key, Resource, Str};

/// The state that the caches must reach before the key is observed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The resource's cache has reached this revision.
    Written { resource: Resource, revision: u64 },
    /// The object is being deleted or was deleted.
    Deleted { resource: Resource, key: Key, uid: Str },
}

impl Effect {
    /// Returns the resource whose cache shows the effect.
    pub(crate) const fn resource(&self) -> &Resource {
        match self {
            Self::Written { resource, .. } | Self::Deleted { resource, .. } => resource,
        }
    }
}
