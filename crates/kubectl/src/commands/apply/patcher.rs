//! Patches live objects to a configuration, with retries.

use std::time::Duration;

use apimachinery::patch::strategic::OnConflict;
use apimachinery::status::Reason;
use apimachinery::{Object, Schema, Value};
use client::{Client, DeleteOptions, Patch, WriteOptions};
use tokio::time::Instant;

use crate::apply::three_way;
use crate::generate::last_applied;
use crate::resources::Info;
use crate::{Context, Failure};

/// Sends three-way patches.
pub(crate) struct Patcher<'a> {
    pub context: &'a Context,
    pub client: &'a Client,
    pub options: WriteOptions,
    /// Whether changes by other clients are overwritten.
    pub overwrite: bool,
    /// Options for the deletion of an object that cannot be patched, before it is created again.
    pub force: Option<DeleteOptions>,
    /// The timeout of a deletion; zero for no limit.
    pub timeout: Duration,
    /// The version of the live object that must be current.
    pub resource_version: Option<String>,
}

/// The maximum number of patches of an object that other clients change.
const RETRIES_MAX: usize = 5;
const RETRY_PERIOD: Duration = Duration::from_secs(1);

/// The patch, and the patched object or the failure.
pub(super) type PatchResult = Result<(Value, Value), (Value, Failure)>;

impl Patcher<'_> {
    /// Patches the live object in `info` to `modified`.
    pub(crate) async fn patch(&self, info: &Info, modified: &Value) -> PatchResult {
        let mut current = info.object.clone();
        let mut outcome = self.patch_once(info, modified, &current).await;
        for attempt in 1..=RETRIES_MAX {
            match &outcome {
                Err((_, failure)) if failure.is_conflict() => {}
                _ => break,
            }
            if attempt > 1 {
                tokio::time::sleep(RETRY_PERIOD).await;
            }
            current = match self.client.get(&info.target()).await {
                Ok(object) => object,
                Err(error) => return Err((Value::Null, error.into())),
            };
            outcome = self.patch_once(info, modified, &current).await;
        }
        match (outcome, &self.force) {
            (Err((_, failure)), Some(delete)) if failure.is_conflict() || failure.is(&Reason::Invalid) => {
                let created = self.delete_and_create(info, modified, &current, delete).await;
                created.map(|object| (modified.clone(), object)).map_err(|failure| (modified.clone(), failure))
            }
            (outcome, _) => outcome.map_err(|(patch, failure)| (patch, failure.when("patching", &info.source))),
        }
    }

    /// Applies the patch to a copy of the live object.
    pub(crate) fn patch_local(info: &Info, modified: &Value) -> PatchResult {
        let schema = schema(info);
        let failed = |error: three_way::Error| (Value::Null, Failure::new(error.to_string()));
        let patch = three_way::create(modified, &info.object, schema, OnConflict::Overwrite).map_err(failed)?;
        let patched = patch.apply_to(&info.object, schema);
        let failed = |error| (Value::Null, Failure::new(format!("applying patch locally: {error}")));
        Ok((patch.value().clone(), patched.map_err(failed)?))
    }

    async fn patch_once(&self, info: &Info, modified: &Value, current: &Value) -> PatchResult {
        let on_conflict = if self.overwrite { OnConflict::Overwrite } else { OnConflict::Fail };
        let patch = three_way::create(modified, current, schema(info), on_conflict).map_err(|error| {
            if matches!(error, three_way::Error::Conflict { .. }) {
                // Upstream tries three sources of the schema.
                for schema in ["openapi v3 spec", "openapi spec"] {
                    super::write_warning(
                        self.context,
                        &format!("warning: error calculating patch from {schema}: {error}\n"),
                    );
                }
            }
            let original = last_applied::original(current).unwrap_or_default();
            let (modified, current) = (last_applied::encode(modified), last_applied::encode(current));
            let text = format!(
                "creating patch with:\noriginal:\n{original}\nmodified:\n{modified}\ncurrent:\n{current}\nfor: {error}"
            );
            (Value::Null, Failure::new(text))
        })?;
        if patch.is_empty() {
            return Ok((patch.value().clone(), current.clone()));
        }
        let mut body = patch.value().clone();
        if let (Some(version), Value::Object(body)) = (&self.resource_version, &mut body)
            && let Value::Object(metadata) = body.get_or_insert_with("metadata", || Object::new().into())
        {
            metadata.insert("resourceVersion", version.as_str());
        }
        let request = match patch {
            three_way::Patch::Strategic(_) => Patch::Strategic(body.clone()),
            three_way::Patch::Merge(_) => Patch::Merge(body.clone()),
        };
        match self.client.patch(&info.target(), &request, &self.options).await {
            Ok(object) => Ok((body, object)),
            Err(error) => Err((body, error.into())),
        }
    }

    async fn delete_and_create(
        &self,
        info: &Info,
        modified: &Value,
        original: &Value,
        delete: &DeleteOptions,
    ) -> Result<Value, Failure> {
        self.client.delete(&info.target(), delete).await?;
        let deadline = (!self.timeout.is_zero()).then(|| Instant::now() + self.timeout);
        loop {
            match self.client.get(&info.target()).await {
                Err(error) if error.is_not_found() => break,
                Err(error) => return Err(error.into()),
                Ok(_) if deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
                    return Err(Failure::new("timed out waiting for the condition"));
                }
                Ok(_) => tokio::time::sleep(RETRY_PERIOD).await,
            }
        }
        let mut object = modified.clone();
        three_way::prune_nulls(&mut object);
        let error = match self.client.create(&info.collection(), &object, &self.options).await {
            Ok(created) => return Ok(created),
            Err(error) => Failure::from(error),
        };
        let mut original = original.clone();
        if let Some(Value::Object(metadata)) = original.get_mut("metadata") {
            metadata.remove("resourceVersion");
        }
        match self.client.create(&info.collection(), &original, &self.options).await {
            Ok(_) => Err(error),
            Err(again) => Err(Failure::new(format!(
                "An error occurred force-replacing the existing object with the newly provided one:\n\n{}.\n\nAdditionally, an error occurred attempting to restore the original object:\n\n{}",
                error.message,
                Failure::from(again).message
            ))),
        }
    }
}

/// Returns the schema of a built-in kind, whose lists the server merges; [`None`] for custom resources.
pub(super) fn schema(info: &Info) -> Option<Schema<'static>> {
    let resource = &info.mapping.resource;
    let version = if resource.group.is_empty() {
        resource.version.to_string()
    } else {
        format!("{}/{}", resource.group, resource.version)
    };
    api::catalogue::find(&version, &resource.kind)
}

/// Describes an object in error messages.
pub(crate) fn describe(info: &Info) -> String {
    let resource = &info.mapping.resource;
    let (group, version) = (&resource.group, &resource.version);
    let version = if group.is_empty() { format!("/{version}") } else { format!("{group}/{version}") };
    format!(
        "Resource: \"{version}, Resource={}\", GroupVersionKind: \"{version}, Kind={}\"\nName: {:?}, Namespace: {:?}",
        resource.plural, resource.kind, info.name, info.namespace
    )
}
