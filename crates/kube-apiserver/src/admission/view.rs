//! The cluster state that admission plugins can read: watch cache and authorizers.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use admission::measure::Measurement;
use admission::{CachedObject, View};
use apimachinery::GroupResource;
use apimachinery::Value;
use auth::{Authorizer, Decision, Resource, Target, User};

use super::Admission;
use crate::authorization::Authorization;

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

impl View for Admission {
    fn object(&self, resource: GroupResource, namespace: &str, name: &str) -> Option<CachedObject> {
        self.storage.object(resource, namespace, name)
    }

    fn objects(&self, resource: GroupResource, namespace: &str) -> Vec<CachedObject> {
        self.storage.objects(resource, namespace)
    }

    fn stored(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Vec<Value> {
        self.storage.stored(group, plural, namespace, name)
    }

    fn allows(&self, attributes: &auth::Attributes<'_>) -> bool {
        matches!(self.authorization.authorize(attributes), Decision::Allow(_))
    }

    fn authorizer(&self, user: &User) -> Arc<dyn cel::Authorizer> {
        Arc::new(CelAuthorizer { authorization: self.authorization.clone(), user: user.clone() })
    }

    fn plural(&self, group: &str, kind: &str) -> Option<(String, bool)> {
        let table = self.storage.table();
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
