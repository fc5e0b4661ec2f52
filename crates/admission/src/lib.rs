//! Admission: mutates or rejects a write after authorization and before the store.
//!
//! A plugin is a pure function of the request and a [`View`] of the cluster. Webhooks need the network and are not
//! plugins; they run between validation by [`Chain::plugins`] and [`Chain::charge`].
//!
//! # Invariants
//!
//! - Concurrent writes do not exceed a ResourceQuota, even while its usage is recalculated: usage is corrected only
//!   from kinds whose caches have reached the quota's version. *Enforced by*
//!   `concurrent_pod_creations_do_not_exceed_the_quota`, `lagging_watch_never_admits_more_than_the_quota`,
//!   `quota_counts_usage_and_rejects_objects_above_the_limit`.

mod always;
mod always_pull_images;
mod certificates;
mod claim_resize;
pub mod configuration;
mod default_class;
mod event_rate_limit;
mod extended_resource_toleration;
mod external_ips;
mod hard_anti_affinity;
pub mod image_policy;
mod limit_ranger;
pub mod measure;
mod namespace_auto_provision;
mod namespace_exists;
mod namespace_lifecycle;
mod node_restriction;
mod node_taints;
mod owner_references;
mod plugins;
mod pod_node_selector;
mod pod_security;
mod pod_toleration_restriction;
mod pod_topology_labels;
mod pods;
mod policies;
mod policy_params;
mod priority;
mod privileged;
mod rbac_escalation;
pub mod reinvocation;
mod request;
mod resource_quota;
mod runtime_class;
mod service_account;
mod storage_protection;
#[cfg(test)]
mod testing;
mod toleration_seconds;
pub mod webhooks;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use api::kind::{Kind, Version};
use apimachinery::GroupResource;
use apimachinery::Value;
use apimachinery::collection::Entry;
use apimachinery::meta::Meta;
use apimachinery::status::Status;
use apimachinery::time::Time;
use auth::User;

pub use plugins::{Flags, PluginFlagError, names};
pub use policies::matching::VersionedKind;

use api_registry::decode::resource_name;

use measure::Measurement;
use reinvocation::Reinvocation;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// The admission attributes of a write.
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    pub kind: &'a Kind,
    /// The version in the request URL.
    pub version: &'a Version,
    /// The namespace, empty for a cluster-scoped kind.
    pub namespace: &'a str,
    /// The name; empty if it is still to be generated.
    pub name: &'a str,
    /// The subresource, empty for the object itself.
    pub subresource: &'a str,
    pub operation: Operation,
    pub user: &'a User,
    pub now: Time,
    pub dry_run: bool,
    /// The existing object, for an update or delete.
    pub old: Option<&'a Value>,
    /// Random suffix for names that a plugin generates.
    pub suffix: &'a str,
    /// The random UID of the AdmissionRequest.
    pub uid: &'a str,
    /// The options object of the request (such as CreateOptions); `null` if there is none.
    pub options: &'a Value,
}

/// The cluster state that plugins can read.
pub trait View {
    /// Returns an object by resource, namespace and name.
    fn object(&self, resource: GroupResource, namespace: &str, name: &str) -> Option<CachedObject>;

    /// Returns all objects of a kind, or those of a namespace.
    fn objects(&self, resource: GroupResource, namespace: &str) -> Vec<CachedObject>;

    /// Returns complete objects, including managedFields, for plugins that write them or pass them on. An empty name
    /// returns all objects of the namespace.
    fn stored(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Vec<Value>;

    /// Whether a user is authorized, for plugins that exempt users with an equivalent permission.
    fn allows(&self, attributes: &auth::Attributes<'_>) -> bool;

    /// Returns the authorizer of CEL expressions for a user or service account.
    fn authorizer(&self, user: &User) -> Arc<dyn cel::Authorizer>;

    /// Returns the plural name of a kind and whether it is namespaced, for references by kind.
    fn plural(&self, group: &str, kind: &str) -> Option<(String, bool)>;

    /// Returns a monotonic clock reading, for metrics only.
    fn reading(&self) -> Duration {
        Duration::ZERO
    }

    /// Records a measurement.
    fn measured(&self, _what: Measurement<'_>) {}
}

/// A shared cached object without managedFields.
#[derive(Clone, Debug)]
pub struct CachedObject(Arc<Entry<Value>>);

impl Deref for CachedObject {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0.value
    }
}

impl From<Arc<Entry<Value>>> for CachedObject {
    fn from(entry: Arc<Entry<Value>>) -> Self {
        Self(entry)
    }
}

/// Warnings and audit annotations of admission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Sent to the client as `Warning` headers.
    pub warnings: Vec<String>,
    /// Audit annotations by key.
    pub audit: Vec<(String, String)>,
}

/// An object that is replaced in the same transaction as the write. If it has changed, the write is retried.
#[derive(Clone, Debug)]
pub struct Effect {
    pub kind: Kind,
    /// The new object; its resourceVersion is the one it replaces.
    pub object: Value,
}

/// An admission plugin.
pub trait Plugin: Send + Sync {
    /// Mutates the object, or rejects the request.
    fn admit(
        &self,
        _attributes: &Attributes<'_>,
        _object: &mut Value,
        _view: &dyn View,
        _notes: &mut Notes,
    ) -> Result<(), Status> {
        Ok(())
    }

    /// Like [`Self::admit`], for plugins that depend on the changes of others since their last call (reinvocation).
    fn admit_round(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        view: &dyn View,
        notes: &mut Notes,
        _round: &mut Reinvocation,
    ) -> Result<(), Status> {
        self.admit(attributes, object, view, notes)
    }

    /// Validates the object in its final form.
    fn validate(
        &self,
        _attributes: &Attributes<'_>,
        _object: &Value,
        _view: &dyn View,
        _notes: &mut Notes,
    ) -> Result<(), Status> {
        Ok(())
    }

    /// Whether [`Self::charge`] can return side effects.
    fn charges(&self, _attributes: &Attributes<'_>, _view: &dyn View) -> bool {
        false
    }

    /// Returns the side effects of the write, after all plugins accepted it. Called again if one of their objects
    /// changed meanwhile.
    fn charge(&self, _attributes: &Attributes<'_>, _object: &Value, _view: &dyn View) -> Result<Vec<Effect>, Status> {
        Ok(Vec::new())
    }
}

/// The enabled plugins in order.
pub struct Chain {
    plugins: Vec<Link>,
    names: Vec<&'static str>,
}

/// A plugin of a chain.
pub struct Link {
    /// The plugin's name; `None` if no flag can disable it.
    pub name: Option<&'static str>,
    pub plugin: Box<dyn Plugin>,
}

impl Chain {
    /// Returns the plugins that are enabled by default, in upstream's order.
    pub fn defaults() -> Self {
        Self::of(&Flags::default()).expect("the default flags name only known plugins")
    }

    /// Returns the plugins that the flags enable, in upstream's order.
    pub fn of(flags: &Flags) -> Result<Self, PluginFlagError> {
        let rows = plugins::rows(flags)?;
        let names = rows.iter().map(|row| row.name).collect();
        let none = Value::Null;
        let config = |row: &plugins::Row| flags.config.get(row.name).unwrap_or(&none);
        let made = rows.iter().filter_map(|row| Some(Link { name: Some(row.name), plugin: row.make?(config(row)) }));
        let always = plugins::always(flags).into_iter().map(|plugin| Link { name: None, plugin });
        Ok(Self { plugins: always.chain(made).collect(), names })
    }

    /// Whether a plugin is enabled, including those implemented outside this crate.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    /// Returns a namespace to create before the write, if NamespaceAutoProvision is enabled.
    pub fn provision(&self, attributes: &Attributes<'_>, view: &dyn View) -> Option<Value> {
        self.has(namespace_auto_provision::NAME).then(|| namespace_auto_provision::missing(attributes, view)).flatten()
    }

    /// Returns all plugins in order. Callers first run all mutations, then all validations, and stop at the first
    /// rejection.
    pub fn plugins(&self) -> impl Iterator<Item = &Link> {
        self.plugins.iter()
    }

    /// Whether [`Self::charge`] can return side effects, which then can conflict with concurrent writes.
    pub fn charges(&self, attributes: &Attributes<'_>, view: &dyn View) -> bool {
        self.plugins.iter().any(|link| link.plugin.charges(attributes, view))
    }

    /// Returns the side effects to write in the same transaction.
    pub fn charge(&self, attributes: &Attributes<'_>, object: &Value, view: &dyn View) -> Result<Vec<Effect>, Status> {
        let mut effects = Vec::new();
        for Link { plugin, .. } in &self.plugins {
            effects.extend(plugin.charge(attributes, object, view)?);
        }
        Ok(effects)
    }
}

impl<'a> Attributes<'a> {
    /// Returns the kind and version of the request.
    pub const fn as_requested(&self) -> VersionedKind<'a> {
        VersionedKind { kind: self.kind, version: self.version }
    }
}

impl Attributes<'_> {
    /// Returns a Forbidden status for this write. Before the name is generated, generateName is used instead.
    pub fn forbidden(&self, object: &Value, message: impl std::fmt::Display) -> Status {
        Status::forbidden(resource_name(self.kind), self.display_name(object), message)
    }

    /// Returns the object's name for error messages.
    pub fn display_name<'v>(&'v self, object: &'v Value) -> &'v str {
        let meta = Meta::of(object);
        let names = [self.name, meta.name(), meta.generate_name()];
        names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown")
    }

    /// Whether the write is to this resource or one of its subresources.
    pub fn is(&self, resource: GroupResource) -> bool {
        resource.is(&self.kind.group, &self.kind.plural)
    }

    /// Whether the write creates the object itself, not a subresource.
    pub fn creates(&self, resource: GroupResource) -> bool {
        self.operation == Operation::Create && self.subresource.is_empty() && self.is(resource)
    }

    /// Whether the write creates or updates an object of this kind itself, not a subresource.
    pub fn writes(&self, resource: GroupResource) -> bool {
        self.writes_object() && self.is(resource)
    }

    /// Whether the write creates or updates the object itself, not a subresource.
    pub const fn writes_object(&self) -> bool {
        matches!(self.operation, Operation::Create | Operation::Update) && self.subresource.is_empty()
    }
}
