//! The cluster state that admission can read: watch cache and authorizers.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use admission::measure::Measurement;
use admission::{CachedObject, View};
use api::kind::Kind;
use apimachinery::GroupResource;
use apimachinery::Value;
use auth::{Authorizer, Decision, Resource, Target, User};
use client::shared_objects;

use crate::authorization::Authorization;
use crate::conversion;
use crate::state::State;
use crate::watch_cache::Entry;

/// The authorizer of CEL expressions.
struct CelAuthorizer {
    authorization: Arc<Authorization>,
    user: User,
}

impl cel::Authorizer for CelAuthorizer {
    fn authorize(&self, check: &cel::Check) -> cel::Decision {
        let account = check.service_account().map(|(namespace, name)| auth::service_account::user(namespace, name, ""));
        let user = account.as_ref().unwrap_or(&self.user);
        let (fields, labels) = auth::attributes::selectors(&check.verb, &check.field_selector, &check.label_selector);
        let target = match &check.path {
            Some(path) => Target::Path(path),
            None => Target::Resource(Resource {
                group: &check.group,
                version: "*",
                resource: &check.resource,
                subresource: &check.subresource,
                namespace: &check.namespace,
                name: &check.name,
                field_selector: &fields,
                label_selector: &labels,
            }),
        };
        let attributes = auth::Attributes { user, verb: &check.verb, target };
        match self.authorization.authorize(&attributes) {
            Decision::Allow(reason) => cel::Decision { allowed: true, reason: reason.into(), error: None },
            Decision::Deny(reason) | Decision::NoOpinion(reason) => {
                cel::Decision { allowed: false, reason: reason.into(), error: None }
            }
        }
    }
}

impl State {
    /// Returns a cached object in the form that a read returns: the current CRD is applied to a custom resource.
    fn known(&self, kind: &Kind, entry: &Entry) -> CachedObject {
        if kind.is_custom() {
            return shared_objects::new_shared_object(conversion::refreshed(kind, entry.object())).into();
        }
        self.cache.known(entry).into()
    }
}

/// Returns an object's key below its kind.
fn key(kind: &Kind, namespace: &str, name: &str) -> String {
    if kind.is_namespaced() { format!("{namespace}/{name}") } else { name.to_owned() }
}

impl View for State {
    fn object(&self, resource: GroupResource, namespace: &str, name: &str) -> Option<CachedObject> {
        let table = self.table();
        let kind = table.kind(resource.group, resource.plural)?;
        self.cache.kind_cache(kind).get(&key(kind, namespace, name)).map(|entry| self.known(kind, &entry))
    }

    fn objects(&self, resource: GroupResource, namespace: &str) -> Vec<CachedObject> {
        let table = self.table();
        let Some(kind) = table.kind(resource.group, resource.plural) else { return Vec::new() };
        self.cache.kind_cache(kind).list(namespace, |_| true).iter().map(|entry| self.known(kind, entry)).collect()
    }

    fn stored(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Vec<Value> {
        let table = self.table();
        let Some(kind) = table.kind(group, plural) else { return Vec::new() };
        let kind_cache = self.cache.kind_cache(kind);
        let entries = match name {
            "" => kind_cache.list(namespace, |_| true),
            name => kind_cache.get(&key(kind, namespace, name)).into_iter().collect(),
        };
        entries.iter().map(|entry| conversion::refreshed(kind, entry.object())).collect()
    }

    fn allows(&self, attributes: &auth::Attributes<'_>) -> bool {
        matches!(self.authorization.authorize(attributes), Decision::Allow(_))
    }

    fn authorizer(&self, user: &User) -> Arc<dyn cel::Authorizer> {
        Arc::new(CelAuthorizer { authorization: self.authorization.clone(), user: user.clone() })
    }

    fn plural(&self, group: &str, kind: &str) -> Option<(String, bool)> {
        let table = self.table();
        let row = table.kinds.iter().find(|row| row.group == group && row.kind == kind)?;
        Some((row.plural.to_string(), row.is_namespaced()))
    }

    fn reading(&self) -> Duration {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed()
    }

    fn measured(&self, what: Measurement<'_>) {
        self.metrics.admission.measured(what);
    }
}
