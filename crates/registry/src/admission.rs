//! Admission: what may change a write, or refuse it, after authorization and before the store.
//!
//! A plug-in is a pure function of the request and a [`View`] of the cluster. What must ask over the network (webhooks)
//! is not one of these.

mod namespace_lifecycle;

use api::kind::{Kind, Version};
use auth::User;
use machinery::Value;
use machinery::status::Status;
use machinery::time::Time;

pub use namespace_lifecycle::NamespaceLifecycle;

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
}

/// What plug-ins may know of the cluster.
pub trait View {
    /// An object by group, plural name, namespace and name.
    fn object(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value>;

    /// All objects of a kind, or those of a namespace.
    fn objects(&self, group: &str, plural: &str, namespace: &str) -> Vec<Value>;

    /// Whether a user may do something: some plug-ins let those through who could do the same in another way.
    fn allows(&self, attributes: &auth::Attributes<'_>) -> bool;
}

/// Something that changes or judges writes.
pub trait Plugin: Send + Sync {
    /// The name that flags know it by.
    fn name(&self) -> &'static str;

    /// Changes the object, or refuses it.
    fn admit(&self, _attributes: &Attributes<'_>, _object: &mut Value, _view: &dyn View) -> Result<(), Status> {
        Ok(())
    }

    /// Refuses the object as it would be stored.
    fn validate(&self, _attributes: &Attributes<'_>, _object: &Value, _view: &dyn View) -> Result<(), Status> {
        Ok(())
    }
}

/// Plug-ins in their order.
#[derive(Default)]
pub struct Chain(pub Vec<Box<dyn Plugin>>);

impl Chain {
    /// The plug-ins that are on unless a flag says otherwise, in upstream's order.
    pub fn defaults() -> Self {
        Self(vec![Box::new(NamespaceLifecycle)])
    }

    /// Lets every plug-in change the object; the first refusal ends it.
    pub fn admit(&self, attributes: &Attributes<'_>, object: &mut Value, view: &dyn View) -> Result<(), Status> {
        self.0.iter().try_for_each(|plugin| plugin.admit(attributes, object, view))
    }

    /// Lets every plug-in judge the object; the first refusal ends it.
    pub fn validate(&self, attributes: &Attributes<'_>, object: &Value, view: &dyn View) -> Result<(), Status> {
        self.0.iter().try_for_each(|plugin| plugin.validate(attributes, object, view))
    }
}
