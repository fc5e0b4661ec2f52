//! Objects in the version that a client speaks and in the one that is stored: by functions, or by a definition's webhook.

use std::time::{Duration, Instant};

use api::kind::{Keeping, Kind, Shape, Version};
use bytes::Bytes;
use machinery::field_validation::FieldValidation;
use machinery::status::{Reason, Status};
use machinery::{Value, json};
use registry::body;
use registry::conversion::review::Conversion;
use registry::conversion::{from_stored, is_stored};

use crate::backend::Destination;
use crate::state::{State, draw};
use crate::storage;
use crate::webhooks;

/// How long a conversion webhook may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether stored bytes can be served as they are: they are in the version that is asked for.
pub fn is_servable(kind: &Kind, version: &Version, bytes: &[u8]) -> bool {
    is_stored(kind, version)
        && match version.shape {
            Shape::BuiltIn(_) => true,
            // What was written before the definition chose another version to store is still in the old one.
            Shape::Custom(..) => storage::is_of(bytes, &kind.gvk(&version.name).api_version()),
        }
}

/// Whether an object that was read is in another version than objects are stored in now.
pub fn is_outdated(kind: &Kind, stored: &Value) -> bool {
    kind.converter.is_some() && stored.str_at(&["apiVersion"]) != stored_version(kind).as_deref()
}

/// An object in a version. What it is in now, it says itself.
pub async fn served(state: &State, kind: &Kind, version: &Version, object: Value) -> Result<Value, Status> {
    let mut served = convert_all(state, kind, version, vec![object], false).await?;
    Ok(served.pop().expect("as many come back as were given"))
}

/// Objects in a version. Where a webhook converts, it is asked once for all of them.
pub async fn served_all(
    state: &State,
    kind: &Kind,
    version: &Version,
    objects: Vec<Value>,
) -> Result<Vec<Value>, Status> {
    convert_all(state, kind, version, objects, true).await
}

/// An object as it is to be stored. It is in the stored version already, unless a webhook converts.
pub async fn kept(state: &State, kind: &Kind, object: &Value) -> Result<Value, Status> {
    let (Some(webhook), Some(desired)) = (&kind.converter, stored_version(kind)) else { return Ok(object.clone()) };
    let mut objects = vec![object.clone()];
    convert(state, webhook, &desired, &mut objects, false).await?;
    Ok(objects.pop().expect("as many come back as were given"))
}

async fn convert_all(
    state: &State,
    kind: &Kind,
    version: &Version,
    mut objects: Vec<Value>,
    many: bool,
) -> Result<Vec<Value>, Status> {
    let Some(webhook) = &kind.converter else {
        for object in &mut objects {
            from_stored(object, kind, version);
        }
        return Ok(objects);
    };
    let desired = kind.gvk(&version.name).api_version();
    let changed = convert(state, webhook, &desired, &mut objects, many).await?;
    for at in changed {
        // What the webhook made is held to the schema of the version, as what a client sends is.
        let made = std::mem::take(&mut objects[at]);
        objects[at] = body::again(made, kind, version, FieldValidation::Ignore)?.object;
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
    let body = Bytes::from(json::to_vec(&review));
    drop(review);
    let sent = state.backends.post(state, &to, "timeout=30s", body, PATIENCE).await;
    let answer = sent.map_err(|error| error.to_string()).and_then(|(code, body)| webhooks::read(code.as_u16(), &body));
    state.metrics.admission.converted(answer.is_ok(), began.elapsed());
    answer
}

fn stored_version(kind: &Kind) -> Option<String> {
    match &kind.keeping {
        Keeping::Stored { version, .. } => Some(version.to_string()),
        Keeping::Answered(_) => None,
    }
}

/// Upstream gives such a failure no reason.
fn failed(message: String) -> Status {
    Status { reason: Reason::Unknown, ..Status::failure(Reason::InternalError, message) }
}
