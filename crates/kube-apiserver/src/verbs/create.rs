//! Create: POST to a collection.

use admission::webhooks::write_options;
use admission::{Attributes, Effect, Operation};
use api::core::service::allocation::Plan;
use api::kind::Context;
use api_registry::conversion::to_stored;
use api_registry::decode::{self, resource_name};
use api_registry::options::{WriteKind, WriteOptions};
use api_registry::strategy::{self, GeneratedIds, Target};
use apimachinery::Value;
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::status::{Reason, Status};

use super::{Call, render};
use crate::response::HttpResponse;
use crate::state::{generate_ids, now};
use crate::{allocations, bootstrap, conversion, storage};

/// Maximum number of attempts to find a free name for `generateName`.
const NAMES_MAX: usize = 8;
/// Maximum number of attempts of a write with side effects such as quota charges: of concurrent writes only one
/// succeeds per round.
pub(super) const CHARGES_MAX: usize = 256;

/// Creates the object in the body.
pub(super) async fn serve(call: &Call<'_>) -> Result<HttpResponse, Status> {
    let options = WriteOptions::of(&call.request.query, WriteKind::Create)?;
    let received = decode::object(&call.body, call.media()?, &call.kind, call.version(), options.field_validation)?;
    call.warn(received.warnings);
    let object = create(call, &options, received.object).await?;
    render::one(call, 201, object)
}

/// Creates an object that is in the request's version. Returns the stored object.
pub(super) async fn create(call: &Call<'_>, options: &WriteOptions, object: Value) -> Result<Value, Status> {
    let made_up = Meta::of(&object).name().is_empty() && !Meta::of(&object).generate_name().is_empty();
    let mut tries = 0;
    loop {
        tries += 1;
        match once(call, options, object.clone()).await {
            Err(status) if made_up && tries < NAMES_MAX && status.is(&Reason::AlreadyExists) => {}
            other => return other,
        }
    }
}

async fn once(call: &Call<'_>, options: &WriteOptions, mut object: Value) -> Result<Value, Status> {
    let manager = options.manager(call.request.user_agent());
    let target = call.target(&manager);
    strategy::address(&target, &mut object)?;
    object = strategy::own(&target, None, object, now());
    create_owned(call, options, object).await
}

/// Creates an object whose managedFields are final. All creations by clients pass through here, so this is where a PUT
/// or apply that creates is authorized for `create`.
pub(super) async fn create_owned(call: &Call<'_>, options: &WriteOptions, mut object: Value) -> Result<Value, Status> {
    call.authorize("create")?;
    let kind = &*call.kind;
    let now = now();
    to_stored(&mut object, kind, call.version());
    let name = Meta::of(&object).name().to_owned();
    let ids = generate_ids();
    let admission_options = write_options("CreateOptions", options);
    let attributes = Attributes {
        kind,
        version: call.version(),
        namespace: call.namespace(),
        name: &name,
        subresource: "",
        operation: Operation::Create,
        user: &call.user,
        now,
        dry_run: options.dry_run,
        old: None,
        suffix: &ids.suffix,
        uid: &ids.uid,
        options: &admission_options,
    };
    call.state.see_own_writes().await?;
    call.state.see_namespace(call.namespace()).await?;
    if let Some(namespace) = call.state.admission.provision(&attributes, &*call.state) {
        bootstrap::make(&call.state, namespace).await?;
        call.state.catch_up().await?;
    }
    call.admit(&attributes, &mut object).await?;
    // Mutating admission must not have changed name or namespace.
    strategy::address(&Target { name: "", ..call.target("") }, &mut object)?;
    // A concurrent write may change the same quota or allocation; then everything is planned again.
    for _ in 0..CHARGES_MAX {
        if let Some(created) = finish(call, options, object.clone(), &attributes, &ids).await? {
            return Ok(created);
        }
        call.state.catch_up().await?;
    }
    Err(Status::server_timeout(resource_name(&call.kind), "create", 1))
}

/// Runs the steps after mutating admission. Returns `None` if a side effect conflicts with a concurrent write.
async fn finish(
    call: &Call<'_>,
    options: &WriteOptions,
    mut object: Value,
    attributes: &Attributes<'_>,
    ids: &GeneratedIds,
) -> Result<Option<Value>, Status> {
    let kind = &*call.kind;
    let claims = allocations::plan(&call.state, kind, &mut object, None, allocations::random_source(options))?;
    let requester = call.requester();
    let context = Context { version: call.version(), subresource: "", now: attributes.now, requester: &requester };
    let warnings = strategy::create(kind, &mut object, ids, &context)?;
    let name = Meta::of(&object).name().to_owned();
    let attributes = Attributes { name: &name, ..*attributes };
    call.validate(&attributes, &object).await?;
    let effects = call.state.admission.charge(&attributes, &object, &*call.state)?;
    strategy::normalize(kind, &mut object);
    let Some(revision) = store(call, options, &object, &claims, &effects).await? else { return Ok(None) };
    conversion::echoed(&mut object, kind, call.version());
    call.state.followers.follow_up(kind, revision).await;
    if let (Some(mut meta), false) = (MetaMut::of(&mut object), options.dry_run) {
        meta.set_resource_version(revision.unsigned_abs());
    }
    call.warn(warnings);
    Ok(Some(object))
}

/// Stores the object, except for a dry run. Fails if the object exists. Returns `None` if a side effect conflicts with
/// a concurrent write.
async fn store(
    call: &Call<'_>,
    options: &WriteOptions,
    object: &Value,
    claims: &Plan,
    effects: &[Effect],
) -> Result<Option<i64>, Status> {
    let name = Meta::of(object).name();
    let exists = || Status::already_exists(resource_name(&call.kind), name);
    if options.dry_run {
        return if call.current(name).await?.is_some() { Err(exists()) } else { Ok(Some(0)) };
    }
    let key = call.state.layout.key(&call.kind, call.namespace(), name);
    let stored = conversion::to_storage_version(&call.state, &call.kind, object).await?;
    let mut txn = call.state.layout.along(storage::create(key, storage::encode(&stored)), effects);
    txn = call.state.lease(&call.kind, txn).await?;
    allocations::join(&call.state, &mut txn, claims, object);
    if let Some(revision) = call.state.submit(txn).await? {
        return Ok(Some(revision));
    }
    let Some(current) = call.current(name).await? else { return Ok(None) };
    let mut status = exists();
    if Meta::of(&current.object).is_deleting() {
        status.message = format!("object is being deleted: {}", status.message);
    }
    Err(status)
}
