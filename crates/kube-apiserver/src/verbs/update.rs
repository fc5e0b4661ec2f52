//! Update: PUT of an object, and the read-modify-write loop that PUT and PATCH share.

use std::borrow::Cow;

use admission::webhooks::write_options;
use admission::{Attributes, Effect, Operation};
use api::core::service::allocation::Plan;
use api::kind::{Context, ReplicaPaths, SubresourceAction};
use api_registry::conversion::{in_request, to_stored};
use api_registry::decode::{self, DecodedObject};
use api_registry::options::{WriteKind, WriteOptions};
use api_registry::{deletion, scale, strategy};
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::status::Status;
use apimachinery::time::Time;
use apimachinery::{Value, apply};

use super::{Call, Current, create, render};
use crate::response::HttpResponse;
use crate::state::{generate_ids, now};
use crate::{allocations, conversion, storage};

/// Maximum number of attempts of a write without a resourceVersion after conflicts.
const TRIES_MAX: usize = 32;

/// Replaces the object in the URL.
pub(super) async fn serve(call: &Call<'_>) -> Result<HttpResponse, Status> {
    let options = WriteOptions::of(&call.request.query, WriteKind::Update)?;
    let received = decode::object(&call.body, call.media()?, &call.kind, call.version(), options.field_validation)?;
    let manager = options.manager(call.request.user_agent());
    call.warn(received.warnings);
    let mut sent = received.object;
    strategy::address(&call.target(&manager), &mut sent)?;
    let Some(current) = call.current(&call.resource.name).await? else {
        if call.kind.create_on_update && call.resource.subresource.is_empty() {
            let object = create::create(call, &options, sent).await?;
            return render::one(call, 201, object);
        }
        return Err(call.not_found(&call.resource.name));
    };
    let named = !matches!(Meta::of(&sent).resource_version(), "" | "0");
    let object = retry(call, &options, current, named, |live, now| {
        let owned = strategy::own(&call.target(&manager), Some(live), sent.clone(), now);
        Ok(DecodedObject { object: owned, warnings: Vec::new() })
    })
    .await?;
    render::one(call, 200, object)
}

/// Makes a new object from the live one and writes it. Retries on conflicts, except if `once` is set: a client that
/// specifies a resourceVersion gets the conflict.
///
/// `make` receives the live object in the request's version and returns the new one in the same version.
pub(super) async fn retry(
    call: &Call<'_>,
    options: &WriteOptions,
    mut current: Current,
    once: bool,
    make: impl Fn(&Value, Time) -> Result<DecodedObject, Status>,
) -> Result<Value, Status> {
    for attempt in 1.. {
        let now = now();
        let live = in_request(&current.object, &call.kind, call.version());
        let made = make(&live, now)?;
        call.state.see_own_writes().await?;
        let PreparedUpdate { object, claims, effects, mut warnings } =
            prepare(call, options, made.object, &current, now).await?;
        if let Some(object) = submit(call, options, object, &current, (&claims, &effects)).await? {
            let mut all = made.warnings;
            all.append(&mut warnings);
            call.warn(all);
            return Ok(object);
        }
        let name = &call.resource.name;
        let fresh = call.current(name).await?.ok_or_else(|| call.not_found(name))?;
        if (once && fresh.revision != current.revision) || attempt == TRIES_MAX {
            break;
        }
        if !effects.is_empty() || !claims.claims.is_empty() {
            call.state.catch_up().await?;
        }
        current = fresh;
    }
    Err(strategy::modified(&call.kind, &call.resource.name))
}

/// An object ready to be written, and its side effects.
struct PreparedUpdate {
    object: Value,
    claims: Plan,
    effects: Vec<Effect>,
    warnings: Vec<String>,
}

/// Runs admission, validation and the kind's strategy on the new object.
async fn prepare(
    call: &Call<'_>,
    options: &WriteOptions,
    mut object: Value,
    current: &Current,
    now: Time,
) -> Result<PreparedUpdate, Status> {
    let kind = &*call.kind;
    to_stored(&mut object, kind, call.version());
    let old = &current.object;
    let key = call.state.layout.key(kind, call.namespace(), &call.resource.name);
    strategy::check_preconditions(kind, &mut object, old, &String::from_utf8_lossy(&key))?;
    let ids = generate_ids();
    // For a scale update admission sees the old and new Scale; the kind's rules see an update of the object.
    let scale = scale_of(call);
    let old_scale = scale.map(|paths| scale::of(old, paths));
    let admission_options = write_options("UpdateOptions", options);
    let attributes = Attributes {
        kind,
        version: call.version(),
        namespace: call.namespace(),
        name: &call.resource.name,
        subresource: &call.resource.subresource,
        operation: Operation::Update,
        user: &call.user,
        now,
        dry_run: options.dry_run,
        old: Some(old_scale.as_ref().unwrap_or(old)),
        suffix: &ids.suffix,
        uid: &ids.uid,
        options: &admission_options,
    };
    admit(call, &attributes, scale, &mut object).await?;
    let subresource = call.rules_subresource();
    let claims = match subresource {
        "" => allocations::plan(&call.state, kind, &mut object, Some(old), allocations::random_source(options))?,
        _ => Plan::default(),
    };
    let requester = call.requester();
    let context = Context { version: call.version(), subresource, now, requester: &requester };
    let warnings = strategy::update(kind, &mut object, old, &context)?;
    let reviewed = admission_object(&object, scale);
    call.validate(&attributes, &reviewed).await?;
    let effects = call.state.admission.charge(&attributes, &reviewed, &*call.state)?;
    strategy::normalize(kind, &mut object);
    Ok(PreparedUpdate { object, claims, effects, warnings })
}

/// Runs mutating admission on the object, or on its Scale.
async fn admit(
    call: &Call<'_>,
    attributes: &Attributes<'_>,
    scale: Option<&ReplicaPaths>,
    object: &mut Value,
) -> Result<(), Status> {
    let Some(paths) = scale else { return call.admit(attributes, object).await };
    let sent = scale::of(object, paths);
    let mut scaled = sent.clone();
    call.admit(attributes, &mut scaled).await?;
    if scaled != sent {
        scale::write(object, &scaled, paths);
    }
    Ok(())
}

/// Returns the object as admission sees it: itself, or its Scale.
fn admission_object<'o>(object: &'o Value, scale: Option<&ReplicaPaths>) -> Cow<'o, Value> {
    scale.map_or(Cow::Borrowed(object), |paths| Cow::Owned(scale::of(object, paths)))
}

/// Returns the replica paths if the request writes the scale subresource.
fn scale_of<'c>(call: &'c Call<'_>) -> Option<&'c ReplicaPaths> {
    match call.kind.subresource(&call.resource.version, &call.resource.subresource).map(|subresource| &subresource.does)
    {
        Some(SubresourceAction::Scale(paths)) => Some(paths),
        _ => None,
    }
}

/// Writes the object over the one that was read, or removes it if its last finalizer was removed. Returns `None` on a
/// conflict.
async fn submit(
    call: &Call<'_>,
    options: &WriteOptions,
    mut object: Value,
    current: &Current,
    (claims, effects): (&Plan, &[Effect]),
) -> Result<Option<Value>, Status> {
    // A change of only managedFields timestamps is not a change.
    apply::keep_times(&current.object, &mut object);
    let ends = deletion::ends(&call.kind, &object, &current.object);
    let bytes = storage::encode(&object);
    if options.dry_run || (!ends && !current.stale && current.is(&bytes)) {
        return Ok(Some(object));
    }
    let key = call.state.layout.key(&call.kind, call.namespace(), &call.resource.name);
    let mut txn = if ends {
        storage::remove(key, current.revision)
    } else {
        let value = match conversion::to_storage_version(&call.state, &call.kind, &object).await? {
            Cow::Borrowed(_) => bytes,
            Cow::Owned(stored) => storage::encode(&stored),
        };
        storage::replace(key, value, current.revision)
    };
    txn = call.state.lease(&call.kind, call.state.layout.along(txn, effects)).await?;
    let releases = allocations::releases(&call.kind, &current.object);
    allocations::join(&call.state, &mut txn, if ends { &releases } else { claims }, &object);
    let Some(revision) = call.state.submit(txn).await? else { return Ok(None) };
    conversion::echoed(&mut object, &call.kind, call.version());
    call.state.followers.follow_up(&call.kind, revision).await;
    if let Some(mut meta) = MetaMut::of(&mut object) {
        meta.set_resource_version(revision.unsigned_abs());
    }
    Ok(Some(object))
}
