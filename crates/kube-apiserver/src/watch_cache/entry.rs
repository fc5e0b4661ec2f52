//! Watch cache entry: one object.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use api::kind::{Kind, Selectable};
use api_registry::conversion::refresh;
use apimachinery::collection;
use apimachinery::meta::Meta;
use apimachinery::{Str, Value};
use bytes::Bytes;
use client::shared_objects::{self, SharedObject};
use mvcc::Revision;

use crate::storage_format::{self, Offsets, Unreadable};

/// An object's bytes and the values that selectors need.
#[derive(Debug)]
pub struct Entry {
    /// The key below the kind's prefix: `namespace/name`, or the name.
    pub key: Str,
    /// The object in its storage encoding.
    pub bytes: Bytes,
    /// Offsets of the parts of `bytes`.
    offsets: Offsets,
    /// The revision of the last write (resourceVersion).
    pub revision: Revision,
    labels: Box<[(Str, Str)]>,
    fields: Box<[Str]>,
    /// The edition of the kind for which [`Self::is_fresh`] last returned true.
    fresh_in: AtomicU64,
    /// The decoded object, shared by all holders in this process.
    shared: Mutex<Weak<collection::Entry<Value>>>,
}

impl Entry {
    /// Parses the parts of an object that the cache needs.
    pub fn new(key: &str, bytes: Bytes, revision: Revision, selectable: &[Selectable]) -> Result<Self, Unreadable> {
        Self::read(key, bytes, revision, selectable).map(|(entry, _)| entry)
    }

    /// Like [`Self::new`], and also returns the decoded object, which the entry shares as long as a holder keeps it.
    pub fn read(
        key: &str,
        bytes: Bytes,
        revision: Revision,
        selectable: &[Selectable],
    ) -> Result<(Self, SharedObject), Unreadable> {
        let entry = Self::bare(key, bytes, revision)?;
        let object = storage_format::decode(&entry.bytes, revision)?;
        let labels = Meta::of(&object).labels().into_iter().flat_map(apimachinery::Object::iter);
        let labels = labels.map(|(key, value)| (key.into(), value.as_str().unwrap_or_default().into())).collect();
        let fields = selectable.iter().map(|field| field.of(&object)).collect();
        let object = shared_objects::new_shared_object(object);
        let shared = Mutex::new(Arc::downgrade(&object));
        Ok((Self { labels, fields, shared, ..entry }, object))
    }

    /// Creates an entry that can only be written to a response: it has no labels or fields.
    pub fn bare(key: &str, bytes: Bytes, revision: Revision) -> Result<Self, Unreadable> {
        let (bytes, offsets) = storage_format::served_form(bytes)?;
        let (labels, fields, fresh_in, shared) = (Box::default(), Box::default(), AtomicU64::new(0), Mutex::default());
        Ok(Self { key: key.into(), bytes, offsets, revision, labels, fields, fresh_in, shared })
    }

    /// Returns the namespace, empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        self.key.rsplit_once('/').map_or("", |(namespace, _)| namespace)
    }

    pub fn name(&self) -> &str {
        self.key.rsplit_once('/').map_or(self.key.as_str(), |(_, name)| name)
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(have, _)| have == key).map(|(_, value)| value.as_str())
    }

    /// Returns the value of the selectable field with that index.
    pub fn field(&self, number: usize) -> &str {
        self.fields.get(number).map_or("", Str::as_str)
    }

    /// Whether a custom resource is stored in this API version: its bytes begin with the version.
    pub fn is_of(&self, api_version: &str) -> bool {
        storage_format::is_of(&self.bytes, api_version)
    }

    /// Whether reading the object with the current CRD changes nothing, so that its bytes can be served unchanged. The
    /// result is cached until the CRD changes.
    pub fn is_fresh(&self, kind: &Kind) -> bool {
        if self.fresh_in.load(Ordering::Relaxed) == kind.edition {
            return true;
        }
        let stored = self.object();
        let mut refreshed = stored.clone();
        refresh(&mut refreshed, kind);
        let fresh = refreshed == stored;
        if fresh {
            self.fresh_in.store(kind.edition, Ordering::Relaxed);
        }
        fresh
    }

    /// Returns the decoded object with its resourceVersion.
    pub fn object(&self) -> Value {
        storage_format::decode(&self.bytes, self.revision).expect("the bytes were decoded when they were received")
    }

    /// Returns the decoded object, decoded once for all concurrent holders.
    pub fn shared_object(&self) -> SharedObject {
        self.shared_object_or(|_| {})
    }

    /// Like [`Self::shared_object`]; calls `made` with the object if it had to be decoded.
    pub fn shared_object_or(&self, made: impl FnOnce(&SharedObject)) -> SharedObject {
        let mut shared = self.shared.lock().expect("no holder panics");
        shared.upgrade().unwrap_or_else(|| {
            let object = shared_objects::new_shared_object(self.object());
            *shared = Arc::downgrade(&object);
            made(&object);
            object
        })
    }

    /// Appends the object as JSON with the given resourceVersion: its own, or that of its deletion.
    pub fn write(&self, revision: Revision, out: &mut Vec<u8>) {
        self.write_from(0, revision, out);
    }

    /// Appends the object as a list item of a built-in kind, without apiVersion and kind.
    pub fn write_item(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        self.write_from(self.offsets.metadata as usize, self.revision, out);
    }

    fn write_from(&self, start: usize, revision: Revision, out: &mut Vec<u8>) {
        let version = self.offsets.version as usize;
        out.extend_from_slice(&self.bytes[start..version]);
        out.extend_from_slice(b",\"resourceVersion\":\"");
        out.extend_from_slice(revision.to_string().as_bytes());
        out.push(b'"');
        out.extend_from_slice(&self.bytes[version..]);
    }

    /// Returns the approximate size in a response.
    pub fn size(&self) -> usize {
        self.bytes.len() + 40
    }
}
