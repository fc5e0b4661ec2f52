//! POST to a collection.

use api::kind::Context;
use machinery::Value;
use machinery::meta::{Meta, MetaMut};
use machinery::status::{Reason, Status};
use registry::admission::{Attributes, Effect, Notes, Operation};
use registry::body::{self, resource_name};
use registry::conversion::to_stored;
use registry::options::{WriteKind, WriteOptions};
use registry::write;

use super::{Call, shown};
use crate::answer::{self, Answer};
use crate::state::{draw, now};
use crate::storage;

/// How often another name is made up when the one that was is taken.
const NAMES_MAX: usize = 8;
/// How often a write that costs something is tried: of those that are at it together one wins each time.
pub const CHARGES_MAX: usize = 256;

/// Creates the object in the body.
pub async fn serve(call: &Call<'_>) -> Result<Answer, Status> {
    let options = WriteOptions::of(&call.asked.query, WriteKind::Create)?;
    let received = body::object(&call.body, call.media()?, &call.kind, call.version(), options.field_validation)?;
    let (object, mut warnings) = create(call, &options, received.object).await?;
    let mut all = received.warnings;
    all.append(&mut warnings);
    let mut answer = shown::one(call, 201, object)?;
    answer::warn(&mut answer, &all);
    Ok(answer)
}

/// Creates an object that is in the version of the request. Gives it as it is stored, and warnings.
pub async fn create(call: &Call<'_>, options: &WriteOptions, object: Value) -> Result<(Value, Vec<String>), Status> {
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

async fn once(call: &Call<'_>, options: &WriteOptions, mut object: Value) -> Result<(Value, Vec<String>), Status> {
    let manager = options.manager(call.asked.user_agent());
    let target = call.target(&manager);
    write::address(&target, &mut object)?;
    object = write::own(&target, None, object, now());
    create_owned(call, options, object).await
}

/// Creates an object whose owners are settled.
pub async fn create_owned(
    call: &Call<'_>,
    options: &WriteOptions,
    mut object: Value,
) -> Result<(Value, Vec<String>), Status> {
    let kind = &*call.kind;
    let now = now();
    to_stored(&mut object, kind, call.version());
    let name = Meta::of(&object).name().to_owned();
    let draw = draw();
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
        suffix: &draw.suffix,
        uid: &draw.uid,
    };
    call.state.see_own_writes().await?;
    let mut notes = Notes::default();
    call.state.admission.admit(&attributes, &mut object, &*call.state, &mut notes)?;
    let requester = call.requester();
    let context = Context { version: call.version(), subresource: "", now, requester: &requester };
    let warnings = write::create(kind, &mut object, &draw, &context)?;
    let name = Meta::of(&object).name().to_owned();
    let attributes = Attributes { name: &name, ..attributes };
    call.state.admission.validate(&attributes, &object, &*call.state, &mut notes)?;
    let revision = charged(call, options, &attributes, &object).await?;
    if let Some(mut meta) = MetaMut::of(&mut object)
        && let Some(revision) = revision
    {
        meta.set_resource_version(revision.unsigned_abs());
    }
    notes.warnings.extend(warnings);
    Ok((object, notes.warnings))
}

/// Writes the object and what it costs, again and again while others are faster to change the latter.
async fn charged(
    call: &Call<'_>,
    options: &WriteOptions,
    attributes: &Attributes<'_>,
    object: &Value,
) -> Result<Option<i64>, Status> {
    for _ in 0..CHARGES_MAX {
        let effects = call.state.admission.charge(attributes, object, &*call.state)?;
        match store(call, options, object, attributes.name, &effects).await? {
            Stored::Done(revision) => return Ok(revision),
            Stored::Again => call.state.catch_up().await?,
        };
    }
    Err(Status::server_timeout(resource_name(&call.kind), "create", 1))
}

/// What became of an attempt to write.
enum Stored {
    /// It is written, at this revision; none if nothing shall be written.
    Done(Option<i64>),
    /// Something that would have changed along with it was changed by somebody else.
    Again,
}

/// Writes the object, unless there is one already or nothing shall be written.
async fn store(
    call: &Call<'_>,
    options: &WriteOptions,
    object: &Value,
    name: &str,
    effects: &[Effect],
) -> Result<Stored, Status> {
    let exists = || Status::already_exists(resource_name(&call.kind), name);
    if options.dry_run {
        return if call.current(name).await?.is_some() { Err(exists()) } else { Ok(Stored::Done(None)) };
    }
    let key = call.state.layout.key(&call.kind, call.namespace(), name);
    let txn = call.state.layout.along(storage::create(key, storage::encode(object), 0), effects);
    if let Some(revision) = call.state.submit(txn).await? {
        return Ok(Stored::Done(Some(revision)));
    }
    match call.current(name).await? {
        None if !effects.is_empty() => Ok(Stored::Again),
        Some(current) if Meta::of(&current.object).is_deleting() => {
            let mut status = exists();
            status.message = format!("object is being deleted: {}", status.message);
            Err(status)
        }
        _ => Err(exists()),
    }
}
