//! CRD controller: updates the kind table from the CustomResourceDefinitions and sets their status.
//!
//! One task reconciles all CRDs whenever one changes. The result depends only on the current objects, so missed events
//! and concurrent servers do no harm.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::apiextensions::custom_resource;
use api::apiextensions::custom_resource_definition::{
    CLEANUP_FINALIZER, Deletion, conditions, is_established, set_terminating,
};
use api::kind::Kind;
use api_registry::deletion::{self, Plan};
use api_registry::options::DeleteOptions;
use api_registry::strategy;
use apimachinery::Value;
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::status::Status;
use mvcc::Revision;

use crate::kind_table::Table;
use crate::startup::{Startup, Step};
use client::clock::now;

use crate::storage::Storage;
use crate::transaction::ObjectKey;
use crate::watch_cache::{Entry, KindCache};

/// Kinds by CRD name, with the CRD revision they were generated from.
type Rows = BTreeMap<String, (Revision, Arc<Kind>)>;

/// Runs the CRD controller until the process exits.
pub async fn run(storage: Arc<Storage>, startup: Arc<Startup>) {
    let table = storage.table();
    let Some(kind) = table.kind("apiextensions.k8s.io", "customresourcedefinitions").cloned() else {
        return startup.complete(Step::CustomResources);
    };
    let built_in = table.kinds.clone();
    let kind_cache = storage.cache.kind_cache(&kind);
    let mut reached = storage.cache.follow();
    let (mut seen, mut rows) = (None, Rows::new());
    kind_cache.filled().await;
    let processed = storage.followers.add(&kind);
    loop {
        let revision = *reached.borrow_and_update();
        if seen != Some(kind_cache.revision()) || rows.values().any(|(_, kind)| is_emptying(kind)) {
            seen = Some(kind_cache.revision());
            reconcile(&storage, &kind, &kind_cache, &built_in, &mut rows).await;
            startup.complete(Step::CustomResources);
        }
        processed.send_replace(revision);
        if reached.changed().await.is_err() {
            return;
        }
    }
}

/// Whether a CRD is being deleted, and its instances with it: its kind then has no `create` verb. Every change of the
/// kind may be the deletion of the last instance.
fn is_emptying(kind: &Kind) -> bool {
    !kind.verbs.contains(&api::kind::Verb::Create)
}

async fn reconcile(storage: &Storage, kind: &Kind, kind_cache: &KindCache, built_in: &[Arc<Kind>], rows: &mut Rows) {
    let entries = kind_cache.list("", |_| true);
    let definitions: Vec<Value> = entries.iter().map(|entry| entry.object()).collect();
    let mut served = Rows::new();
    for (entry, definition) in entries.iter().zip(&definitions) {
        if let Err(status) = advance(storage, kind, entry, definition, &definitions, rows).await {
            tracing::debug!(
                name = entry.name(), message = %status.message,
                "failed to update the status of a CustomResourceDefinition"
            );
        }
        if let Some(row) = row(storage, entry, definition, rows).await {
            served.insert(entry.name().to_owned(), (entry.revision, row));
        }
    }
    for (name, (_, kind)) in &*rows {
        if !served.contains_key(name) {
            storage.cache.remove(kind);
        }
    }
    *rows = served;
    let mut kinds = built_in.to_vec();
    kinds.extend(rows.values().map(|(_, kind)| kind.clone()));
    *storage.table.write().expect("no holder panics") = Arc::new(Table::new(kinds));
}

/// Returns the kind of a CRD if the CRD is established. Reuses the previous kind if the CRD is unchanged.
async fn row(storage: &Storage, entry: &Entry, definition: &Value, rows: &Rows) -> Option<Arc<Kind>> {
    if !is_established(definition) {
        return None;
    }
    let before = rows.get(entry.name());
    if let Some((_, kind)) = before.filter(|(revision, _)| *revision == entry.revision) {
        return Some(kind.clone());
    }
    let made = match custom_resource::kind_of(definition) {
        Ok(made) => made,
        Err(error) => {
            tracing::warn!(name = entry.name(), %error, "a CustomResourceDefinition cannot be served");
            return None;
        }
    };
    let same = before.is_some_and(|(_, kind)| {
        let names = |kind: &Kind| kind.selectable.iter().map(|field| field.name.clone()).collect::<Vec<_>>();
        names(kind) == names(&made)
    });
    let kind_cache = if same { storage.cache.kind_cache(&made) } else { storage.cache.renew(&made) };
    kind_cache.filled().await;
    kind_cache.pass_to(made.edition);
    Some(Arc::new(made))
}

/// Reconciles a CRD: updates its conditions, and deletes its instances if it is being deleted.
async fn advance(
    storage: &Storage,
    kind: &Kind,
    entry: &Entry,
    definition: &Value,
    all: &[Value],
    rows: &Rows,
) -> Result<(), Status> {
    if Meta::of(definition).is_deleting() {
        return finish(storage, kind, entry, definition, rows).await;
    }
    if let Some(status) = conditions(definition, all, now()) {
        let mut next = definition.clone();
        if let Value::Object(fields) = &mut next {
            fields.insert("status", status);
        }
        let (version, name, manager) = (&kind.versions[0], entry.name(), "kube-apiserver");
        let target = strategy::Target { kind, version, namespace: "", name, subresource: "status", manager };
        next = strategy::own(&target, Some(definition), next, now());
        replace(storage, kind, entry, &next).await?;
    }
    Ok(())
}

/// Deletes the instances of a CRD, and removes the CRD's finalizer when none is left.
async fn finish(storage: &Storage, kind: &Kind, entry: &Entry, definition: &Value, rows: &Rows) -> Result<(), Status> {
    if !Meta::of(definition).finalizers().any(|name| name == CLEANUP_FINALIZER) {
        return Ok(());
    }
    if let Some((_, custom)) = rows.get(entry.name()) {
        let instances = storage.cache.kind_cache(custom).list("", |_| true);
        for instance in &instances {
            delete(storage, custom, instance).await?;
        }
        if !instances.is_empty() {
            return Ok(());
        }
    }
    let mut next = definition.clone();
    set_terminating(&mut next, Deletion::Completed, now());
    if let Some(mut meta) = MetaMut::of(&mut next) {
        meta.remove_finalizer(CLEANUP_FINALIZER);
    }
    if deletion::ends(kind, &next, definition) {
        let key = ObjectKey::new(storage, kind, "", entry.name());
        return key.remove(definition, entry.revision).submit().await.map(drop);
    }
    replace(storage, kind, entry, &next).await
}

async fn delete(storage: &Storage, kind: &Kind, instance: &Entry) -> Result<(), Status> {
    let object = instance.object();
    let key = ObjectKey::new(storage, kind, instance.namespace(), instance.name());
    let transaction = match deletion::plan(kind, &object, &DeleteOptions::default(), now())? {
        Plan::Keep => return Ok(()),
        // The instance is marked for deletion already and waits for its finalizers.
        Plan::Mark(_) if Meta::of(&object).is_deleting() => return Ok(()),
        Plan::Mark(marked) => key.replace(&marked, instance.revision),
        Plan::Remove(removed) => key.remove(&removed, instance.revision),
    };
    transaction.submit().await.map(drop)
}

async fn replace(storage: &Storage, kind: &Kind, entry: &Entry, next: &Value) -> Result<(), Status> {
    ObjectKey::new(storage, kind, "", entry.name()).replace(next, entry.revision).submit().await.map(drop)
}
