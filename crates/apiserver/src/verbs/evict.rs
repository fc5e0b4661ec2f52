//! The `eviction` of a pod: a delete that its disruption budget must allow.

use machinery::field_validation::FieldValidation;
use machinery::meta::{Meta, MetaMut};
use machinery::status::Status;
use machinery::{GroupVersionKind, Value};
use mvcc::Txn;
use registry::admission::{Operation, View};
use registry::body;
use registry::deletion::{self, Plan};
use registry::eviction::{self, Leave};
use registry::options::{DeleteOptions, WriteKind, WriteOptions};
use registry::query::Query;
use registry::write;

use super::{Call, Current, bind, part};
use crate::answer::Answer;
use crate::state::now;
use crate::storage;

/// How often an eviction is decided anew on a fresh view.
const TRIES_MAX: usize = 32;
/// Who owns what the server itself writes.
const MANAGER: &str = "kube-apiserver";

/// Evicts the pod that the URL names.
///
/// The budget and the pod change in one transaction, so that no permission is spent for nothing.
pub async fn serve(call: &Call<'_>) -> Result<Answer, Status> {
    let name = &call.resource.name;
    let options = WriteOptions::of(&call.asked.query, WriteKind::Create)?;
    let gvk = GroupVersionKind::of("policy", "v1", "Eviction");
    let mut evicted = body::plain(&call.body, call.media()?, &gvk, FieldValidation::Ignore)?.object;
    if Meta::of(&evicted).name() != name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let wanted = evicted.get("deleteOptions").filter(|options| !options.is_null()).cloned();
    let mut delete = DeleteOptions::of(&Query::default(), wanted.as_ref())?;
    delete.dry_run |= options.dry_run;
    part::admit(call, &call.kind, name, "eviction", &mut evicted, Operation::Create).await?;
    for _ in 0..TRIES_MAX {
        let current = call.current(name).await?.ok_or_else(|| call.not_found(name))?;
        call.state.catch_up().await?;
        let budgets = call.state.stored("policy", "poddisruptionbudgets", call.namespace(), "");
        let leave = eviction::judge(&current.object, &budgets, now())?;
        let txn = plan(call, current, &delete, &leave)?;
        let Some(txn) = txn.filter(|_| !delete.dry_run) else { return Ok(bind::done(call)) };
        if call.state.submit(txn).await?.is_some() {
            return Ok(bind::done(call));
        }
    }
    Err(write::modified(&call.kind, name))
}

/// What changes: the pod, and the budget that it is taken from. Nothing, if the pod is on its way already.
fn plan(call: &Call<'_>, current: Current, options: &DeleteOptions, leave: &Leave) -> Result<Option<Txn>, Status> {
    let kind = &*call.kind;
    let key = call.state.layout.key(kind, call.namespace(), &call.resource.name);
    let Current { object: mut pod, revision, .. } = current;
    eviction::mark(&mut pod, now());
    let mut txn = match deletion::plan(kind, &pod, options, now())? {
        Plan::Keep => return Ok(None),
        Plan::Mark(marked) => storage::replace(key, storage::encode(&marked), revision),
        Plan::Remove(_) => storage::remove(key, revision),
    };
    if let Leave::Spend(budget) = leave {
        let more = spent(call, budget)?;
        txn.compare.extend(more.compare);
        txn.success.extend(more.success);
    }
    Ok(Some(txn))
}

/// The write of a budget that has let a pod go.
fn spent(call: &Call<'_>, budget: &Value) -> Result<Txn, Status> {
    let table = call.state.table();
    let kind = table.kind("policy", "poddisruptionbudgets");
    let kind = kind.ok_or_else(|| Status::internal_error("disruption budgets are not served"))?;
    let meta = Meta::of(budget);
    let (namespace, name) = (meta.namespace(), meta.name());
    let revision = meta.resource_version().parse().unwrap_or(0);
    let before = call.state.stored("policy", "poddisruptionbudgets", namespace, name);
    let target =
        write::Target { kind, version: &kind.versions[0], namespace, name, subresource: "status", manager: MANAGER };
    let mut owned = write::own(&target, before.first(), budget.clone(), now());
    if let Some(mut meta) = MetaMut::of(&mut owned) {
        meta.remove("resourceVersion");
    }
    Ok(storage::replace(call.state.layout.key(kind, namespace, name), storage::encode(&owned), revision))
}
