//! Authorization: the configured authorizers, some of which are fed from the watch cache.

mod webhook;

use std::collections::BTreeSet;
use std::sync::{Arc, RwLock};

use api::kind::Kind;
use apimachinery::{Str, Value};
use auth::node::{Node, graph};
use auth::rbac::{Binding, Policy, Rule};
use auth::{Attributes, Authorizer, Decision};
use mvcc::Revision;

use crate::watch_cache::{Cache, KindCache};

pub use webhook::Webhook;

/// The configured authorizers in order.
#[derive(Default)]
pub struct Authorization {
    modes: Vec<Mode>,
}

enum Mode {
    Rbac(Arc<RwLock<Policy>>),
    /// The Node authorizer: a kubelet can read the objects that its pods reference.
    Node(Arc<RwLock<Node>>),
    /// An authorizer without state from the watch cache.
    Fixed(Box<dyn Authorizer>),
}

/// State that is derived from objects in the watch cache.
pub trait Learner: Send + Sync {
    /// An object was created or updated.
    fn set(&self, kind: &Kind, object: &Value);
    /// An object was deleted.
    fn remove(&self, kind: &Kind, namespace: &str, name: &str);
}

impl Authorization {
    /// Creates an authorizer that allows everything to members of `system:masters`.
    pub fn new() -> Self {
        Self { modes: vec![Mode::Fixed(Box::new(auth::PrivilegedGroup(auth::user::MASTERS)))] }
    }

    /// Adds an authorizer without state from the watch cache.
    pub fn add(&mut self, authorizer: Box<dyn Authorizer>) {
        self.modes.push(Mode::Fixed(authorizer));
    }

    /// Adds RBAC with a policy that [`follow`] keeps up to date.
    pub fn add_rbac(&mut self, policy: Arc<RwLock<Policy>>) {
        self.modes.push(Mode::Rbac(policy));
    }

    /// Adds the Node authorizer with a graph that [`follow`] keeps up to date.
    pub fn add_node(&mut self, node: Arc<RwLock<Node>>) {
        self.modes.push(Mode::Node(node));
    }

    /// Returns the RBAC policy, if RBAC is configured.
    pub fn policy(&self) -> Option<&Arc<RwLock<Policy>>> {
        self.modes.iter().find_map(|mode| match mode {
            Mode::Rbac(policy) => Some(policy),
            Mode::Node(_) | Mode::Fixed(_) => None,
        })
    }
}

impl Authorizer for Authorization {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let mut reasons = Vec::new();
        for mode in &self.modes {
            let decision = match mode {
                Mode::Rbac(policy) => policy.read().expect("no holder panics").authorize(attributes),
                Mode::Node(node) => node.read().expect("no holder panics").authorize(attributes),
                Mode::Fixed(authorizer) => authorizer.authorize(attributes),
            };
            match decision {
                Decision::NoOpinion(reason) if reason.is_empty() => {}
                Decision::NoOpinion(reason) => reasons.push(reason),
                decided => return decided,
            }
        }
        Decision::NoOpinion(reasons.join("\n"))
    }
}

impl Learner for RwLock<Policy> {
    fn set(&self, kind: &Kind, object: &Value) {
        let meta = apimachinery::meta::Meta::of(object);
        let mut policy = self.write().expect("no holder panics");
        if kind.kind.ends_with("Binding") {
            policy.set_binding(meta.namespace(), meta.name(), Binding::from_object(object));
        } else {
            policy.set_role(meta.namespace(), meta.name(), Rule::all_from_object(object));
        }
    }

    fn remove(&self, kind: &Kind, namespace: &str, name: &str) {
        let mut policy = self.write().expect("no holder panics");
        if kind.kind.ends_with("Binding") {
            policy.remove_binding(namespace, name);
        } else {
            policy.remove_role(namespace, name);
        }
    }
}

/// The kinds from which the Node authorizer builds its graph.
pub const NODE_KINDS: [&str; 5] =
    ["Pod", "PersistentVolume", "VolumeAttachment", "ResourceSlice", "PodCertificateRequest"];

fn in_graph(kind: &Kind) -> Option<graph::Kind> {
    match kind.kind.as_str() {
        "Pod" => Some(graph::Kind::Pod),
        "PersistentVolume" => Some(graph::Kind::Volume),
        "VolumeAttachment" => Some(graph::Kind::VolumeAttachment),
        "ResourceSlice" => Some(graph::Kind::ResourceSlice),
        "PodCertificateRequest" => Some(graph::Kind::PodCertificateRequest),
        _ => None,
    }
}

impl Learner for RwLock<Node> {
    fn set(&self, kind: &Kind, object: &Value) {
        if let Some(kind) = in_graph(kind) {
            self.write().expect("no holder panics").graph.set(kind, object);
        }
    }

    fn remove(&self, kind: &Kind, namespace: &str, name: &str) {
        if let Some(kind) = in_graph(kind) {
            self.write().expect("no holder panics").graph.remove(kind, namespace, name);
        }
    }
}

/// A kind that is followed.
struct FollowedKind {
    kind: Arc<Kind>,
    kind_cache: Arc<KindCache>,
    /// The revision up to which changes were applied; `None` before the first pass.
    at: Option<Revision>,
    known: BTreeSet<Str>,
}

/// Keeps `learner` up to date with the cached objects of `kinds` until the process exits.
pub async fn follow(cache: Arc<Cache>, kinds: Vec<Arc<Kind>>, learner: Arc<dyn Learner>) {
    let follow =
        |kind: Arc<Kind>| FollowedKind { kind_cache: cache.kind_cache(&kind), kind, at: None, known: BTreeSet::new() };
    let mut followed: Vec<FollowedKind> = kinds.into_iter().map(follow).collect();
    let mut reached = cache.follow();
    cache.hold();
    loop {
        let now = *reached.borrow_and_update();
        if now > 0 {
            followed.iter_mut().for_each(|one| one.bring_up(now, &*learner));
        }
        if reached.changed().await.is_err() {
            return;
        }
    }
}

impl FollowedKind {
    /// Applies the changes up to `now`, or all objects if the changes are no longer kept.
    fn bring_up(&mut self, now: Revision, learner: &dyn Learner) {
        while let Some(at) = self.at {
            let Ok(changes) = self.kind_cache.changes_after(at) else { break };
            let Some(last) = changes.last().map(|change| change.revision) else {
                self.at = Some(at.max(now));
                return;
            };
            for change in &changes {
                let entry = change.latest();
                if let Some(entry) = &change.after {
                    self.known.insert(entry.key.clone());
                    learner.set(&self.kind, &entry.shared_object().value);
                } else {
                    self.known.remove(&entry.key);
                    learner.remove(&self.kind, entry.namespace(), entry.name());
                }
            }
            self.at = Some(last);
        }
        let (entries, revision) = self.kind_cache.snapshot("", |_| true);
        let mut deleted = std::mem::take(&mut self.known);
        for entry in entries {
            deleted.remove(&entry.key);
            self.known.insert(entry.key.clone());
            learner.set(&self.kind, &entry.shared_object().value);
        }
        for key in deleted {
            let (namespace, name) = key.rsplit_once('/').unwrap_or(("", &key));
            learner.remove(&self.kind, namespace, name);
        }
        self.at = Some(revision);
    }
}
