//! Objects in the version that a client speaks and in the one that is stored: by functions, or by a definition's webhook.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use api::kind::{Kind, Version};
use bytes::Bytes;
use machinery::status::{Reason, Status};
use machinery::{Value, pruning};
use registry::conversion::review::Conversion;
use registry::conversion::{from_stored, in_version, is_stored, refresh, stored_version};

use crate::answer;
use crate::backend::Destination;
use crate::cache::Entry;
use crate::state::{State, draw};
use crate::webhooks;

/// How long a conversion webhook may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether a stored object can be served as it is: it is in the version that is asked for, and what its definition says
/// now would change nothing about it.
pub fn is_servable(kind: &Kind, version: &Version, entry: &Entry) -> bool {
    is_stored(kind, version)
        && (!kind.is_custom() || (entry.is_of(&kind.gvk(&version.name).api_version()) && entry.is_fresh(kind)))
}

/// An object that was read, in a version.
pub async fn read(state: &State, kind: &Kind, version: &Version, stored: Value) -> Result<Value, Status> {
    served(state, kind, version, refreshed(kind, stored)).await
}

/// Objects that were read, in a version. Where a webhook converts, it is asked once for all of them.
pub async fn read_all(state: &State, kind: &Kind, version: &Version, stored: Vec<Value>) -> Result<Vec<Value>, Status> {
    let stored = stored.into_iter().map(|object| refreshed(kind, object)).collect();
    convert_all(state, kind, version, stored, true).await
}

/// An object that was read, as its definition would have it now.
pub fn refreshed(kind: &Kind, mut stored: Value) -> Value {
    if kind.is_custom() {
        refresh(&mut stored, kind);
    }
    stored
}

/// Whether what was read is not what would be stored now: it is to be written again though nobody changed it.
pub fn is_outdated(kind: &Kind, stored: &Value) -> bool {
    let Some(version) = stored_version(kind).filter(|_| kind.is_custom()) else { return false };
    refreshed(kind, stored.clone()) != *stored
        || stored.str_at(&["apiVersion"]) != Some(kind.gvk(&version.name).api_version().as_str())
}

/// An object on its way, in a version. What it is in now, it says itself.
pub async fn served(state: &State, kind: &Kind, version: &Version, object: Value) -> Result<Value, Status> {
    let mut served = convert_all(state, kind, version, vec![object], false).await?;
    Ok(served.pop().expect("as many come back as were given"))
}

/// An object as it is to be stored.
pub async fn kept<'o>(state: &State, kind: &Kind, object: &'o Value) -> Result<Cow<'o, Value>, Status> {
    match stored_version(kind) {
        Some(version) if kind.is_custom() => served(state, kind, version, object.clone()).await.map(Cow::Owned),
        _ => Ok(Cow::Borrowed(object)),
    }
}

/// An object that was written, as a read gives it back, where no webhook need be asked: what the stored version does
/// not have did not last.
pub fn echoed(object: &mut Value, kind: &Kind, version: &Version) {
    if let Some(stored) = stored_version(kind).filter(|stored| kind.is_custom() && stored.name != version.name) {
        in_version(object, kind, stored);
        refresh(object, kind);
        in_version(object, kind, version);
    }
}

async fn convert_all(
    state: &State,
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
    for at in convert(state, webhook, &desired, &mut objects, many).await? {
        // What the webhook made is held to the schema of the version, as what a client sends is.
        pruning::prune(&mut objects[at], version.schema());
    }
    Ok(objects)
}

/// Brings those that are in another version into the desired one, and says which they were.
async fn convert(
    state: &State,
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
    let uid = draw().uid;
    let conversion = Conversion { webhook, desired, uid: &uid, many };
    let sent: Vec<Value> = foreign.iter().map(|at| objects[*at].clone()).collect();
    let answer = ask(state, webhook, conversion.request(&sent).map_err(failed)?).await;
    let answer = answer.map_err(|why| failed(conversion.failed(&sent, &why)))?;
    let converted = conversion.answer(&sent, &answer).map_err(failed)?;
    for (at, object) in foreign.iter().zip(converted) {
        objects[*at] = object;
    }
    Ok(foreign)
}

async fn ask(state: &State, webhook: &Value, review: Value) -> Result<Value, String> {
    let to = Destination::of(&webhook["clientConfig"]).map_err(|wrong| wrong.to_string())?;
    let began = Instant::now();
    let body = Bytes::from(answer::as_json(&review));
    drop(review);
    let sent = state.backends.post(state, &to, "timeout=30s", body, PATIENCE).await;
    let answer = sent.map_err(|error| error.to_string()).and_then(|(code, body)| webhooks::read(code.as_u16(), &body));
    state.metrics.admission.converted(answer.is_ok(), began.elapsed());
    answer
}

/// Upstream gives such a failure no reason.
fn failed(message: String) -> Status {
    Status { reason: Reason::Unknown, ..Status::failure(Reason::InternalError, message) }
}
