//! Admission: what may change a write, or refuse it, after authorization and before the store.
//!
//! A plug-in is a pure function of the request and a [`View`] of the cluster. What must ask over the network (webhooks)
//! is not one of these; it stands between the refusals of [`Chain::plugins`] and [`Chain::charge`].

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
mod table;
#[cfg(test)]
mod testing;
mod toleration_seconds;
pub mod webhooks;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use api::kind::{Kind, Version};
use auth::User;
use machinery::Value;
use machinery::collection::Entry;
use machinery::meta::Meta;
use machinery::status::Status;
use machinery::time::Time;

pub use policies::matching::Seen;
pub use table::{Flags, Unknown, names};

use crate::body::resource_name;

use measure::Measured;
use reinvocation::Reinvocation;

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Kubernetes' own")]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// A write as admission sees it.
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    /// The kind.
    pub kind: &'a Kind,
    /// The version that the client speaks.
    pub version: &'a Version,
    /// The namespace, empty for a cluster-wide kind.
    pub namespace: &'a str,
    /// The name; empty if it is still to be made up.
    pub name: &'a str,
    /// The subresource, empty for the object itself.
    pub subresource: &'a str,
    /// What is being done.
    pub operation: Operation,
    /// By whom.
    pub user: &'a User,
    /// When.
    pub now: Time,
    /// Whether nothing will be written.
    pub dry_run: bool,
    /// The object as it is, for an update or a delete.
    pub old: Option<&'a Value>,
    /// Random letters for names that a plug-in makes up.
    pub suffix: &'a str,
    /// A random id of the request.
    pub uid: &'a str,
    /// The options of the request, as an object of their own kind; `null` if it has none.
    pub options: &'a Value,
}

/// What plug-ins may know of the cluster.
pub trait View {
    /// An object by group, plural name, namespace and name.
    fn object(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Known>;

    /// All objects of a kind, or those of a namespace.
    fn objects(&self, group: &str, plural: &str, namespace: &str) -> Vec<Known>;

    /// The same, or the one of a name, with all that is stored of them, for whoever writes them again or lets others look at them.
    fn stored(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Vec<Value>;

    /// Whether a user may do something: some plug-ins let those through who could do the same in another way.
    fn allows(&self, attributes: &auth::Attributes<'_>) -> bool;

    /// Answers what a user, or a service account, may do while an expression runs.
    fn authorizer(&self, user: &User) -> Arc<dyn cel::Authorizer>;

    /// The plural name of a kind, for what refers to objects by kind, and whether it lives in namespaces.
    fn plural(&self, group: &str, kind: &str) -> Option<(String, bool)>;

    /// What a clock reads, for measurements and nothing else.
    fn reading(&self) -> Duration {
        Duration::ZERO
    }

    /// Something was measured.
    fn measured(&self, _what: Measured<'_>) {}
}

/// An object of the cluster that others know too, without who manages its fields: it is read once for many questions.
#[derive(Clone, Debug)]
pub struct Known(Arc<Entry<Value>>);

impl Deref for Known {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0.value
    }
}

impl From<Arc<Entry<Value>>> for Known {
    fn from(entry: Arc<Entry<Value>>) -> Self {
        Self(entry)
    }
}

/// What plug-ins say besides yes and no.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// What the client is told along with the answer.
    pub warnings: Vec<String>,
    /// What the audit log is told, by key.
    pub audit: Vec<(String, String)>,
}

/// Another object that is replaced in the transaction of the write, or the write does not happen.
#[derive(Clone, Debug)]
pub struct Effect {
    /// Its kind.
    pub kind: Kind,
    /// What it becomes; the resourceVersion says what it replaces.
    pub object: Value,
}

/// Something that changes or judges writes.
pub trait Plugin: Send + Sync {
    /// Changes the object, or refuses it.
    fn admit(
        &self,
        _attributes: &Attributes<'_>,
        _object: &mut Value,
        _view: &dyn View,
        _notes: &mut Notes,
    ) -> Result<(), Status> {
        Ok(())
    }

    /// The same for those who care what others made of the object since they last saw it.
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

    /// Refuses the object as it would be stored.
    fn validate(
        &self,
        _attributes: &Attributes<'_>,
        _object: &Value,
        _view: &dyn View,
        _notes: &mut Notes,
    ) -> Result<(), Status> {
        Ok(())
    }

    /// After all others agreed: what else the write changes. Asked again if one of those changed meanwhile.
    fn charge(&self, _attributes: &Attributes<'_>, _object: &Value, _view: &dyn View) -> Result<Vec<Effect>, Status> {
        Ok(Vec::new())
    }
}

/// Plug-ins in their order.
pub struct Chain {
    plugins: Vec<Link>,
    names: Vec<&'static str>,
}

/// A plug-in of a chain.
pub struct Link {
    /// Its name; none if no flag turns it off.
    pub name: Option<&'static str>,
    /// What it does.
    pub plugin: Box<dyn Plugin>,
}

impl Chain {
    /// The plug-ins that are on unless a flag says otherwise, in upstream's order.
    pub fn defaults() -> Self {
        Self::of(&Flags::default()).expect("the flags' own defaults name only plug-ins there are")
    }

    /// The plug-ins that flags ask for, in upstream's order.
    pub fn of(flags: &Flags) -> Result<Self, Unknown> {
        let rows = table::rows(flags)?;
        let names = rows.iter().map(|row| row.name).collect();
        let none = Value::Null;
        let config = |row: &table::Row| flags.config.get(row.name).unwrap_or(&none);
        let made = rows.iter().filter_map(|row| Some(Link { name: Some(row.name), plugin: row.make?(config(row)) }));
        let always = table::always(flags).into_iter().map(|plugin| Link { name: None, plugin });
        Ok(Self { plugins: always.chain(made).collect(), names })
    }

    /// Whether a plug-in is on, also one that is not made here.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    /// A namespace that is to be made before the write, if a plug-in wants that.
    pub fn provision(&self, attributes: &Attributes<'_>, view: &dyn View) -> Option<Value> {
        self.has(namespace_auto_provision::NAME).then(|| namespace_auto_provision::missing(attributes, view)).flatten()
    }

    /// All of them, in their order: each may change the object, then each may refuse it, and the first refusal ends it.
    pub fn plugins(&self) -> impl Iterator<Item = &Link> {
        self.plugins.iter()
    }

    /// What else is to be written in the same transaction.
    pub fn charge(&self, attributes: &Attributes<'_>, object: &Value, view: &dyn View) -> Result<Vec<Effect>, Status> {
        let mut effects = Vec::new();
        for Link { plugin, .. } in &self.plugins {
            effects.extend(plugin.charge(attributes, object, view)?);
        }
        Ok(effects)
    }
}

impl<'a> Attributes<'a> {
    /// The kind and version in which the client speaks.
    pub const fn as_asked(&self) -> Seen<'a> {
        Seen { kind: self.kind, version: self.version }
    }
}

impl Attributes<'_> {
    /// The refusal of this write. Before a name is made up, what it is made from stands for it.
    pub fn forbidden(&self, object: &Value, why: impl std::fmt::Display) -> Status {
        Status::forbidden(resource_name(self.kind), self.shown_name(object), why)
    }

    /// What the object is called in refusals.
    pub fn shown_name<'v>(&'v self, object: &'v Value) -> &'v str {
        let meta = Meta::of(object);
        let names = [self.name, meta.name(), meta.generate_name()];
        names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown")
    }

    /// Whether it is about objects of this resource, or a subresource of one.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.kind.group == group && self.kind.plural == plural
    }

    /// Whether the object itself is created, not a part of it.
    pub fn creates(&self, group: &str, plural: &str) -> bool {
        self.operation == Operation::Create && self.subresource.is_empty() && self.is(group, plural)
    }

    /// Whether the object itself is created or updated, not a part of it.
    pub fn writes(&self, group: &str, plural: &str) -> bool {
        matches!(self.operation, Operation::Create | Operation::Update)
            && self.subresource.is_empty()
            && self.is(group, plural)
    }
}
