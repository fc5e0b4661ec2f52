//! Watch counts: the number of watches of a collection, a namespace or one object, which determines the cost of a
//! write.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex};

use api_registry::request_info::Resource;

/// Running watches, counted per watched scope and sorted for lookup by every write.
#[derive(Clone, Default)]
pub struct Watchers(Arc<Mutex<Vec<(WatchKey, u32)>>>);

/// Plural name, group, namespace and name; an empty string matches all.
type WatchKey = [String; 4];

/// A running watch; counted until dropped.
pub struct Watching {
    watchers: Watchers,
    watched: WatchKey,
}

impl Watchers {
    /// Counts a watch until the returned guard is dropped.
    pub fn start(&self, resource: &Resource) -> Watching {
        let watched = watch_key(resource, &resource.namespace, &resource.name).map(str::to_owned);
        let mut counts = self.0.lock().expect("no holder panics");
        match counts.binary_search_by(|(have, _)| have.cmp(&watched)) {
            Ok(at) => counts[at].1 += 1,
            Err(at) => counts.insert(at, (watched.clone(), 1)),
        }
        Watching { watchers: self.clone(), watched }
    }

    /// Returns the number of watches that a write notifies.
    pub fn interested(&self, resource: &Resource) -> u32 {
        let counts = self.0.lock().expect("no holder panics");
        let count = |namespace: &str, name: &str| {
            let key = watch_key(resource, namespace, name);
            let found = counts.binary_search_by(|(have, _)| order(have, &key));
            found.map_or(0, |at| counts[at].1)
        };
        let (namespace, name) = (resource.namespace.as_str(), resource.name.as_str());
        let in_namespace = if namespace.is_empty() { 0 } else { count(namespace, "") };
        let by_name = if name.is_empty() { 0 } else { count(namespace, name) };
        count("", "") + in_namespace + by_name
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut counts = self.watchers.0.lock().expect("no holder panics");
        if let Ok(at) = counts.binary_search_by(|(have, _)| have.cmp(&self.watched)) {
            counts[at].1 -= 1;
            if counts[at].1 == 0 {
                counts.remove(at);
            }
        }
    }
}

fn watch_key<'r>(resource: &'r Resource, namespace: &'r str, name: &'r str) -> [&'r str; 4] {
    [&resource.plural, &resource.group, namespace, name]
}

fn order(have: &WatchKey, key: &[&str; 4]) -> Ordering {
    have.iter().map(String::as_str).cmp(key.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_of_all_namespaces_the_namespace_or_the_object_count_for_a_write() {
        let resource = |namespace: &str, name: &str| Resource {
            plural: "pods".into(),
            namespace: namespace.into(),
            name: name.into(),
            ..Resource::default()
        };
        let watchers = Watchers::default();
        let all = watchers.start(&resource("", ""));
        let _others = [
            watchers.start(&resource("a", "")),
            watchers.start(&resource("a", "x")),
            watchers.start(&resource("b", "")),
        ];
        assert_eq!(watchers.interested(&resource("a", "x")), 3);
        assert_eq!(watchers.interested(&resource("a", "y")), 2);
        assert_eq!(watchers.interested(&resource("c", "")), 1);
        assert_eq!(watchers.interested(&Resource { plural: "nodes".into(), ..Resource::default() }), 0);
        drop(all);
        assert_eq!(watchers.interested(&resource("c", "")), 0);
    }
}
