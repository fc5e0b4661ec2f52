//! Eviction: deletes a pod if its PodDisruptionBudget allows it.

use admission::Operation;
use api::kind::Kind;
use api_registry::decode;
use api_registry::deletion::{self, Plan};
use api_registry::eviction::{self, EvictionPermission};
use api_registry::options::{DeleteOptions, WriteKind, WriteOptions};
use api_registry::query::Query;
use api_registry::strategy;
use apimachinery::field_validation::FieldValidation;
use apimachinery::meta::Meta;
use apimachinery::status::Status;
use apimachinery::{GroupVersionKind, Value};

use super::{Call, Current, bind, subresource};
use crate::response::HttpResponse;
use crate::state::State;
use crate::transaction::{ObjectKey, Transaction};
use client::clock::now;

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
        call.state.storage.catch_up().await?;
        let budgets = call.state.storage.stored("policy", "poddisruptionbudgets", call.namespace(), "");
        let leave = eviction::evaluate(&current.object, &budgets, now())?;
        let table = call.state.storage.table();
        let budgets = table.kind("policy", "poddisruptionbudgets");
        let budgets = budgets.ok_or_else(|| Status::internal_error("disruption budgets are not served"))?;
        let transaction = plan(call, current, &delete, &leave, budgets)?;
        let Some(transaction) = transaction.filter(|_| !delete.dry_run) else { return Ok(bind::done(call)) };
        if transaction.submit().await?.is_some() {
            return Ok(bind::done(call));
        }
    }
    Err(strategy::modified(&call.kind, name))
}

/// Returns the transaction that deletes the pod and updates its budget, or `None` if the pod is already being deleted.
fn plan<'c>(
    call: &'c Call<'_>,
    current: Current,
    options: &DeleteOptions,
    permission: &EvictionPermission,
    budgets: &'c Kind,
) -> Result<Option<Transaction<'c>>, Status> {
    let kind = &*call.kind;
    let key = ObjectKey::new(&call.state.storage, kind, call.namespace(), &call.resource.name);
    let Current { object: mut pod, revision, .. } = current;
    eviction::mark(&mut pod, now());
    let transaction = match deletion::plan(kind, &pod, options, now())? {
        Plan::Keep => return Ok(None),
        Plan::Mark(marked) => key.replace(&marked, revision),
        Plan::Remove(removed) => key.remove(&removed, revision),
    };
    Ok(Some(match permission {
        EvictionPermission::UpdateBudget(budget) => transaction.and(spend(&call.state, budgets, budget)),
        _ => transaction,
    }))
}

/// Returns the status update of a budget that allowed a disruption.
fn spend<'c>(state: &'c State, kind: &'c Kind, budget: &Value) -> Transaction<'c> {
    let meta = Meta::of(budget);
    let (namespace, name) = (meta.namespace(), meta.name());
    let revision = meta.resource_version().parse().unwrap_or(0);
    let before = state.storage.stored("policy", "poddisruptionbudgets", namespace, name);
    let target =
        strategy::Target { kind, version: &kind.versions[0], namespace, name, subresource: "status", manager: MANAGER };
    let owned = strategy::own(&target, before.first(), budget.clone(), now());
    ObjectKey::new(&state.storage, kind, namespace, name).replace(&owned, revision)
}
