//! Execution of one action, and its effect on the caches.

use apimachinery::meta::{Meta, MetaMut};
use apimachinery::{Key, Object, Resource, Str, Value};
use client::{Client, DeleteOptions, Error, Propagation, Target, WriteOptions};
use component_base::events::Recorder;
use controller::{Action, EventOnResult, EventType, Patch, Preconditions};

use crate::effect::Effect;

/// Executes one action. `manager` is the field manager of its writes.
pub(crate) async fn execute(
    client: &Client,
    events: &Recorder,
    manager: &str,
    action: &Action,
) -> Result<Option<Effect>, Error> {
    let options = WriteOptions { field_manager: manager.to_owned(), ..WriteOptions::default() };
    match action {
        Action::Create { resource, object, result_event } => {
            let target = Target::within(resource, Meta::of(object).namespace());
            let created = client.create(&target, object, &options).await;
            record_event(events, result_event.as_deref(), &created);
            created.map(|created| Some(written(resource, &created)))
        }
        Action::Update { resource, object, result_event } => {
            let target = Target::object(resource, &Key::of(object));
            let updated = client.update(&target, object, &options).await;
            record_event(events, result_event.as_deref(), &updated);
            updated.map(|updated| Some(written(resource, &updated)))
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
            client.create(&target, body, &options).await.map(|_| None)
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
            Ok(Some(Effect::Deleted { kind: resource.to_string(), key: key.clone(), uid }))
        }
        Action::DeleteAll { resource, namespace } => {
            let target = Target::within(resource, namespace.clone());
            let all = client::ListOptions::default();
            client.delete_collection(&target, &all, &DeleteOptions::default()).await.map(|_| None)
        }
        Action::UpdateSubresource { resource, subresource, object } => {
            let target = Target::object(resource, &Key::of(object)).subresource(*subresource);
            Ok(Some(written(resource, &client.update(&target, object, &options).await?)))
        }
        // The caller handles side effects.
        Action::WithSideEffect { .. } => Ok(None),
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
    Effect::Written { kind: resource.to_string(), revision }
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
