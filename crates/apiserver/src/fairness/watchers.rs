//! Who will be told of a write: how many watch a collection, a namespace of it, or one object.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use registry::route::Resource;

/// The watches that run, counted by what they watch.
#[derive(Clone, Default)]
pub struct Watchers(Arc<Mutex<BTreeMap<Watched, u32>>>);

/// Group, plural name, namespace and name; empty for all.
type Watched = (String, String, String, String);

/// A watch that runs; it is no longer counted when this is dropped.
pub struct Watching {
    watchers: Watchers,
    watched: Watched,
}

impl Watchers {
    /// Counts a watch.
    pub fn begin(&self, resource: &Resource) -> Watching {
        let watched = watched(resource, &resource.namespace, &resource.name);
        *self.0.lock().expect("no holder panics").entry(watched.clone()).or_default() += 1;
        Watching { watchers: self.clone(), watched }
    }

    /// How many watches see a write.
    pub fn interested(&self, resource: &Resource) -> u32 {
        let counts = self.0.lock().expect("no holder panics");
        if counts.is_empty() {
            return 0;
        }
        let mut places = vec![watched(resource, "", "")];
        let (namespace, name) = (resource.namespace.as_str(), resource.name.as_str());
        if !namespace.is_empty() {
            places.push(watched(resource, namespace, ""));
        }
        if !name.is_empty() {
            places.push(watched(resource, namespace, name));
        }
        places.iter().filter_map(|place| counts.get(place)).sum()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut counts = self.watchers.0.lock().expect("no holder panics");
        if let Some(count) = counts.get_mut(&self.watched) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.watched);
            }
        }
    }
}

fn watched(resource: &Resource, namespace: &str, name: &str) -> Watched {
    (resource.group.clone(), resource.plural.clone(), namespace.to_owned(), name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_seen_by_those_who_watch_all_its_namespace_or_just_it() {
        let place = |namespace: &str, name: &str| Resource {
            plural: "pods".into(),
            namespace: namespace.into(),
            name: name.into(),
            ..Resource::default()
        };
        let watchers = Watchers::default();
        let all = watchers.begin(&place("", ""));
        let _others =
            [watchers.begin(&place("a", "")), watchers.begin(&place("a", "x")), watchers.begin(&place("b", ""))];
        assert_eq!(watchers.interested(&place("a", "x")), 3);
        assert_eq!(watchers.interested(&place("a", "y")), 2);
        assert_eq!(watchers.interested(&place("c", "")), 1);
        assert_eq!(watchers.interested(&Resource { plural: "nodes".into(), ..Resource::default() }), 0);
        drop(all);
        assert_eq!(watchers.interested(&place("c", "")), 0);
    }
}
