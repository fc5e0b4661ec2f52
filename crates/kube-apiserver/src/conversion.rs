//! Version conversion between the stored and the requested API version: built-in functions or a CRD's conversion
//! webhook.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use api::kind::{Kind, Version};
use api_registry::conversion::review::Conversion;
use api_registry::conversion::{from_stored, in_version, is_stored, refresh, refreshed, stored_version};
use apimachinery::status::{Reason, Status};
use apimachinery::{Value, pruning};
use bytes::Bytes;

use crate::backend::Destination;
use crate::ids::generate_ids;
use crate::storage::Storage;
use crate::watch_cache::Entry;
use crate::{remote, response};

/// Timeout of a conversion webhook.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Whether a stored object can be served unchanged: it is stored in the requested version, and its current CRD would
/// not change anything.
pub fn is_servable(kind: &Kind, version: &Version, entry: &Entry) -> bool {
    is_stored(kind, version)
        && (!kind.is_custom() || (entry.is_of(&kind.gvk(&version.name).api_version()) && entry.is_fresh(kind)))
}

/// Converts a stored object to a version.
pub async fn read(storage: &Storage, kind: &Kind, version: &Version, stored: Value) -> Result<Value, Status> {
    served(storage, kind, version, refreshed(kind, stored)).await
}

/// Converts stored objects to a version. A webhook is called once for all of them.
pub async fn read_all(
    storage: &Storage,
    kind: &Kind,
    version: &Version,
    stored: Vec<Value>,
) -> Result<Vec<Value>, Status> {
    let stored = stored.into_iter().map(|object| refreshed(kind, object)).collect();
    convert_all(storage, kind, version, stored, true).await
}

/// Whether the stored form differs from the form that would be stored now, so that a no-op update must write it.
pub fn is_outdated(kind: &Kind, stored: &Value) -> bool {
    let Some(version) = stored_version(kind).filter(|_| kind.is_custom()) else { return false };
    refreshed(kind, stored.clone()) != *stored
        || stored.str_at(&["apiVersion"]) != Some(kind.gvk(&version.name).api_version().as_str())
}

/// Converts an object to a version. Its apiVersion names its current version.
pub async fn served(storage: &Storage, kind: &Kind, version: &Version, object: Value) -> Result<Value, Status> {
    let mut served = convert_all(storage, kind, version, vec![object], false).await?;
    Ok(served.pop().expect("one object is converted to one object"))
}

/// Converts an object to the storage version.
pub async fn to_storage_version<'o>(
    storage: &Storage,
    kind: &Kind,
    object: &'o Value,
) -> Result<Cow<'o, Value>, Status> {
    match stored_version(kind) {
        Some(version) if kind.is_custom() => served(storage, kind, version, object.clone()).await.map(Cow::Owned),
        _ => Ok(Cow::Borrowed(object)),
    }
}

/// Reduces a written object to the form that a read returns, where no webhook is needed: fields that the storage
/// version does not have are dropped.
pub fn echoed(object: &mut Value, kind: &Kind, version: &Version) {
    if let Some(stored) = stored_version(kind).filter(|stored| kind.is_custom() && stored.name != version.name) {
        in_version(object, kind, stored);
        refresh(object, kind);
        in_version(object, kind, version);
    }
}

async fn convert_all(
    storage: &Storage,
    kind: &Kind,
    version: &Version,
    mut objects: Vec<Value>,
    many: bool,
) -> Result<Vec<Value>, Status> {
    let Some(webhook) = &kind.converter else {
        objects.iter_mut().for_each(|object| from_stored(object, kind, version));
        return Ok(objects);
    };
    let desired = kind.gvk(&version.name).api_version();
    for at in convert(storage, webhook, &desired, &mut objects, many).await? {
        // The webhook's result is pruned to the schema of the version, like a client's request.
        pruning::prune(&mut objects[at], version.schema());
    }
    Ok(objects)
}

/// Converts the objects that are in another version and returns their indices.
async fn convert(
    storage: &Storage,
    webhook: &Value,
    desired: &str,
    objects: &mut [Value],
    many: bool,
) -> Result<Vec<usize>, Status> {
    let is_foreign = |at: &usize| objects[*at].str_at(&["apiVersion"]) != Some(desired);
    let foreign: Vec<usize> = (0..objects.len()).filter(is_foreign).collect();
    if foreign.is_empty() {
        return Ok(foreign);
    }
    let uid = generate_ids().uid;
    let conversion = Conversion { webhook, desired, uid: &uid, many };
    let sent: Vec<Value> = foreign.iter().map(|at| objects[*at].clone()).collect();
    let reply = call_webhook(storage, webhook, conversion.request(&sent).map_err(failed)?).await;
    let reply = reply.map_err(|error| failed(conversion.failed(&sent, &error)))?;
    let converted = conversion.converted_objects(&sent, &reply).map_err(failed)?;
    for (at, object) in foreign.iter().zip(converted) {
        objects[*at] = object;
    }
    Ok(foreign)
}

async fn call_webhook(storage: &Storage, webhook: &Value, review: Value) -> Result<Value, String> {
    let to = Destination::of(&webhook["clientConfig"]).map_err(|wrong| wrong.to_string())?;
    let began = Instant::now();
    let body = Bytes::from(response::as_json(&review));
    drop(review);
    let sent = storage.backends.post(storage, &to, "timeout=30s", body, TIMEOUT).await;
    let reply = sent.map_err(|error| error.to_string()).and_then(|(code, body)| remote::read(code.as_u16(), &body));
    storage.metrics.admission.converted(reply.is_ok(), began.elapsed());
    reply
}

/// Returns an internal error without a reason, as upstream does.
fn failed(message: String) -> Status {
    Status { reason: Reason::Unknown, ..Status::failure(Reason::InternalError, message) }
}
