//! Eviction: deletes a pod if its PodDisruptionBudget allows it.

use admission::{Operation, View};
use api_registry::decode;
use api_registry::deletion::{self, Plan};
use api_registry::eviction::{self, EvictionPermission};
use api_registry::options::{DeleteOptions, WriteKind, WriteOptions};
use api_registry::query::Query;
use api_registry::strategy;
use apimachinery::field_validation::FieldValidation;
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::status::Status;
use apimachinery::{GroupVersionKind, Value};
use mvcc::Txn;

use super::{Call, Current, bind, subresource};
use crate::response::HttpResponse;
use crate::state::now;
use crate::storage;

/// Maximum number of attempts after write conflicts.
const TRIES_MAX: usize = 32;
/// Field manager of the server's own writes.
const MANAGER: &str = "kube-apiserver";

/// Evicts the pod in the URL.
///
/// The budget and the pod are written in one transaction, so that no disruption is counted without a deletion.
pub(super) async fn serve(call: &Call<'_>) -> Result<HttpResponse, Status> {
    let name = &call.resource.name;
    let options = WriteOptions::of(&call.request.query, WriteKind::Create)?;
    let gvk = GroupVersionKind::of("policy", "v1", "Eviction");
    let mut evicted = decode::plain(&call.body, call.media()?, &gvk, FieldValidation::Ignore)?.object;
    if Meta::of(&evicted).name() != name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let delete_options = evicted.get("deleteOptions").filter(|options| !options.is_null()).cloned();
    let mut delete = DeleteOptions::of(&Query::default(), delete_options.as_ref())?;
    delete.dry_run |= options.dry_run;
    subresource::admit(call, &call.kind, name, "eviction", &mut evicted, Operation::Create).await?;
    for _ in 0..TRIES_MAX {
        let current = call.current(name).await?.ok_or_else(|| call.not_found(name))?;
        call.state.catch_up().await?;
        let budgets = call.state.stored("policy", "poddisruptionbudgets", call.namespace(), "");
        let leave = eviction::evaluate(&current.object, &budgets, now())?;
        let txn = plan(call, current, &delete, &leave)?;
        let Some(txn) = txn.filter(|_| !delete.dry_run) else { return Ok(bind::done(call)) };
        if call.state.submit(txn).await?.is_some() {
            return Ok(bind::done(call));
        }
    }
    Err(strategy::modified(&call.kind, name))
}

/// Returns the transaction that deletes the pod and updates its budget, or `None` if the pod is already being deleted.
fn plan(
    call: &Call<'_>,
    current: Current,
    options: &DeleteOptions,
    leave: &EvictionPermission,
) -> Result<Option<Txn>, Status> {
    let kind = &*call.kind;
    let key = call.state.layout.key(kind, call.namespace(), &call.resource.name);
    let Current { object: mut pod, revision, .. } = current;
    eviction::mark(&mut pod, now());
    let mut txn = match deletion::plan(kind, &pod, options, now())? {
        Plan::Keep => return Ok(None),
        Plan::Mark(marked) => storage::replace(key, storage::encode(&marked), revision),
        Plan::Remove(_) => storage::remove(key, revision),
    };
    if let EvictionPermission::UpdateBudget(budget) = leave {
        let more = spent(call, budget)?;
        txn.compare.extend(more.compare);
        txn.success.extend(more.success);
    }
    Ok(Some(txn))
}

/// Returns the status update of a budget that allowed a disruption.
fn spent(call: &Call<'_>, budget: &Value) -> Result<Txn, Status> {
    let table = call.state.table();
    let kind = table.kind("policy", "poddisruptionbudgets");
    let kind = kind.ok_or_else(|| Status::internal_error("disruption budgets are not served"))?;
    let meta = Meta::of(budget);
    let (namespace, name) = (meta.namespace(), meta.name());
    let revision = meta.resource_version().parse().unwrap_or(0);
    let before = call.state.stored("policy", "poddisruptionbudgets", namespace, name);
    let target =
        strategy::Target { kind, version: &kind.versions[0], namespace, name, subresource: "status", manager: MANAGER };
    let mut owned = strategy::own(&target, before.first(), budget.clone(), now());
    if let Some(mut meta) = MetaMut::of(&mut owned) {
        meta.remove("resourceVersion");
    }
    Ok(storage::replace(call.state.layout.key(kind, namespace, name), storage::encode(&owned), revision))
}
