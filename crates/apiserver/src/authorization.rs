//! Who may do what: the configured authorizers, and the RBAC policy that follows the store.

use std::sync::{Arc, RwLock};

use api::kind::Kind;
use auth::rbac::{Binding, Policy, Rule};
use auth::{Attributes, Authorizer, Decision};
use mvcc::Revision;

use crate::cache::{Cache, Entry, Shelf};

/// The configured authorizers, in their order.
#[derive(Default)]
pub struct Authorization {
    modes: Vec<Mode>,
}

enum Mode {
    /// Decides by roles and bindings.
    Rbac(Arc<RwLock<Policy>>),
    /// Decides by something that never changes.
    Fixed(Box<dyn Authorizer>),
}

impl Authorization {
    /// Members of `system:masters` may do everything, whatever is configured.
    pub fn new() -> Self {
        Self { modes: vec![Mode::Fixed(Box::new(auth::Privileged(auth::user::MASTERS)))] }
    }

    /// Adds an authorizer that never changes.
    pub fn add(&mut self, authorizer: Box<dyn Authorizer>) {
        self.modes.push(Mode::Fixed(authorizer));
    }

    /// Adds RBAC by a policy that [`follow`] keeps.
    pub fn add_rbac(&mut self, policy: Arc<RwLock<Policy>>) {
        self.modes.push(Mode::Rbac(policy));
    }

    /// The policy of RBAC, if it is configured.
    pub fn policy(&self) -> Option<&Arc<RwLock<Policy>>> {
        self.modes.iter().find_map(|mode| match mode {
            Mode::Rbac(policy) => Some(policy),
            Mode::Fixed(_) => None,
        })
    }
}

impl Authorizer for Authorization {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let mut reasons = Vec::new();
        for mode in &self.modes {
            let decision = match mode {
                Mode::Rbac(policy) => policy.read().expect("no holder panics").authorize(attributes),
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

/// Keeps a policy what the roles and bindings in the cache say, for as long as the process lives.
pub async fn follow(cache: Arc<Cache>, kinds: Vec<Arc<Kind>>, policy: Arc<RwLock<Policy>>) {
    let shelves: Vec<(Arc<Kind>, Arc<Shelf>)> =
        kinds.into_iter().map(|kind| (kind.clone(), cache.shelf(&kind))).collect();
    let mut reached = cache.follow();
    let mut at: Vec<Option<Revision>> = vec![None; shelves.len()];
    loop {
        let now = *reached.borrow_and_update();
        if now > 0 {
            for ((kind, shelf), at) in shelves.iter().zip(&mut at) {
                *at = Some(bring_up(kind, shelf, *at, now, &policy));
            }
        }
        if reached.changed().await.is_err() {
            return;
        }
    }
}

/// Takes in what changed since a revision, or everything if that is no longer known. Gives the revision reached.
fn bring_up(kind: &Kind, shelf: &Shelf, since: Option<Revision>, now: Revision, policy: &RwLock<Policy>) -> Revision {
    let mut since = since;
    while let Some(at) = since {
        match shelf.changes_after(at) {
            Ok(changes) if changes.is_empty() => return at.max(now),
            Ok(changes) => {
                let mut policy = policy.write().expect("no holder panics");
                for change in &changes {
                    match &change.after {
                        Some(entry) => set(kind, entry, &mut policy),
                        None => remove(kind, change.shown(), &mut policy),
                    }
                }
                since = changes.last().map(|change| change.revision);
            }
            Err(_) => since = None,
        }
    }
    let mut policy = policy.write().expect("no holder panics");
    for entry in shelf.list("", |_| true) {
        set(kind, &entry, &mut policy);
    }
    now
}

fn set(kind: &Kind, entry: &Entry, policy: &mut Policy) {
    let (namespace, name) = (entry.namespace(), entry.name());
    let object = entry.object();
    if kind.kind.ends_with("Binding") {
        policy.set_binding(namespace, name, Binding::from_object(&object));
    } else {
        policy.set_role(namespace, name, Rule::all_from_object(&object));
    }
}

fn remove(kind: &Kind, entry: &Entry, policy: &mut Policy) {
    let (namespace, name) = (entry.namespace(), entry.name());
    if kind.kind.ends_with("Binding") {
        policy.remove_binding(namespace, name);
    } else {
        policy.remove_role(namespace, name);
    }
}
