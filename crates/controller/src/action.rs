//! API writes as values: the verb, the object, and the preconditions.

use std::borrow::Cow;
use std::fmt;

use apimachinery::meta::Meta;
use apimachinery::{GroupResource, Key, Resource, Str, Value};

use crate::kinds;

/// A resource that a controller may write, and its subresource, which is empty for the object itself.
pub type Write = (GroupResource, &'static str);

/// Objects of every kind.
pub const ANYTHING: Write = (GroupResource::new("*", "*"), "");

/// One API write.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Creates an object. AlreadyExists is a reason to observe again: names derived from the observation guarantee that
    /// no object is created twice.
    Create {
        resource: Resource,
        /// The object. Its metadata has the namespace and the name or `generateName`.
        object: Value,
        /// The events of the outcome.
        result_event: Option<Box<EventOnResult>>,
    },
    /// Replaces an object, except its status. The metadata has the observed `uid` and `resourceVersion`.
    Update {
        resource: Resource,
        object: Value,
        /// The events of the outcome.
        result_event: Option<Box<EventOnResult>>,
    },
    /// Replaces the status of an object. The metadata has the observed `uid` and `resourceVersion`.
    UpdateStatus {
        resource: Resource,
        /// The object with its new status.
        object: Value,
    },
    /// Patches an object.
    Patch {
        resource: Resource,
        key: Key,
        /// `status` and the like; empty for the object itself.
        subresource: &'static str,
        only_if: Preconditions,
        patch: Patch,
    },
    /// Sets the controller's fields by server-side apply.
    Apply {
        resource: Resource,
        /// `status` and the like; empty for the object itself.
        subresource: &'static str,
        /// The fields, with `apiVersion`, `kind` and the object's name in the metadata.
        object: Value,
    },
    /// Posts to a subresource of an object, such as `binding` and `eviction`.
    Post {
        resource: Resource,
        key: Key,
        /// The subresource, such as `binding`.
        subresource: &'static str,
        body: Value,
    },
    /// Deletes an object. NotFound counts as success.
    Delete {
        resource: Resource,
        key: Key,
        only_if: Preconditions,
        /// The propagation policy; the kind's default if `None`.
        propagation: Option<Propagation>,
        /// The grace period; the object's default if `None`.
        grace_seconds: Option<u32>,
        /// The events of the outcome.
        result_event: Option<Box<EventOnResult>>,
    },
    /// Deletes all objects of a kind in a namespace.
    DeleteAll {
        resource: Resource,
        /// The namespace whose objects are deleted.
        namespace: Str,
    },
    /// Replaces a subresource other than the status, such as `finalize` and `approval`. The metadata has the observed
    /// `uid` and `resourceVersion`.
    UpdateSubresource {
        resource: Resource,
        /// The subresource, such as `approval`.
        subresource: &'static str,
        object: Value,
    },
    /// Emits an event. Events are sent at most once, and a lost event is harmless.
    Event {
        /// The object of the event.
        regarding: Regarding,
        kind: EventType,
        /// The machine-readable reason, such as `SuccessfulCreate`.
        reason: &'static str,
        message: String,
    },
}

/// The events of an action, depending on its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventOnResult {
    /// The object of the event.
    pub regarding: Regarding,
    /// The reason of a success, such as `SuccessfulCreate`.
    pub done_reason: &'static str,
    /// The message of a success.
    pub done_message: String,
    /// If failures are reported: the reason, such as `FailedCreate`, and the prefix of the server's message, such as
    /// `Error creating`.
    pub failed: Option<(&'static str, Cow<'static, str>)>,
}

/// The preconditions of an action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// The object has this UID.
    pub uid: Option<Str>,
    /// The object is unchanged since this version.
    pub resource_version: Option<Str>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// JSON merge patch, in which `null` removes.
    Merge(Value),
    /// Strategic merge patch, which merges lists by their merge keys.
    Strategic(Value),
}

/// The handling of dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Dependents are kept without the owner reference.
    Orphan,
    /// Dependents are deleted after the owner.
    Background,
    /// Dependents are deleted before the owner.
    Foreground,
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Normal,
    /// An operator may need to act.
    Warning,
}

/// The object of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regarding {
    /// Such as `apps/v1`.
    pub api_version: Str,
    /// Such as `ReplicaSet`.
    pub kind: Str,
    pub key: Key,
    pub uid: Str,
    /// The observed version.
    pub resource_version: Str,
    /// The part of the object, such as `spec.containers{web}`; empty for the entire object.
    pub field_path: Str,
}

impl Action {
    /// Deletes an observed object, with its UID as precondition.
    pub fn delete(resource: &Resource, object: &Value) -> Self {
        Self::Delete {
            resource: resource.clone(),
            key: Key::of(object),
            only_if: Preconditions::same(object),
            propagation: None,
            grace_seconds: None,
            result_event: None,
        }
    }

    /// Returns the written resource and its subresource, which is empty for the object itself.
    pub fn target(&self) -> (&Resource, &'static str) {
        match self {
            Self::Create { resource, .. }
            | Self::Update { resource, .. }
            | Self::Delete { resource, .. }
            | Self::DeleteAll { resource, .. } => (resource, ""),
            Self::UpdateStatus { resource, .. } => (resource, "status"),
            Self::Patch { resource, subresource, .. }
            | Self::Apply { resource, subresource, .. }
            | Self::UpdateSubresource { resource, subresource, .. }
            | Self::Post { resource, subresource, .. } => (resource, subresource),
            Self::Event { .. } => (&kinds::EVENTS, ""),
        }
    }

    /// Whether a controller that declares these writes may execute the action.
    pub fn is_declared(&self, writes: &[Write]) -> bool {
        let (resource, subresource) = self.target();
        writes.iter().any(|write| *write == ANYTHING || (resource.is(write.0) && subresource == write.1))
    }

    /// Returns the written resource as in RBAC rules: `pods`, `replicasets.apps/status`.
    pub fn writes(&self) -> String {
        match self.target() {
            (resource, "") => resource.to_string(),
            (resource, subresource) => format!("{resource}/{subresource}"),
        }
    }

    /// Returns the action with a value set in the written object. Missing intermediate objects are created.
    #[must_use]
    pub fn with(mut self, path: &[&str], value: Value) -> Self {
        let object = match &mut self {
            Self::Create { object, .. }
            | Self::Update { object, .. }
            | Self::UpdateStatus { object, .. }
            | Self::Apply { object, .. }
            | Self::UpdateSubresource { object, .. } => object,
            Self::Patch { .. }
            | Self::Post { .. }
            | Self::Delete { .. }
            | Self::DeleteAll { .. }
            | Self::Event { .. } => return self,
        };
        let Some((last, parents)) = path.split_last() else { return self };
        let mut at = object.as_object_mut();
        for parent in parents {
            at = at.and_then(|object| object.get_or_insert_with(parent, Value::object).as_object_mut());
        }
        if let Some(object) = at {
            object.insert(*last, value);
        }
        self
    }
}

impl Preconditions {
    /// Requires the UID of the observed object.
    pub fn same(object: &Value) -> Self {
        Self { uid: Some(Meta::of(object).uid().into()), resource_version: None }
    }

    /// Requires UID and resourceVersion of the observed object.
    pub fn unchanged(object: &Value) -> Self {
        Self { resource_version: Some(Meta::of(object).resource_version().into()), ..Self::same(object) }
    }
}

impl Patch {
    /// Returns the patch document.
    pub const fn value(&self) -> &Value {
        match self {
            Self::Merge(value) | Self::Strategic(value) => value,
        }
    }
}

impl Regarding {
    /// Refers to an entire object.
    pub fn object(object: &Value) -> Self {
        let meta = Meta::of(object);
        let text = |field| Str::from(object.text_at(&[field]));
        Self {
            api_version: text("apiVersion"),
            kind: text("kind"),
            key: Key::of(object),
            uid: meta.uid().into(),
            resource_version: meta.resource_version().into(),
            field_path: Str::default(),
        }
    }
}

/// Formats one stable line for logs, debug output and test expectations.
impl fmt::Display for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { object, .. } => write!(out, "create {} {}", self.writes(), display_key(object)),
            Self::Update { object, .. }
            | Self::UpdateStatus { object, .. }
            | Self::UpdateSubresource { object, .. } => {
                write!(out, "update {} {}", self.writes(), display_key(object))
            }
            Self::Patch { key, patch, .. } => write!(out, "patch {} {key} {}", self.writes(), patch.value()),
            Self::Apply { object, .. } => write!(out, "apply {} {}", self.writes(), display_key(object)),
            Self::Post { key, .. } => write!(out, "post {} {key}", self.writes()),
            Self::Delete { key, propagation, grace_seconds, .. } => {
                write!(out, "delete {} {key}", self.writes())?;
                if let Some(propagation) = propagation {
                    write!(out, " {propagation:?}")?;
                }
                if let Some(seconds) = grace_seconds {
                    write!(out, " within {seconds}s")?;
                }
                Ok(())
            }
            Self::DeleteAll { namespace, .. } => write!(out, "delete all {} in {namespace}", self.writes()),
            Self::Event { regarding, kind, reason, message } => {
                write!(out, "event {} {} {kind:?} {reason}: {message}", regarding.kind, regarding.key)
            }
        }
    }
}

/// Formats the key, with `*` for a generated name suffix.
fn display_key(object: &Value) -> String {
    let key = Key::of(object);
    if key.name.is_empty() {
        format!("{}*", Key { name: Meta::of(object).generate_name().into(), ..key })
    } else {
        key.to_string()
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn action_is_formatted_as_one_line() {
        let check = |action: &Action, line: &str| assert_eq!(action.to_string(), line);
        let pod = value!({"metadata": {"namespace": "a", "generateName": "web-", "uid": "u", "resourceVersion": "7"}});
        check(
            &Action::Create { resource: kinds::PODS.clone(), object: pod, result_event: None },
            "create pods a/web-*",
        );
        let set = value!({"kind": "ReplicaSet", "metadata": {"namespace": "a", "name": "web", "uid": "u"}});
        let status = Action::UpdateStatus { resource: kinds::REPLICA_SETS.clone(), object: set.clone() };
        check(&status, "update replicasets.apps/status a/web");
        check(&Action::delete(&kinds::REPLICA_SETS, &set), "delete replicasets.apps a/web");
        let patch = Action::Patch {
            resource: kinds::PODS.clone(),
            key: Key::new("a", "x"),
            subresource: "",
            only_if: Preconditions::default(),
            patch: Patch::Merge(value!({"metadata": {"labels": null}})),
        };
        check(&patch, r#"patch pods a/x {"metadata":{"labels":null}}"#);
        let event = Action::Event {
            regarding: Regarding::object(&set),
            kind: EventType::Warning,
            reason: "FailedCreate",
            message: "no".into(),
        };
        check(&event, "event ReplicaSet a/web Warning FailedCreate: no");
    }
}
