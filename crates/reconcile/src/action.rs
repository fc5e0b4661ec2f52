//! One write to the API, as a value: what, to which object, under which conditions.

use std::borrow::Cow;
use std::fmt;

use machinery::meta::Meta;
use machinery::{Key, Resource, Str, Value};

use crate::Errand;

/// One write to the API.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Makes an object. That it exists already is a reason to look again: a name that follows from what was observed makes sure
    /// that nothing is made twice.
    Create {
        /// The kind.
        resource: Resource,
        /// The object. Its namespace and its name, or `generateName`, are in its metadata.
        object: Value,
        /// What people are told of it.
        told: Option<Box<Told>>,
    },
    /// Replaces an object, status excepted. The `uid` and `resourceVersion` of what was observed are in its metadata.
    Update {
        /// The kind.
        resource: Resource,
        /// The object.
        object: Value,
        /// What people are told of it.
        told: Option<Box<Told>>,
    },
    /// Replaces the status of an object. The `uid` and `resourceVersion` of what was observed are in its metadata.
    UpdateStatus {
        /// The kind.
        resource: Resource,
        /// The object with its new status.
        object: Value,
    },
    /// Changes an object.
    Patch {
        /// The kind.
        resource: Resource,
        /// Which one.
        key: Key,
        /// `status` and the like; empty for the object itself.
        subresource: &'static str,
        /// Only if it is still this one.
        only_if: Preconditions,
        /// The change.
        patch: Patch,
    },
    /// Sets the fields that the controller owns and no others, by server-side apply.
    Apply {
        /// The kind.
        resource: Resource,
        /// `status` and the like; empty for the object itself.
        subresource: &'static str,
        /// The fields, with `apiVersion`, `kind` and metadata that names the object.
        object: Value,
    },
    /// Posts to a subresource of an object, such as `binding` and `eviction`.
    Post {
        /// The kind.
        resource: Resource,
        /// Which one.
        key: Key,
        /// The subresource.
        subresource: &'static str,
        /// What is posted.
        body: Value,
    },
    /// Deletes an object. That it is gone already is success.
    Delete {
        /// The kind.
        resource: Resource,
        /// Which one.
        key: Key,
        /// Only if it is still this one.
        only_if: Preconditions,
        /// What becomes of the objects it owns; the kind's choice if absent.
        propagation: Option<Propagation>,
        /// How long it may take to stop; its own choice if absent.
        grace_seconds: Option<u32>,
        /// What people are told of it.
        told: Option<Box<Told>>,
    },
    /// Deletes all objects of a kind in a namespace.
    DeleteAll {
        /// The kind.
        resource: Resource,
        /// The namespace.
        namespace: Str,
    },
    /// Replaces a subresource of an object other than its status, such as `finalize` and `approval`. The `uid` and
    /// `resourceVersion` of what was observed are in its metadata.
    UpdatePart {
        /// The kind.
        resource: Resource,
        /// The subresource.
        subresource: &'static str,
        /// The object.
        object: Value,
    },
    /// Takes place once an errand is done.
    After {
        /// What is done before.
        errand: Errand,
        /// Where in the object that is written goes what came of the errand; nowhere if empty.
        into: &'static [&'static str],
        /// What takes place then.
        then: Box<Action>,
    },
    /// Tells people that something happened. Told at most once, and losing it harms nothing.
    Event {
        /// What it happened to.
        regarding: Regarding,
        /// Whether it is as it should be.
        kind: EventType,
        /// A word for machines: `SuccessfulCreate`.
        reason: &'static str,
        /// A sentence for people.
        message: String,
    },
}

/// What people are told of an action, depending on how it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// What it concerns.
    pub regarding: Regarding,
    /// The word for machines if it succeeds: `SuccessfulCreate`.
    pub done_reason: &'static str,
    /// The sentence for people if it succeeds.
    pub done_message: String,
    /// If a failure is told as well: the word for machines, `FailedCreate`, and what comes before the server's words, `Error creating`.
    pub failed: Option<(&'static str, Cow<'static, str>)>,
}

/// What must be true of an object for an action to take place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// It is this very object.
    pub uid: Option<Str>,
    /// It has not changed since.
    pub resource_version: Option<Str>,
}

/// A change of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// A tree in which `null` removes.
    Merge(Value),
    /// A merge that knows which lists are sets and maps.
    Strategic(Value),
}

/// What becomes of the objects that a deleted object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They stay and lose their owner.
    Orphan,
    /// They are deleted after it.
    Background,
    /// They are deleted before it.
    Foreground,
}

/// Whether what happened is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// It is.
    Normal,
    /// Someone may want to look.
    Warning,
}

/// The object that an event is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regarding {
    /// `apps/v1`.
    pub api_version: Str,
    /// `ReplicaSet`.
    pub kind: Str,
    /// Which one.
    pub key: Key,
    /// Which one of that name.
    pub uid: Str,
    /// The version of it that was observed.
    pub resource_version: Str,
    /// The part of it, such as `spec.containers{web}`; empty for all of it.
    pub field_path: Str,
}

impl Action {
    /// Deletes an object that was observed, if it is still the same.
    pub fn delete(resource: &Resource, object: &Value) -> Self {
        Self::Delete {
            resource: resource.clone(),
            key: Key::of(object),
            only_if: Preconditions::same(object),
            propagation: None,
            grace_seconds: None,
            told: None,
        }
    }

    /// What it writes, as a controller declares it: `pods`, `replicasets.apps/status`.
    pub fn writes(&self) -> String {
        let sub = |resource: &Resource, subresource: &str| {
            if subresource.is_empty() { resource.to_string() } else { format!("{resource}/{subresource}") }
        };
        match self {
            Self::Create { resource, .. }
            | Self::Update { resource, .. }
            | Self::Delete { resource, .. }
            | Self::DeleteAll { resource, .. } => resource.to_string(),
            Self::UpdateStatus { resource, .. } => sub(resource, "status"),
            Self::Patch { resource, subresource, .. }
            | Self::Apply { resource, subresource, .. }
            | Self::UpdatePart { resource, subresource, .. }
            | Self::Post { resource, subresource, .. } => sub(resource, subresource),
            Self::After { then, .. } => then.writes(),
            Self::Event { .. } => "events".to_owned(),
        }
    }

    /// The same, with a value in the object that is written. Objects that are not there are made on the way.
    #[must_use]
    pub fn with(mut self, path: &[&str], value: Value) -> Self {
        let object = match &mut self {
            Self::Create { object, .. }
            | Self::Update { object, .. }
            | Self::UpdateStatus { object, .. }
            | Self::Apply { object, .. }
            | Self::UpdatePart { object, .. } => object,
            Self::After { .. }
            | Self::Patch { .. }
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
    /// The object is the one observed, whatever changed in it.
    pub fn same(object: &Value) -> Self {
        Self { uid: Some(Meta::of(object).uid().into()), resource_version: None }
    }

    /// The object is as it was observed.
    pub fn unchanged(object: &Value) -> Self {
        Self { resource_version: Some(Meta::of(object).resource_version().into()), ..Self::same(object) }
    }
}

impl Patch {
    /// The change as it goes to the server.
    pub const fn value(&self) -> &Value {
        match self {
            Self::Merge(value) | Self::Strategic(value) => value,
        }
    }
}

impl Regarding {
    /// A whole object.
    pub fn object(object: &Value) -> Self {
        let meta = Meta::of(object);
        let text = |field| Str::from(object.str_at(&[field]).unwrap_or_default());
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

/// One stable line: the log entry, the debug output and the expectation of tests.
impl fmt::Display for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { object, .. } => write!(out, "create {} {}", self.writes(), shown(object)),
            Self::Update { object, .. } | Self::UpdateStatus { object, .. } | Self::UpdatePart { object, .. } => {
                write!(out, "update {} {}", self.writes(), shown(object))
            }
            Self::Patch { key, patch, .. } => write!(out, "patch {} {key} {}", self.writes(), patch.value()),
            Self::Apply { object, .. } => write!(out, "apply {} {}", self.writes(), shown(object)),
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
            Self::After { errand, then, .. } => write!(out, "{errand}, then {then}"),
            Self::Event { regarding, kind, reason, message } => {
                write!(out, "event {} {} {kind:?} {reason}: {message}", regarding.kind, regarding.key)
            }
        }
    }
}

/// The key, with a star where the server makes up the rest of the name.
fn shown(object: &Value) -> String {
    let key = Key::of(object);
    if key.name.is_empty() {
        format!("{}*", Key { name: Meta::of(object).generate_name().into(), ..key })
    } else {
        key.to_string()
    }
}

#[cfg(test)]
mod tests {
    use machinery::value;

    use super::*;
    use crate::kinds;

    #[test]
    fn an_action_reads_as_one_line() {
        let check = |action: &Action, line: &str| assert_eq!(action.to_string(), line);
        let pod = value!({"metadata": {"namespace": "a", "generateName": "web-", "uid": "u", "resourceVersion": "7"}});
        check(&Action::Create { resource: kinds::PODS.clone(), object: pod, told: None }, "create pods a/web-*");
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
        let after = Action::After {
            errand: Errand::RemoveFolder("/data/x".into()),
            into: &[],
            then: Box::new(Action::delete(&kinds::REPLICA_SETS, &set)),
        };
        check(&after, "remove folder /data/x, then delete replicasets.apps a/web");
    }
}
