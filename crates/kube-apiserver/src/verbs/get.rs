//! Get: GET of one object.

use std::sync::Arc;

use api_registry::negotiate::{Encoding, Form};
use apimachinery::status::Status;
use apimachinery::value::Value;
use mvcc::Revision;

use super::{Call, render};
use crate::conversion;
use crate::response::{self, HttpResponse};
use crate::storage::{CACHE_TIMEOUT, unavailable};
use crate::storage_format;
use crate::watch_cache::Entry;

/// Serves the object in the URL. Without a resourceVersion it is read from the store; with one from the watch cache,
/// once that is at least as new.
pub(super) async fn serve(call: &Call<'_>) -> Result<HttpResponse, Status> {
    let (bytes, revision) = match call.request.query.text("resourceVersion") {
        "" => fresh(call).await?,
        version => cached(call, version).await?,
    };
    if call.accepted.encoding == Encoding::Json && call.accepted.form == Form::Object {
        let entry = entry(call, &bytes, revision)?;
        if conversion::is_servable(&call.kind, call.version(), &entry) {
            let mut out = Vec::with_capacity(entry.size());
            entry.write(revision, &mut out);
            return Ok(response::json(200, out, call.accepted));
        }
    }
    let object: Value = storage_format::decode(&bytes, revision).map_err(Status::internal_error)?;
    let object = conversion::read(&call.state.storage, &call.kind, call.version(), object).await?;
    render::formed(call, 200, &object, &call.version().columns)
}

/// Returns the object as an entry. Checking whether a custom resource can be served unchanged requires parsing it, so
/// the cached entry is reused if it has the same revision. A built-in kind can always be served in its storage version.
fn entry(call: &Call<'_>, bytes: &bytes::Bytes, revision: Revision) -> Result<Arc<Entry>, Status> {
    let made = if call.kind.is_custom() {
        let known = call.state.storage.cache.kind_cache(&call.kind).get(&key(call));
        if let Some(entry) = known.filter(|entry| entry.revision == revision) {
            return Ok(entry);
        }
        Entry::new("", bytes.clone(), revision, &[])
    } else {
        Entry::bare("", bytes.clone(), revision)
    };
    made.map(Arc::new).map_err(Status::internal_error)
}

/// Returns the object's key below its kind.
fn key(call: &Call<'_>) -> String {
    let (name, namespace) = (&call.resource.name, call.namespace());
    if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") }
}

async fn fresh(call: &Call<'_>) -> Result<(bytes::Bytes, Revision), Status> {
    let name = &call.resource.name;
    let key = call.state.storage.layout.key(&call.kind, call.namespace(), name);
    let found = call.state.storage.store.get(key).await.map_err(|error| unavailable(&error))?;
    let (value, revision, _) = found.ok_or_else(|| call.not_found(name))?;
    Ok((value, revision))
}

async fn cached(call: &Call<'_>, version: &str) -> Result<(bytes::Bytes, Revision), Status> {
    let version = parse_version(version)?;
    wait(call, version).await?;
    let found = call.state.storage.cache.kind_cache(&call.kind).get(&key(call));
    let entry = found.ok_or_else(|| call.not_found(&call.resource.name))?;
    Ok((entry.bytes.clone(), entry.revision))
}

/// Waits until the cache has reached a resourceVersion that the client has seen.
pub(super) async fn wait(call: &Call<'_>, version: Revision) -> Result<(), Status> {
    let current = call.state.storage.cache.reached();
    call.state.storage.cache.wait(version, CACHE_TIMEOUT).await.map_err(|_| {
        let message = format!("Too large resource version: {version}, current: {current}");
        let mut status = Status::timeout(&message, 1);
        if let Some(details) = &mut status.details {
            details.causes.push(apimachinery::field::Cause {
                reason: "ResourceVersionTooLarge".to_owned(),
                message: "Too large resource version".to_owned(),
                field: String::new(),
            });
        }
        status
    })
}

/// Parses a resourceVersion parameter.
pub(super) fn parse_version(text: &str) -> Result<Revision, Status> {
    let number: Result<u64, _> = text.parse();
    number.ok().and_then(|number| Revision::try_from(number).ok()).ok_or_else(|| {
        let problem = if text.bytes().all(|byte| byte.is_ascii_digit()) { "value out of range" } else { "invalid syntax" };
        let quoted = apimachinery::go::quote(text);
        Status::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {quoted}: strconv.ParseUint: parsing {quoted}: {problem}"
        ))
    })
}
