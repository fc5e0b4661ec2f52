//! Delete: DELETE of an object or of a collection.

use admission::webhooks::delete_options;
use admission::{Attributes, Operation};
use api_registry::decode;
use api_registry::deletion::{self, Plan};
use api_registry::options::{DeleteOptions, ListOptions};
use api_registry::selection::Selection;
use api_registry::strategy;
use apimachinery::field_validation::FieldValidation;
use apimachinery::meta::MetaMut;
use apimachinery::status::Status;
use apimachinery::{GroupVersionKind, Value};

use super::{Call, list, render};
use crate::ids::generate_ids;
use crate::response::{self, HttpResponse};
use crate::transaction::ObjectKey;
use crate::{conversion, storage_format};
use client::clock::now;

/// Maximum number of attempts after write conflicts.
const TRIES_MAX: usize = 32;

/// The result of a delete.
enum Outcome {
    /// The object was removed; this was its last state.
    Deleted(Value),
    /// The object is marked for deletion and waits for its finalizers or grace period.
    Terminating(Value),
}

/// Deletes the object in the URL.
pub(super) async fn serve(call: &Call<'_>) -> Result<HttpResponse, Status> {
    let options = options(call)?;
    warn(call, &options);
    match delete(call, &call.resource.name, &options).await? {
        Outcome::Deleted(object) if !call.kind.returns_deleted => {
            Ok(response::status(&deletion::deleted(&call.kind, &object), call.accepted))
        }
        Outcome::Deleted(object) | Outcome::Terminating(object) => render::one(call, 200, object),
    }
}

/// Deletes the selected objects of a collection and returns them.
pub(super) async fn serve_collection(call: &Call<'_>) -> Result<HttpResponse, Status> {
    let options = options(call)?;
    warn(call, &options);
    let listing = ListOptions::of_list(&call.request.query)?;
    let selection = Selection::of(&call.kind, call.version(), &listing)?;
    let revision = call.state.storage.catch_up().await?;
    let kind_cache = call.state.storage.cache.kind_cache(&call.kind);
    let selecting = list::selecting(call, &kind_cache, &selection);
    let items = selecting.select(kind_cache.list(call.namespace(), |entry| selecting.may_see(entry))).await?;
    let mut deleted = Vec::with_capacity(items.len());
    for item in items {
        match delete(call, item.entry.name(), &options).await {
            Ok(Outcome::Deleted(mut object) | Outcome::Terminating(mut object)) => {
                api_registry::conversion::from_stored(&mut object, &call.kind, call.version());
                deleted.push(object);
            }
            // The object was deleted concurrently.
            Err(status) if status.code == 404 => {}
            Err(status) => return Err(status),
        }
    }
    let mut metadata = apimachinery::Object::new();
    metadata.insert("resourceVersion", revision.to_string().as_str());
    render::many(call, deleted, metadata)
}

async fn delete(call: &Call<'_>, name: &str, options: &DeleteOptions) -> Result<Outcome, Status> {
    let kind = &*call.kind;
    for _ in 0..TRIES_MAX {
        let current = call.current(name).await?.ok_or_else(|| call.not_found(name))?;
        let now = now();
        call.state.storage.see_own_writes().await?;
        admit(call, name, &current.object, options).await?;
        let planned = deletion::plan(kind, &current.object, options, now)?;
        let key = ObjectKey::new(&call.state.storage, kind, call.namespace(), name);
        let (transaction, outcome) = match planned {
            Plan::Keep => return Ok(Outcome::Terminating(current.object)),
            Plan::Mark(object) => {
                if current.is(&storage_format::encode(&object)) {
                    return Ok(Outcome::Terminating(object));
                }
                let stored = conversion::to_storage_version(&call.state.storage, kind, &object).await?;
                (key.replace(&stored, current.revision), Outcome::Terminating(object))
            }
            Plan::Remove(object) => (key.remove(&object, current.revision), Outcome::Deleted(object)),
        };
        if options.dry_run {
            return Ok(outcome);
        }
        if let Some(revision) = transaction.submit().await? {
            return Ok(outcome.at(revision));
        }
    }
    Err(strategy::modified(kind, name))
}

async fn admit(call: &Call<'_>, name: &str, object: &Value, options: &DeleteOptions) -> Result<(), Status> {
    let ids = generate_ids();
    let admission_options = delete_options(options);
    let attributes = Attributes {
        kind: &call.kind,
        version: call.version(),
        namespace: call.namespace(),
        name,
        subresource: "",
        operation: Operation::Delete,
        user: &call.user,
        now: now(),
        dry_run: options.dry_run,
        old: Some(object),
        suffix: &ids.suffix,
        uid: &ids.uid,
        options: &admission_options,
    };
    let mut nothing = Value::Null;
    call.admit(&attributes, &mut nothing).await?;
    call.validate(&attributes, &nothing).await
}

/// Warns a client that did not specify a propagation policy about the default.
fn warn(call: &Call<'_>, options: &DeleteOptions) {
    if options.propagation.is_none() {
        call.warn(call.kind.rules.delete_warning().map(str::to_owned).into_iter().collect());
    }
}

/// Reads the DeleteOptions from the body, or from the query if the body is empty.
fn options(call: &Call<'_>) -> Result<DeleteOptions, Status> {
    if call.body.is_empty() {
        return DeleteOptions::of(&call.request.query, None);
    }
    let expected = GroupVersionKind { group: "".into(), version: "v1".into(), kind: "DeleteOptions".into() };
    let received = decode::plain(&call.body, call.media()?, &expected, FieldValidation::Ignore)?;
    DeleteOptions::of(&call.request.query, Some(&received.object))
}

impl Outcome {
    fn at(self, revision: i64) -> Self {
        let stamp = |mut object: Value| {
            if let Some(mut meta) = MetaMut::of(&mut object) {
                meta.set_resource_version(revision.unsigned_abs());
            }
            object
        };
        match self {
            Self::Deleted(object) => Self::Deleted(stamp(object)),
            Self::Terminating(object) => Self::Terminating(stamp(object)),
        }
    }
}
