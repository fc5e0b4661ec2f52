//! What admission may know of the cluster: the cache, and the authorizers.

use auth::{Authorizer, Decision};
use machinery::Value;
use registry::admission::View;

use crate::state::State;

impl View for State {
    fn object(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let table = self.table();
        let kind = table.kind(group, plural)?;
        let key = if kind.is_namespaced() { format!("{namespace}/{name}") } else { name.to_owned() };
        self.cache.shelf(kind).get(&key).map(|entry| entry.object())
    }

    fn objects(&self, group: &str, plural: &str, namespace: &str) -> Vec<Value> {
        let table = self.table();
        let Some(kind) = table.kind(group, plural) else { return Vec::new() };
        self.cache.shelf(kind).list(namespace, |_| true).iter().map(|entry| entry.object()).collect()
    }

    fn allows(&self, attributes: &auth::Attributes<'_>) -> bool {
        matches!(self.authorization.authorize(attributes), Decision::Allow(_))
    }

    fn plural(&self, group: &str, kind: &str) -> Option<(String, bool)> {
        let table = self.table();
        let row = table.kinds.iter().find(|row| row.group == group && row.kind == kind)?;
        Some((row.plural.to_string(), row.is_namespaced()))
    }
}
