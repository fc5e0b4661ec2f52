//! Pod binding: assigns a pod to a node, once.

use admission::Operation;
use api_registry::binding;
use api_registry::decode::{self, Media};
use api_registry::options::{WriteKind, WriteOptions};
use apimachinery::field_validation::FieldValidation;
use apimachinery::meta::Meta;
use apimachinery::status::Status;
use apimachinery::{GroupVersionKind, Value};

use super::{Call, subresource};
use crate::response::{self, HttpResponse};
use crate::transaction::ObjectKey;
use client::clock::now;

/// Maximum number of attempts after write conflicts.
const TRIES_MAX: usize = 32;

/// Serves `pods/binding`.
pub(super) async fn serve_binding(call: &Call<'_>) -> Result<HttpResponse, Status> {
    let options = WriteOptions::of(&call.request.query, WriteKind::Create)?;
    let gvk = GroupVersionKind::of("", "v1", "Binding");
    let received = decode::plain(&call.body, media(call)?, &gvk, FieldValidation::Ignore)?;
    bind(call, &options, &call.resource.name, &received.object).await
}

/// Serves POST of a Binding to its namespace; the Binding's name is the pod's.
pub(super) async fn serve(call: &Call<'_>, options: &WriteOptions, binding: &Value) -> Result<HttpResponse, Status> {
    bind(call, options, Meta::of(binding).name(), binding).await
}

async fn bind(call: &Call<'_>, options: &WriteOptions, name: &str, binding: &Value) -> Result<HttpResponse, Status> {
    let table = call.state.storage.table();
    let kind = table.kind("", "pods").ok_or_else(|| Status::internal_error("pods are not served"))?;
    binding::validate(binding)?;
    let mut binding = binding.clone();
    subresource::admit(call, kind, name, "binding", &mut binding, Operation::Create).await?;
    for _ in 0..TRIES_MAX {
        let current = call.object_of(kind, &call.resource.namespace, name).await?;
        let pod = binding::apply(&current.object, &binding, name, now())?;
        if options.dry_run {
            return Ok(done(call));
        }
        let key = ObjectKey::new(&call.state.storage, kind, &call.resource.namespace, name);
        if key.replace(&pod, current.revision).submit().await?.is_some() {
            return Ok(done(call));
        }
    }
    Err(api_registry::strategy::modified(kind, name))
}

fn media(call: &Call<'_>) -> Result<Media, Status> {
    call.media()
}

/// Returns 201 with a success Status.
pub(super) fn done(call: &Call<'_>) -> HttpResponse {
    let mut response = response::status(&Status { code: 201, ..Status::success() }, call.accepted);
    *response.status_mut() = http::StatusCode::CREATED;
    response
}
