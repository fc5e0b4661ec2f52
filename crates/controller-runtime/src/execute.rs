//! Execution of one action, after its side effect if it needs one, and its effect on the caches.

use apimachinery::meta::{Meta, MetaMut};
use apimachinery::{Key, Object, Resource, Str, Value};
use client::{DeleteOptions, Error, Propagation, Target, WriteOptions};
use component_base::events::Recorder;
use controller::{Action, AfterEffect, EventOnResult, EventType, Patch, Perform, Preconditions, SideEffect};

use crate::driver::Driver;
use crate::effect::Effect;

/// An action failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The server rejected the request or did not respond.
    #[error(transparent)]
    Request(#[from] Error),
    /// The side effect before the action failed.
    #[error("{side_effect} failed: {message}")]
    SideEffect {
        /// A description of the side effect.
        side_effect: String,
        message: String,
    },
}

impl Failure {
    /// Returns the client's error, if a request was sent.
    pub(crate) const fn client_error(&self) -> Option<&Error> {
        match self {
            Self::Request(error) => Some(error),
            Self::SideEffect { .. } => None,
        }
    }
}

/// Performs a side effect, then executes its action. The side effect runs on a blocking thread, because it reads files
/// and computes.
pub(crate) async fn execute_after<E: SideEffect>(
    driver: &Driver,
    perform: &Perform<E>,
    after: &AfterEffect<E>,
) -> Result<Option<Effect>, Failure> {
    let (perform, effect) = (Perform::clone(perform), after.effect.clone());
    let performed = tokio::task::spawn_blocking(move || perform(&effect)).await;
    let result = performed
        .unwrap_or_else(|error| Err(error.to_string()))
        .map_err(|message| Failure::SideEffect { side_effect: after.effect.to_string(), message })?;
    execute(driver, &after.action_with(result)).await
}

/// Executes one action.
pub(crate) async fn execute(driver: &Driver, action: &Action) -> Result<Option<Effect>, Failure> {
    let Driver { client, events, manager, .. } = driver;
    let options = WriteOptions { field_manager: manager.clone(), ..WriteOptions::default() };
    match action {
        Action::Create { resource, object, result_event } => {
            let target = Target::within(resource, Meta::of(object).namespace());
            let created = client.create(&target, object, &options).await;
            record_event(events, result_event.as_deref(), &created);
            Ok(Some(written(resource, &created?)))
        }
        Action::Update { resource, object, result_event } => {
            let target = Target::object(resource, &Key::of(object));
            let updated = client.update(&target, object, &options).await;
            record_event(events, result_event.as_deref(), &updated);
            Ok(Some(written(resource, &updated?)))
        }
        Action::UpdateStatus { resource, object } => {
            let target = Target::object(resource, &Key::of(object)).subresource("status");
            Ok(Some(written(resource, &client.update(&target, object, &options).await?)))
        }
        Action::Patch { resource, key, subresource, only_if, patch } => {
            let target = Target::object(resource, key).subresource(*subresource);
            let patch = conditional(patch, only_if);
            Ok(Some(written(resource, &client.patch(&target, &patch, &options).await?)))
        }
        Action::Apply { resource, subresource, object } => {
            let target = Target::object(resource, &Key::of(object)).subresource(*subresource);
            // A controller takes over the fields that it applies, as upstream's controllers do.
            let options = WriteOptions { force: true, ..options };
            let patch = client::Patch::Apply(object.clone());
            Ok(Some(written(resource, &client.patch(&target, &patch, &options).await?)))
        }
        Action::Post { resource, key, subresource, body } => {
            let target = Target::object(resource, key).subresource(*subresource);
            client.create(&target, body, &options).await?;
            Ok(None)
        }
        Action::Delete { resource, key, only_if, result_event, .. } => {
            let deleted = client.delete(&Target::object(resource, key), &delete_options(action)).await;
            let deleted = match deleted {
                Err(error) if error.is_not_found() => return Ok(None),
                other => other,
            };
            record_event(events, result_event.as_deref(), &deleted);
            deleted?;
            let uid = only_if.uid.clone().unwrap_or_default();
            Ok(Some(Effect::Deleted { resource: resource.clone(), key: key.clone(), uid }))
        }
        Action::DeleteAll { resource, namespace } => {
            let target = Target::within(resource, namespace.clone());
            let all = client::ListOptions::default();
            client.delete_collection(&target, &all, &DeleteOptions::default()).await?;
            Ok(None)
        }
        Action::UpdateSubresource { resource, subresource, object } => {
            let target = Target::object(resource, &Key::of(object)).subresource(*subresource);
            Ok(Some(written(resource, &client.update(&target, object, &options).await?)))
        }
        Action::Event { regarding, kind, reason, message } => {
            events.record(regarding, *kind, reason, message);
            Ok(None)
        }
    }
}

fn record_event(events: &Recorder, result_event: Option<&EventOnResult>, outcome: &Result<Value, Error>) {
    let Some(result_event) = result_event else { return };
    match outcome {
        Ok(_) => events.record(
            &result_event.regarding,
            EventType::Normal,
            result_event.done_reason,
            &result_event.done_message,
        ),
        Err(error) => {
            if let Some((reason, prefix)) = &result_event.failed {
                events.record(&result_event.regarding, EventType::Warning, reason, &format!("{prefix}: {error}"));
            }
        }
    }
}

fn written(resource: &Resource, response: &Value) -> Effect {
    let revision = Meta::of(response).resource_version().parse().unwrap_or(0);
    Effect::Written { resource: resource.clone(), revision }
}

/// Adds the preconditions to the patch: the server rejects a patch with another uid or resourceVersion.
fn conditional(patch: &Patch, only_if: &Preconditions) -> client::Patch {
    let (mut value, wrap): (_, fn(Value) -> client::Patch) = match patch {
        Patch::Merge(value) => (value.clone(), client::Patch::Merge),
        Patch::Strategic(value) => (value.clone(), client::Patch::Strategic),
    };
    if let Some(mut meta) = MetaMut::of(&mut value) {
        if let Some(uid) = &only_if.uid {
            meta.set("uid", uid.clone());
        }
        if let Some(version) = &only_if.resource_version {
            meta.set("resourceVersion", version.clone());
        }
    }
    // Do not send an empty metadata object.
    if value.get("metadata").and_then(Value::as_object).is_some_and(Object::is_empty)
        && let Some(object) = value.as_object_mut()
    {
        object.remove("metadata");
    }
    wrap(value)
}

fn delete_options(action: &Action) -> DeleteOptions {
    let Action::Delete { only_if, propagation, grace_seconds, .. } = action else {
        return DeleteOptions::default();
    };
    DeleteOptions {
        grace_seconds: *grace_seconds,
        propagation: propagation.map(|propagation| match propagation {
            controller::Propagation::Orphan => Propagation::Orphan,
            controller::Propagation::Background => Propagation::Background,
            controller::Propagation::Foreground => Propagation::Foreground,
        }),
        uid: only_if.uid.as_ref().map(Str::to_string),
        resource_version: only_if.resource_version.as_ref().map(Str::to_string),
        dry_run: false,
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn preconditions_are_part_of_the_patch() {
        let check = |only_if: &Preconditions, expect: Value| {
            let patch = Patch::Merge(value!({"spec": {"replicas": 1}}));
            assert_eq!(conditional(&patch, only_if), client::Patch::Merge(expect));
        };
        check(&Preconditions::default(), value!({"spec": {"replicas": 1}}));
        let both = Preconditions { uid: Some("u".into()), resource_version: Some("7".into()) };
        check(&both, value!({"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {"replicas": 1}}));
    }
}
