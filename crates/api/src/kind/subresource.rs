//! The parts of an object that are read and written by themselves, and the things done to one.

use machinery::{GroupVersionKind, Str};

use super::Verb;

/// A subresource of a kind.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// `status`.
    pub name: Str,
    /// The kind that is sent and answered, if it is not the parent's: `Scale`, `Eviction`.
    pub kind: Option<GroupVersionKind>,
    /// What may be done.
    pub verbs: &'static [Verb],
    /// What doing it means.
    pub does: Does,
}

/// What a subresource means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Does {
    /// A part of the object, in the shape of the whole: the rules keep the rest as it was.
    Part,
    /// The number of replicas, as a `Scale`.
    Scale(ReplicaPaths),
    /// Gives a pod its node.
    Bind,
    /// Deletes a pod if its disruption budgets allow it.
    Evict,
    /// Makes a token of a service account.
    Token,
    /// A stream to or from where the object runs.
    Connect(Connect),
}

/// Where a kind has its numbers of replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaPaths {
    /// The wanted number: `["spec", "replicas"]`.
    pub wanted: Vec<Str>,
    /// The number there is: `["status", "replicas"]`.
    pub actual: Vec<Str>,
    /// The selector of the replicas: a label selector, a map, or (for custom resources) a string.
    pub selector: Option<Vec<Str>>,
}

/// The streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Kubernetes' own")]
pub enum Connect {
    Log,
    Exec,
    Attach,
    PortForward,
    Proxy,
}

const PART: &[Verb] = &[Verb::Get, Verb::Patch, Verb::Update];

impl Subresource {
    /// A part that is read, replaced and patched: `status`.
    pub fn part(name: &str) -> Self {
        Self { name: name.into(), kind: None, verbs: PART, does: Does::Part }
    }

    /// The usual `status`.
    pub fn status() -> Self {
        Self::part("status")
    }

    /// The usual `scale`: `spec.replicas`, `status.replicas`, `spec.selector`.
    pub fn scale() -> Self {
        let path = |first: &str, second: &str| vec![Str::from(first), Str::from(second)];
        let paths = ReplicaPaths {
            wanted: path("spec", "replicas"),
            actual: path("status", "replicas"),
            selector: Some(path("spec", "selector")),
        };
        Self {
            name: "scale".into(),
            kind: Some(of("autoscaling", "v1", "Scale")),
            verbs: PART,
            does: Does::Scale(paths),
        }
    }

    /// Something done to the object by creating a `kind`.
    pub fn action(name: &str, kind: (&str, &str, &str), does: Does) -> Self {
        Self { name: name.into(), kind: Some(of(kind.0, kind.1, kind.2)), verbs: &[Verb::Create], does }
    }

    /// A stream; `kind` has its options.
    pub fn connect(name: &str, kind: &str, verbs: &'static [Verb], connect: Connect) -> Self {
        Self { name: name.into(), kind: Some(of("", "v1", kind)), verbs, does: Does::Connect(connect) }
    }
}

fn of(group: &str, version: &str, kind: &str) -> GroupVersionKind {
    GroupVersionKind { group: group.into(), version: version.into(), kind: kind.into() }
}
