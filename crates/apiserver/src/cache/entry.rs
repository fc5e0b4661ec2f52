//! One object in the cache.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use api::kind::{Kind, Selectable};
use bytes::Bytes;
use client::held::{self, Held};
use machinery::collection;
use machinery::meta::Meta;
use machinery::{Str, Value};
use mvcc::Revision;
use registry::conversion::refresh;

use crate::storage::{self, Places, Unreadable};

/// An object: its bytes, and what selectors ask about it.
#[derive(Debug)]
pub struct Entry {
    /// The key below the kind's prefix: `namespace/name`, or the name.
    pub key: Str,
    /// The object as it is stored.
    pub bytes: Bytes,
    /// Where its parts are.
    places: Places,
    /// Its version.
    pub revision: Revision,
    labels: Box<[(Str, Str)]>,
    fields: Box<[Str]>,
    /// The edition of its kind under which it was last found to be what a read would make of it.
    fresh_in: AtomicU64,
    /// The object as others in this process hold it, for as long as any of them does.
    held: Mutex<Weak<collection::Entry<Value>>>,
}

impl Entry {
    /// Reads what is needed of an object.
    pub fn new(key: &str, bytes: Bytes, revision: Revision, selectable: &[Selectable]) -> Result<Self, Unreadable> {
        Self::read(key, bytes, revision, selectable).map(|(entry, _)| entry)
    }

    /// The same with the object that was read, for those who hold it: they find it for as long as anybody keeps it.
    pub fn read(
        key: &str,
        bytes: Bytes,
        revision: Revision,
        selectable: &[Selectable],
    ) -> Result<(Self, Held), Unreadable> {
        let entry = Self::bare(key, bytes, revision)?;
        let object = storage::decode(&entry.bytes, revision)?;
        let labels = Meta::of(&object).labels().into_iter().flat_map(machinery::Object::iter);
        let labels = labels.map(|(key, value)| (key.into(), value.as_str().unwrap_or_default().into())).collect();
        let fields = selectable.iter().map(|field| field.of(&object)).collect();
        let object = held::held(object);
        let held = Mutex::new(Arc::downgrade(&object));
        Ok((Self { labels, fields, held, ..entry }, object))
    }

    /// The bytes of an object, to be written and for nothing else.
    pub fn bare(key: &str, bytes: Bytes, revision: Revision) -> Result<Self, Unreadable> {
        let (bytes, places) = storage::served_form(bytes)?;
        let (labels, fields, fresh_in, held) = (Box::default(), Box::default(), AtomicU64::new(0), Mutex::default());
        Ok(Self { key: key.into(), bytes, places, revision, labels, fields, fresh_in, held })
    }

    /// The namespace, empty for a cluster-wide object.
    pub fn namespace(&self) -> &str {
        self.key.rsplit_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.key.rsplit_once('/').map_or(self.key.as_str(), |(_, name)| name)
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(have, _)| have == key).map(|(_, value)| value.as_str())
    }

    /// The value of the selectable field of that number.
    pub fn field(&self, number: usize) -> &str {
        self.fields.get(number).map_or("", Str::as_str)
    }

    /// Whether it is stored in this version: what is written begins with it.
    pub fn is_of(&self, api_version: &str) -> bool {
        storage::is_of(&self.bytes, api_version)
    }

    /// Whether the kind's definition as it is now would change nothing about it when it is read. What was found out is
    /// remembered until the definition changes, so that bytes are mostly served without being looked at.
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

    /// The object as a tree, with its version.
    pub fn object(&self) -> Value {
        storage::decode(&self.bytes, self.revision).expect("it was read when it came")
    }

    /// The object as it may be held: read once for all who hold it at the same time.
    pub fn held(&self) -> Held {
        self.held_or(|_| {})
    }

    /// The same; `made` is shown the object if nobody held it before.
    pub fn held_or(&self, made: impl FnOnce(&Held)) -> Held {
        let mut held = self.held.lock().expect("no holder panics");
        held.upgrade().unwrap_or_else(|| {
            let object = held::held(self.object());
            *held = Arc::downgrade(&object);
            made(&object);
            object
        })
    }

    /// Appends the object as JSON with a version: its own, or that of its deletion.
    pub fn write(&self, revision: Revision, out: &mut Vec<u8>) {
        self.write_from(0, revision, out);
    }

    /// Appends the object as an item of a list of a built-in kind, which does not say again what it is.
    pub fn write_item(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        self.write_from(self.places.metadata as usize, self.revision, out);
    }

    fn write_from(&self, start: usize, revision: Revision, out: &mut Vec<u8>) {
        let version = self.places.version as usize;
        out.extend_from_slice(&self.bytes[start..version]);
        out.extend_from_slice(b",\"resourceVersion\":\"");
        out.extend_from_slice(revision.to_string().as_bytes());
        out.push(b'"');
        out.extend_from_slice(&self.bytes[version..]);
    }

    /// How many bytes it takes in an answer, about.
    pub fn size(&self) -> usize {
        self.bytes.len() + 40
    }
}
