//! Patch: JSON Patch, merge patch, strategic merge patch and server-side apply.

use api::kind::Shape;
use api_registry::conversion::ManagedFieldsConverter;
use api_registry::decode::{self, DecodedObject};
use api_registry::options::{WriteKind, WriteOptions};
use api_registry::strategy;
use apimachinery::field::Cause;
use apimachinery::field_validation::FieldValidation;
use apimachinery::patch::{self, Patch, PatchType, strategic};
use apimachinery::status::{Details, GroupName, Reason, Status};
use apimachinery::time::Time;
use apimachinery::{Object, Path, Value, apply, field};

use super::write::Write;
use super::{Call, render};
use crate::response::HttpResponse;

/// The parsed content type and query of a PATCH.
pub(super) struct PatchRequest {
    pub sort: PatchType,
    pub options: WriteOptions,
}

/// Patches the object in the URL.
pub(super) async fn serve(call: &Call<'_>) -> Result<HttpResponse, Status> {
    let patch_request = PatchRequest::of(call)?;
    if patch_request.sort == PatchType::Apply {
        return serve_apply(call, &patch_request.options).await;
    }
    let options = &patch_request.options;
    let name = &call.resource.name;
    let (patch, complaints) = Patch::decode(patch_request.sort, &call.body).map_err(|error| patch_status(&error))?;
    if options.field_validation == FieldValidation::Strict && !complaints.is_empty() {
        return Err(Status::bad_request(format!("strict decoding error: {}", complaints.join(", "))));
    }
    let current = call.current(name).await?.ok_or_else(|| call.not_found(name))?;
    let manager = options.manager(call.request.user_agent());
    let is_conditional = patched_version(&patch).is_some();
    if options.field_validation == FieldValidation::Warn {
        call.warn(complaints);
    }
    let make = |live: Option<&Value>, now: Time| {
        let live = live.expect("only existing objects are patched");
        let changed = patch.clone().apply(live.clone(), schema(call)).map_err(|error| patch_status(&error))?;
        if let Patch::Strategic(fields) = &patch {
            check_types(fields, &changed, call.version().schema())?;
        }
        remake(call, options, &manager, live, changed, now)
    };
    let object = Write { call, options, is_conditional }.run(Some(current), make).await?;
    render::one(call, 200, object)
}

impl PatchRequest {
    /// Parses content type and query.
    pub(super) fn of(call: &Call<'_>) -> Result<Self, Status> {
        let sort = PatchType::from_content_type(call.request.content_type()).map_err(|_| unsupported())?;
        if sort == PatchType::Strategic && !matches!(call.version().shape, Shape::BuiltIn(_)) {
            return Err(unsupported());
        }
        let kind = if sort == PatchType::Apply { WriteKind::Apply } else { WriteKind::Patch };
        Ok(Self { sort, options: WriteOptions::of(&call.request.query, kind)? })
    }
}

/// Builds the new object from a patched tree: decodes it, checks its name, and updates managedFields.
fn remake(
    call: &Call<'_>,
    options: &WriteOptions,
    manager: &str,
    live: &Value,
    changed: Value,
    now: Time,
) -> Result<DecodedObject, Status> {
    let mut made = decode::again(changed, &call.kind, call.version(), options.field_validation)?;
    let target = call.target(manager);
    strategy::address(&target, &mut made.object)?;
    made.object = strategy::own(&target, Some(live), made.object, now);
    Ok(made)
}

/// Rejects the result of a strategic merge patch that does not match its type, with upstream's message.
fn check_types(patch: &Object, changed: &Value, schema: apimachinery::Schema<'_>) -> Result<(), Status> {
    strategic::check_types(changed, schema).map_err(|mistyped| {
        let error = field::Error::invalid(&Path::of("patch"), strategic::quoted(patch), mistyped.to_string());
        Status::invalid(GroupName::default(), "", &[error])
    })
}

/// Returns the resourceVersion in a patch. If there is one, conflicts are returned to the client.
fn patched_version(patch: &Patch) -> Option<&str> {
    match patch {
        Patch::Merge(fields) | Patch::Strategic(fields) => {
            fields.get("metadata")?.str_at(&["resourceVersion"]).filter(|version| !version.is_empty())
        }
        _ => None,
    }
}

async fn serve_apply(call: &Call<'_>, options: &WriteOptions) -> Result<HttpResponse, Status> {
    let name = &call.resource.name;
    let config = decode::Config::read(&call.body)?;
    let manager = options.field_manager.clone();
    let target = call.target(&manager);
    let apply = |live: Option<&Value>, now: Time| -> Result<DecodedObject, Status> {
        let versions = ManagedFieldsConverter { kind: &call.kind, subresource: &call.resource.subresource };
        let api_version = call.kind.gvk(&call.resource.version).api_version();
        let write = apply::Write {
            versions: &versions,
            api_version: &api_version,
            kind: &call.kind.kind,
            subresource: &call.resource.subresource,
            manager: &manager,
            now,
        };
        let applied = write.apply(live, &config.tree, options.force).map_err(|error| unapplied(&error))?;
        let twice = config.check_duplicates(options.field_validation)?;
        let mut made = decode::again(applied.object, &call.kind, call.version(), options.field_validation)?;
        made.warnings = twice.into_iter().chain(made.warnings).collect();
        strategy::address(&target, &mut made.object)?;
        Ok(made)
    };
    let current = call.current(name).await?;
    let creates = current.is_none();
    if creates && !call.resource.subresource.is_empty() {
        return Err(call.not_found(name));
    }
    let version = config.tree.str_at(&["metadata", "resourceVersion"]);
    let is_conditional = !creates && version.is_some_and(|version| !version.is_empty());
    let object = Write { call, options, is_conditional }.run(current, apply).await?;
    render::one(call, if creates { 201 } else { 200 }, object)
}

fn schema<'c>(call: &'c Call<'_>) -> Option<apimachinery::Schema<'c>> {
    Some(call.version().schema())
}

fn unsupported() -> Status {
    Status::failure(Reason::UnsupportedMediaType, "415: Unsupported Media Type").with_details(Details::default())
}

/// Converts a patch error to a Status.
pub(super) fn patch_status(error: &patch::Error) -> Status {
    let message = match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    };
    match error.blame() {
        patch::ErrorClass::BadRequest => Status::bad_request(message),
        patch::ErrorClass::TooLarge => Status::failure(Reason::RequestEntityTooLarge, message),
        patch::ErrorClass::MediaType => unsupported(),
        patch::ErrorClass::Unprocessable => {
            let message = "the server rejected our request due to an error in our request";
            Status::failure(Reason::Invalid, message).with_details(Details::default())
        }
        patch::ErrorClass::Internal => failed(message),
    }
}

/// Converts an apply error to a Status.
pub(super) fn unapplied(error: &apply::Error) -> Status {
    match error {
        apply::Error::Conflict(conflicts) => {
            let cause = |cause: apply::Cause| Cause {
                reason: "FieldManagerConflict".to_owned(),
                message: cause.message,
                field: cause.field,
            };
            Status::apply_conflict(conflicts.causes().map(cause).collect(), conflicts.to_string())
        }
        apply::Error::WrongType(_) | apply::Error::HasManagedFields => Status::bad_request(error.to_string()),
        error => failed(error.to_string()),
    }
}

/// Returns a 500 without a reason, as upstream does.
fn failed(message: String) -> Status {
    Status { code: 500, ..Status::failure(Reason::Unknown, message) }
}
