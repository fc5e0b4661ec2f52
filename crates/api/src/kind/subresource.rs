//! Subresources: separately written parts of an object, and actions on it.

use apimachinery::{GroupVersionKind, Str};

use super::Verb;

#[derive(Clone, Debug)]
pub struct Subresource {
    /// Such as `status`.
    pub name: Str,
    /// The kind of request and response bodies if it differs from the parent's: `Scale`, `Eviction`.
    pub kind: Option<GroupVersionKind>,
    pub verbs: &'static [Verb],
    pub does: SubresourceAction,
}

/// The behaviour of a subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubresourceAction {
    /// A part of the object, with the entire object as body; the rules restore the rest.
    Fields,
    /// The replica count as a `Scale`.
    Scale(ReplicaPaths),
    /// Assigns a pod to a node.
    Bind,
    /// Deletes a pod if its disruption budgets allow it.
    Evict,
    /// Issues a service account token.
    Token,
    /// A stream to or from the node that runs the object.
    Connect(Connect),
}

/// Paths of the fields behind a Scale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaPaths {
    /// The desired number of replicas: `["spec", "replicas"]`.
    pub desired: Vec<Str>,
    /// The observed number of replicas: `["status", "replicas"]`.
    pub actual: Vec<Str>,
    /// The selector of the replicas: a label selector, a map, or (for custom resources) a string.
    pub selector: Option<Vec<Str>>,
}

/// Streaming subresources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connect {
    Log,
    Exec,
    Attach,
    PortForward,
    Proxy,
}

const READ_WRITE_VERBS: &[Verb] = &[Verb::Get, Verb::Patch, Verb::Update];

impl Subresource {
    /// Returns a subresource that is read, replaced and patched.
    pub fn updatable(name: &str) -> Self {
        Self { name: name.into(), kind: None, verbs: READ_WRITE_VERBS, does: SubresourceAction::Fields }
    }

    /// Returns the usual `status`.
    pub fn status() -> Self {
        Self::updatable("status")
    }

    /// Returns the usual `scale`: `spec.replicas`, `status.replicas`, `spec.selector`.
    pub fn scale() -> Self {
        let path = |first: &str, second: &str| vec![Str::from(first), Str::from(second)];
        let paths = ReplicaPaths {
            desired: path("spec", "replicas"),
            actual: path("status", "replicas"),
            selector: Some(path("spec", "selector")),
        };
        Self {
            name: "scale".into(),
            kind: Some(of("autoscaling", "v1", "Scale")),
            verbs: READ_WRITE_VERBS,
            does: SubresourceAction::Scale(paths),
        }
    }

    /// Returns an action that is performed by creating a `kind`.
    pub fn action(name: &str, kind: (&str, &str, &str), does: SubresourceAction) -> Self {
        Self { name: name.into(), kind: Some(of(kind.0, kind.1, kind.2)), verbs: &[Verb::Create], does }
    }

    /// Returns a streaming subresource; `kind` contains its options.
    pub fn connect(name: &str, kind: &str, verbs: &'static [Verb], connect: Connect) -> Self {
        Self { name: name.into(), kind: Some(of("", "v1", kind)), verbs, does: SubresourceAction::Connect(connect) }
    }
}

fn of(group: &str, version: &str, kind: &str) -> GroupVersionKind {
    GroupVersionKind { group: group.into(), version: version.into(), kind: kind.into() }
}
