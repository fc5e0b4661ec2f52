//! Priority and fairness controller: applies FlowSchemas and PriorityLevelConfigurations, maintains the mandatory and
//! suggested objects, and sets the FlowSchemas' status.

use std::sync::Arc;

use api::kind::Kind;
use apimachinery::meta::Meta;
use apimachinery::status::{Reason, Status};
use apimachinery::{Value, value};
use flowcontrol::bootstrap::{self, Write};
use flowcontrol::control::Condition;
use http::{Method, Uri};

use crate::dispatch;
use crate::startup::Step;
use crate::state::State;
use crate::storage::Storage;
use client::clock::now;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// Field manager of FlowSchema status.
const STATUS_MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";
/// Field manager of the mandatory and suggested objects.
const OBJECT_MANAGER: &str = "api-priority-and-fairness-config-producer-v1";

/// Runs the controller until the process exits. The result depends only on the current objects, so missed events and
/// concurrent servers do no harm.
pub(crate) async fn run(state: Arc<State>) {
    let table = state.storage.table();
    let find = |plural: &str| table.kind(GROUP, plural).cloned();
    let (Some(schemas), Some(levels)) = (find("flowschemas"), find("prioritylevelconfigurations")) else {
        // Priority and fairness is disabled.
        return state.startup.complete(Step::FlowControl);
    };
    let shelves = [state.storage.cache.kind_cache(&schemas), state.storage.cache.kind_cache(&levels)];
    let mut reached = state.storage.cache.follow();
    for kind_cache in &shelves {
        kind_cache.filled().await;
    }
    let mut seen = None;
    loop {
        reached.borrow_and_update();
        let revisions = shelves.each_ref().map(|kind_cache| kind_cache.revision());
        if seen != Some(revisions) {
            seen = Some(revisions);
            reconcile(&state, &schemas, &levels).await;
            state.startup.complete(Step::FlowControl);
        }
        if reached.changed().await.is_err() {
            return;
        }
    }
}

async fn reconcile(state: &Arc<State>, schemas: &Kind, levels: &Kind) {
    let (schemas, levels) = (objects(&state.storage, schemas), objects(&state.storage, levels));
    let Some(done) = state.filters.fairness.reconfigure(&schemas, &levels) else { return };
    for ignored in &done.ignored {
        tracing::warn!(name = %ignored.name, error = %ignored.error, "a PriorityLevelConfiguration is ignored");
    }
    for condition in &done.conditions {
        let schema = schemas.iter().find(|schema| Meta::of(schema).name() == condition.flow_schema);
        if let Some(schema) = schema.filter(|schema| !has_condition(schema, condition)) {
            log(&condition.flow_schema, write_condition(state, schema, condition).await);
        }
    }
    if !state.startup.is_bootstrapped() {
        // The bootstrap objects are still being created.
        return;
    }
    let all: Vec<Value> = schemas.into_iter().chain(levels).collect();
    for write in bootstrap::ensure(&all) {
        log(&write.to_string(), make(state, &write).await);
    }
}

fn objects(storage: &Storage, kind: &Kind) -> Vec<Value> {
    storage.cache.kind_cache(kind).list("", |_| true).iter().map(|entry| entry.object()).collect()
}

fn log(what: &str, done: Result<(), Status>) {
    match done {
        Ok(()) => {}
        // Another server wrote the object; the next pass sees its result.
        Err(status) if status.is(&Reason::Conflict) || status.is(&Reason::AlreadyExists) => {}
        Err(status) => tracing::warn!(what, message = %status.message, "failed to write a flow control object"),
    }
}

/// Whether the schema's status already contains the condition.
fn has_condition(schema: &Value, condition: &Condition) -> bool {
    let desired = condition.to_value(now());
    let conditions = schema.at(&["status", "conditions"]).and_then(Value::as_array).unwrap_or_default();
    let have = conditions.iter().find(|have| have.get("type") == desired.get("type"));
    have.is_some_and(|have| ["status", "reason", "message"].iter().all(|field| have.get(field) == desired.get(field)))
}

async fn write_condition(state: &Arc<State>, schema: &Value, condition: &Condition) -> Result<(), Status> {
    let name = Meta::of(schema).name();
    let applied = value!({
        "apiVersion": (format!("{GROUP}/v1")),
        "kind": "FlowSchema",
        "metadata": {"name": name},
        "status": {"conditions": (Value::Array(vec![condition.to_value(now())]))},
    });
    let uri = format!("/apis/{GROUP}/v1/flowschemas/{name}/status?force=true&fieldManager={STATUS_MANAGER}");
    dispatch::own(state, Method::PATCH, parse_uri(&uri)?, "application/apply-patch+yaml", &applied).await.map(drop)
}

async fn make(state: &Arc<State>, write: &Write) -> Result<(), Status> {
    let (method, object) = match write {
        Write::Create(object) => (Method::POST, object),
        Write::Update(object) => (Method::PUT, object),
        Write::Delete(object) => (Method::DELETE, object),
    };
    let is_schema = object.str_at(&["kind"]) == Some("FlowSchema");
    let plural = if is_schema { "flowschemas" } else { "prioritylevelconfigurations" };
    let name = if method == Method::POST { String::new() } else { format!("/{}", Meta::of(object).name()) };
    let uri = parse_uri(&format!("/apis/{GROUP}/v1/{plural}{name}?fieldManager={OBJECT_MANAGER}"))?;
    let options = value!({"apiVersion": "v1", "kind": "DeleteOptions"});
    let body = if method == Method::DELETE { &options } else { object };
    dispatch::own(state, method, uri, "application/json", body).await.map(drop)
}

fn parse_uri(uri: &str) -> Result<Uri, Status> {
    uri.parse().map_err(Status::internal_error)
}
