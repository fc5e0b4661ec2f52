//! Test helpers for admission plugins: a cluster of listed objects, and attributes of a write.

use std::sync::Arc;

use api::kind::Kind;
use apimachinery::collection::Entry;
use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{GroupResource, Value, json};
use auth::User;

use super::{Attributes, CachedObject, Operation, View};

/// A cluster: objects by group and plural name.
#[derive(Default)]
pub(crate) struct Cluster {
    objects: Vec<(String, String, Value)>,
    /// Whether all requests are authorized.
    pub allows: bool,
}

impl Cluster {
    /// Adds an object.
    pub(crate) fn with(mut self, group: &str, plural: &str, object: &str) -> Self {
        let object = json::parse(object.as_bytes()).expect("the test's object is JSON");
        self.objects.push((group.to_owned(), plural.to_owned(), object));
        self
    }

    /// Authorizes all requests, or none.
    pub(crate) const fn allowing(mut self, allows: bool) -> Self {
        self.allows = allows;
        self
    }
}

impl View for Cluster {
    fn object(&self, resource: GroupResource, namespace: &str, name: &str) -> Option<CachedObject> {
        let found = self.objects(resource, namespace);
        found.into_iter().find(|object| Meta::of(object).name() == name)
    }

    fn objects(&self, resource: GroupResource, namespace: &str) -> Vec<CachedObject> {
        self.stored(resource.group, resource.plural, namespace, "")
            .into_iter()
            .map(|object| Arc::new(Entry::of(object, Time::from_unix(0, 0))).into())
            .collect()
    }

    fn stored(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Vec<Value> {
        let here = |(g, p, object): &&(String, String, Value)| {
            let (at, called) = (Meta::of(object).namespace(), Meta::of(object).name());
            let is_there = namespace.is_empty() || at.is_empty() || at == namespace;
            g == group && p == plural && is_there && (name.is_empty() || name == called)
        };
        self.objects.iter().filter(here).map(|(_, _, object)| object.clone()).collect()
    }

    fn allows(&self, _: &auth::Attributes<'_>) -> bool {
        self.allows
    }

    fn authorizer(&self, _: &User) -> Arc<dyn cel::Authorizer> {
        Arc::new(FixedAuthorizer(self.allows))
    }

    fn plural(&self, group: &str, kind: &str) -> Option<(String, bool)> {
        let rows = api::kinds::all();
        let row = rows.iter().find(|row| row.group == group && row.kind == kind)?;
        Some((row.plural.to_string(), row.is_namespaced()))
    }
}

struct FixedAuthorizer(bool);

impl cel::Authorizer for FixedAuthorizer {
    fn authorize(&self, _: &cel::Check) -> cel::Decision {
        cel::Decision { allowed: self.0, ..cel::Decision::default() }
    }
}

/// Returns the attributes of a write of an object `x`, in namespace `n` if its kind is namespaced.
pub(crate) fn attributes<'a>(kind: &'a Kind, user: &'a User, operation: Operation) -> Attributes<'a> {
    Attributes {
        kind,
        version: &kind.versions[0],
        namespace: if kind.is_namespaced() { "n" } else { "" },
        name: "x",
        subresource: "",
        operation,
        user,
        now: Time::from_unix(0, 0),
        dry_run: false,
        old: None,
        suffix: "abcde",
        uid: "1",
        options: &Value::Null,
    }
}
