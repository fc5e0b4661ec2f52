//! A persistent collection of the objects of one kind, by key and by index. Clones share all entries; a write copies
//! only the chunk that a clone still holds.
//!
//! The watcher of a kind keeps one collection and hands out clones. A reconciliation thus reads a state that does not
//! change during it, and the writer never waits for a reader.

mod sorted;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use sorted::{SortedItem, SortedList};

use crate::meta::Meta;
use crate::time::Time;
use crate::{Str, Value};

/// The namespace and name of an object. Sorted by namespace first, so that a namespace is a range.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Empty for a cluster-scoped kind.
    pub namespace: Str,
    pub name: Str,
}

/// An object in a collection.
#[derive(Clone, Debug)]
pub struct Entry<T> {
    pub key: Key,
    /// The `resourceVersion` of the object that the value was made from.
    pub revision: u64,
    /// The time on this host's clock at which this revision was first observed.
    pub observed_at: Time,
    /// The object, or a part of it.
    pub value: T,
}

/// An index: a name, and a function that returns the values under which an object is found.
pub struct IndexBy<T> {
    name: &'static str,
    values: Values<T>,
}

type Values<T> = Box<dyn Fn(&Key, &T) -> Vec<Str> + Send + Sync>;

pub struct Collection<T> {
    entries: SortedList<SharedEntry<T>>,
    indexes: Vec<SortedList<Pointer<T>>>,
    index_by: Arc<[IndexBy<T>]>,
}

struct SharedEntry<T>(Arc<Entry<T>>);

struct Pointer<T> {
    value: Arc<str>,
    entry: Arc<Entry<T>>,
}

impl Entry<Value> {
    /// Builds the entry of an object; an invalid `resourceVersion` counts as 0.
    pub fn of(object: Value, observed_at: Time) -> Self {
        let revision = Meta::of(&object).resource_version().parse().unwrap_or(0);
        Self { key: Key::of(&object), revision, observed_at, value: object }
    }
}

impl Key {
    pub fn new(namespace: impl Into<Str>, name: impl Into<Str>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Returns the key of a cluster-scoped object.
    pub fn cluster(name: impl Into<Str>) -> Self {
        Self { namespace: Str::default(), name: name.into() }
    }

    /// Returns the key of an object.
    pub fn of(object: &Value) -> Self {
        let meta = Meta::of(object);
        Self::new(meta.namespace(), meta.name())
    }
}

/// `namespace/name`, or the name alone.
impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(out, "{}/", self.namespace)?;
        }
        out.write_str(&self.name)
    }
}

impl<T> IndexBy<T> {
    /// Creates an index. Each object is found under every value that `values` returns for it.
    pub fn new(name: &'static str, values: impl Fn(&Key, &T) -> Vec<Str> + Send + Sync + 'static) -> Self {
        Self { name, values: Box::new(values) }
    }
}

impl<T> Collection<T> {
    /// Creates an empty collection with these indexes.
    pub fn new(index_by: Vec<IndexBy<T>>) -> Self {
        Self {
            entries: SortedList::default(),
            indexes: index_by.iter().map(|_| SortedList::default()).collect(),
            index_by: index_by.into(),
        }
    }

    /// Returns an empty collection with the same indexes.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self {
            entries: SortedList::default(),
            indexes: self.indexes.iter().map(|_| SortedList::default()).collect(),
            index_by: Arc::clone(&self.index_by),
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, key: &Key) -> Option<&T> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// Returns the object `key` with its revision.
    pub fn entry(&self, key: &Key) -> Option<&Arc<Entry<T>>> {
        self.entries.find(|have| have.0.key.cmp(key)).map(|found| &found.0)
    }

    /// Returns all objects, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Entry<T>>> {
        self.entries.iter_from(|_| false).map(|shared| &shared.0)
    }

    /// Returns the objects of a namespace, sorted by name.
    pub fn in_namespace<'a>(&'a self, namespace: &str) -> impl Iterator<Item = &'a Arc<Entry<T>>> + use<'a, T> {
        let from = self.entries.iter_from(|have| have.0.key.namespace.as_str() < namespace);
        let namespace = Str::from(namespace);
        from.map(|shared| &shared.0).take_while(move |entry| entry.key.namespace == namespace)
    }

    /// Returns the objects found under `value` by the index called `index`, sorted by key.
    ///
    /// # Panics
    /// If the collection has no such index. The indexes are fixed when the collection is created.
    pub fn by<'a>(&'a self, index: &str, value: &str) -> impl Iterator<Item = &'a Arc<Entry<T>>> + use<'a, T> {
        let at = self.index_by.iter().position(|have| have.name == index);
        let at = at.unwrap_or_else(|| panic!("the collection has no index called {index}"));
        let from = self.indexes[at].iter_from(|have| *have.value < *value);
        let value = Str::from(value);
        from.take_while(move |have| *have.value == *value).map(|pointer| &pointer.entry)
    }

    /// Inserts an object and returns the one it replaced.
    pub fn insert(&mut self, entry: impl Into<Arc<Entry<T>>>) -> Option<Arc<Entry<T>>> {
        let entry = entry.into();
        let old = self.entries.insert(SharedEntry(Arc::clone(&entry))).map(|shared| shared.0);
        for (by, index) in self.index_by.iter().zip(&mut self.indexes) {
            let new_values = (by.values)(&entry.key, &entry.value);
            let old_values = old.as_ref().map_or_else(Vec::new, |old| (by.values)(&old.key, &old.value));
            for stale_value in old_values.iter().filter(|value| !new_values.contains(value)) {
                index.remove(|have| have.compare_to(stale_value, &entry.key));
            }
            for value in new_values {
                // Most objects keep their index values.
                let compare = |have: &Pointer<T>| have.compare_to(&value, &entry.key);
                let stays = old_values.contains(&value) && index.update(compare, |it| it.entry = Arc::clone(&entry));
                if !stays {
                    index.insert(Pointer { value: value.as_str().into(), entry: Arc::clone(&entry) });
                }
            }
        }
        old
    }

    /// Removes an object and returns it.
    pub fn remove(&mut self, key: &Key) -> Option<Arc<Entry<T>>> {
        let old = self.entries.remove(|have| have.0.key.cmp(key))?.0;
        for (by, index) in self.index_by.iter().zip(&mut self.indexes) {
            for stale_value in (by.values)(&old.key, &old.value) {
                index.remove(|have| have.compare_to(&stale_value, key));
            }
        }
        Some(old)
    }
}

impl<T> Pointer<T> {
    fn compare_to(&self, value: &str, key: &Key) -> Ordering {
        (*self.value).cmp(value).then_with(|| self.entry.key.cmp(key))
    }
}

impl<T> SortedItem for SharedEntry<T> {
    fn order(&self, other: &Self) -> Ordering {
        self.0.key.cmp(&other.0.key)
    }
}

impl<T> SortedItem for Pointer<T> {
    fn order(&self, other: &Self) -> Ordering {
        self.compare_to(&other.value, &other.entry.key)
    }
}

// A derived implementation would require `T: Clone`.
impl<T> Clone for SharedEntry<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Clone for Pointer<T> {
    fn clone(&self) -> Self {
        Self { value: Arc::clone(&self.value), entry: Arc::clone(&self.entry) }
    }
}

impl<T> Clone for Collection<T> {
    fn clone(&self) -> Self {
        Self { entries: self.entries.clone(), indexes: self.indexes.clone(), index_by: Arc::clone(&self.index_by) }
    }
}

impl<T> fmt::Debug for Collection<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.iter().map(|entry| &entry.key)).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Color = &'static str;

    fn colored() -> Collection<Color> {
        Collection::new(vec![IndexBy::new("color", |_, color: &Color| {
            color.split('+').filter(|one| !one.is_empty()).map(Str::from).collect()
        })])
    }

    fn entry(key: Key, revision: u64, value: Color) -> Entry<Color> {
        Entry { key, revision, observed_at: Time::from_unix(0, 0), value }
    }

    fn names<'a>(found: impl Iterator<Item = &'a Arc<Entry<Color>>>) -> Vec<String> {
        found.map(|entry| entry.key.to_string()).collect()
    }

    #[test]
    fn object_is_found_by_key_by_namespace_and_by_every_value_of_an_index() {
        let mut all = colored();
        all.insert(entry(Key::new("b", "1"), 1, "red"));
        all.insert(entry(Key::new("a", "2"), 2, "red+blue"));
        all.insert(entry(Key::new("a", "1"), 3, ""));
        assert_eq!(all.get(&Key::new("b", "1")), Some(&"red"));
        assert_eq!(names(all.in_namespace("a")), ["a/1", "a/2"]);
        assert_eq!(names(all.by("color", "red")), ["a/2", "b/1"]);
        assert_eq!(names(all.by("color", "blue")), ["a/2"]);
        all.insert(entry(Key::new("a", "2"), 4, "blue"));
        assert_eq!(names(all.by("color", "red")), ["b/1"]);
        all.remove(&Key::new("a", "2"));
        assert_eq!(names(all.by("color", "blue")), [""; 0]);
    }

    proptest! {
        #[test]
        fn collection_agrees_with_a_map_and_clones_never_change(
            steps in prop::collection::vec((0u16..400, prop::sample::select(vec!["", "red", "blue", "red+blue"]), any::<bool>()), 0..900),
        ) {
            let mut all = colored();
            let mut model: BTreeMap<Key, Color> = BTreeMap::new();
            let mut clones = Vec::new();
            for (at, (number, color, remove)) in steps.into_iter().enumerate() {
                let key = Key::new((number % 3).to_string(), number.to_string());
                if remove {
                    prop_assert_eq!(all.remove(&key).map(|old| old.value), model.remove(&key));
                } else {
                    let old = all.insert(entry(key.clone(), at as u64, color)).map(|old| old.value);
                    prop_assert_eq!(old, model.insert(key, color));
                }
                if at % 100 == 0 {
                    clones.push((all.clone(), model.clone()));
                }
            }
            clones.push((all, model));
            for (all, model) in clones {
                prop_assert_eq!(all.len(), model.len());
                prop_assert!(all.iter().map(|entry| (&entry.key, entry.value)).eq(model.iter().map(|(k, v)| (k, *v))));
                for selected in ["red", "blue"] {
                    let expect: Vec<String> =
                        model.iter().filter(|(_, have)| have.contains(selected)).map(|(key, _)| key.to_string()).collect();
                    prop_assert_eq!(names(all.by("color", selected)), expect);
                }
            }
        }
    }
}
