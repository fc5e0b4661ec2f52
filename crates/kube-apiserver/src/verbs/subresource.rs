//! Admission of subresources that are created (such as Binding and Eviction) or connected to (such as exec).

use admission::webhooks::write_options;
use admission::{Attributes, Operation};
use api::kind::Kind;
use api_registry::options::WriteOptions;
use apimachinery::Value;
use apimachinery::status::Status;

use super::Call;
use crate::ids::generate_ids;
use client::clock::now;

/// Runs admission on `object`, a subresource of the object `name`: a created object, or the options of a stream.
pub(super) async fn admit(
    call: &Call<'_>,
    kind: &Kind,
    name: &str,
    subresource: &str,
    object: &mut Value,
    operation: Operation,
) -> Result<(), Status> {
    let ids = generate_ids();
    let dry_run = operation == Operation::Create && !call.request.query.all("dryRun").is_empty();
    // CONNECT has no options other than the object itself.
    let options = match operation {
        Operation::Connect => Value::Null,
        _ => write_options("CreateOptions", &WriteOptions { dry_run, ..WriteOptions::default() }),
    };
    let attributes = Attributes {
        kind,
        version: &kind.versions[0],
        namespace: if kind.is_namespaced() { &call.resource.namespace } else { "" },
        name,
        subresource,
        operation,
        user: &call.user,
        now: now(),
        dry_run,
        old: None,
        suffix: &ids.suffix,
        uid: &ids.uid,
        options: &options,
    };
    call.state.storage.see_own_writes().await?;
    call.admit(&attributes, object).await?;
    call.validate(&attributes, object).await
}
