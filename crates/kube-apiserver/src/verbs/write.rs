//! The write pipeline: create, update, patch and apply store an object through [`Write::run`].
//!
//! ```text
//! make ─> convert to storage version ─> mutating admission ─┬─> allocate ─> prepare, validate ─> validating admission
//!  ^                                                        │     ─> charge quotas ─> normalize ─> transaction ─┐
//!  │                                                        └── a charge or an allocation conflicts ────────────┤
//!  └────────────────────────────── the object was changed concurrently ─────────────────────────────────────────┘
//! ```
//!
//! The steps that decide are pure functions of `api_registry::strategy`. Random values are drawn once per attempt.

use std::borrow::Cow;

use admission::webhooks::write_options;
use admission::{Attributes, Effect, Operation};
use api::core::service::allocation::Plan;
use api::kind::{Context, ReplicaPaths, SubresourceAction};
use api_registry::conversion::{in_request, to_stored};
use api_registry::decode::{DecodedObject, resource_name};
use api_registry::options::WriteOptions;
use api_registry::strategy::{self, GeneratedIds, Target};
use api_registry::{deletion, scale};
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::status::Status;
use apimachinery::time::Time;
use apimachinery::{Value, apply};

use super::{Call, Current};
use crate::ids::generate_ids;
use crate::transaction::{ObjectKey, Transaction};
use crate::{allocations, conversion, own_objects, storage_format};
use client::clock::now;

/// Maximum number of attempts of a write whose object changes concurrently.
const TRIES_MAX: usize = 32;
/// Maximum number of attempts to find a free name for `generateName`.
const NAMES_MAX: usize = 8;
/// Maximum number of attempts of a write whose side effects, such as quota charges, conflict with other writes: of
/// concurrent writes only one succeeds per round.
const CHARGES_MAX: usize = 256;

/// A write of the object in the URL.
pub(super) struct Write<'c> {
    pub call: &'c Call<'c>,
    pub options: &'c WriteOptions,
    /// Whether the client specified a resourceVersion: it then gets the conflict if the object changes concurrently.
    pub is_conditional: bool,
}

/// The result of an attempt.
enum Outcome {
    Stored(Value),
    /// An object of this name exists already.
    Exists(Status),
    /// The object was changed since it was read; this is its new state.
    Changed(Option<Current>),
}

/// An object ready to be stored, with its side effects.
struct Prepared {
    object: Value,
    claims: Plan,
    effects: Vec<Effect>,
    warnings: Vec<String>,
}

impl Write<'_> {
    /// Stores the object that `make` returns, and returns it as stored.
    ///
    /// `before` is the existing object, `None` to create one. `make` receives it in the request's version and returns the
    /// new object in the same version, with final managedFields. It runs again if the object was changed concurrently.
    pub(super) async fn run(
        &self,
        mut before: Option<Current>,
        make: impl Fn(Option<&Value>, Time) -> Result<DecodedObject, Status>,
    ) -> Result<Value, Status> {
        let call = self.call;
        if before.is_none() {
            // A PUT or apply that creates needs the permission to create.
            call.authorize("create")?;
        }
        let mut names = 0;
        for _ in 0..TRIES_MAX {
            let now = now();
            let live = before.as_ref().map(|current| in_request(&current.object, &call.kind, call.version()));
            let DecodedObject { object, warnings } = make(live.as_deref(), now)?;
            let generates_name = Meta::of(&object).name().is_empty();
            match self.attempt(object, before.as_ref(), now).await? {
                Outcome::Stored(object) => {
                    call.warn(warnings);
                    return Ok(object);
                }
                Outcome::Exists(status) => {
                    names += 1;
                    if !generates_name || names == NAMES_MAX {
                        return Err(status);
                    }
                }
                Outcome::Changed(_) if self.is_conditional => break,
                Outcome::Changed(fresh) => before = fresh,
            }
        }
        Err(strategy::modified(&call.kind, &call.resource.name))
    }

    /// Stores an object in the request's version.
    async fn attempt(&self, made: Value, before: Option<&Current>, now: Time) -> Result<Outcome, Status> {
        let (call, kind, mut object) = (self.call, &*self.call.kind, made);
        to_stored(&mut object, kind, call.version());
        let old = before.map(|current| &current.object);
        if let Some(old) = old {
            let key = call.state.storage.layout.key(kind, call.namespace(), &call.resource.name);
            strategy::check_preconditions(kind, &mut object, old, &String::from_utf8_lossy(&key))?;
        }
        let ids = generate_ids();
        // For a scale update admission sees the old and new Scale; the kind's rules see an update of the object.
        let old_scale = self.scale().zip(old).map(|(paths, old)| scale::of(old, paths));
        let name = Meta::of(&object).name().to_owned();
        let is_create = old.is_none();
        let options = write_options(if is_create { "CreateOptions" } else { "UpdateOptions" }, self.options);
        let attributes = Attributes {
            kind,
            version: call.version(),
            namespace: call.namespace(),
            name: if is_create { &name } else { &call.resource.name },
            subresource: &call.resource.subresource,
            operation: if is_create { Operation::Create } else { Operation::Update },
            user: &call.user,
            now,
            dry_run: self.options.dry_run,
            old: old_scale.as_ref().or(old),
            suffix: &ids.suffix,
            uid: &ids.uid,
            options: &options,
        };
        self.wait_for_caches(&attributes).await?;
        self.mutate(&attributes, &mut object).await?;
        self.store(object, before, &attributes, &ids).await
    }

    /// Waits until the caches that admission reads contain earlier writes of this server, and the namespace.
    async fn wait_for_caches(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let state = &self.call.state;
        state.storage.see_own_writes().await?;
        if attributes.operation != Operation::Create {
            return Ok(());
        }
        state.storage.see_namespace(attributes.namespace).await?;
        if let Some(namespace) = state.admission.provision(attributes) {
            own_objects::create_missing(&state.storage, namespace).await?;
            state.storage.catch_up().await?;
        }
        Ok(())
    }

    /// Runs mutating admission on the object, or on its Scale.
    async fn mutate(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        let call = self.call;
        let Some(paths) = self.scale() else {
            call.admit(attributes, object).await?;
            // Admission must not have changed name or namespace. The strategy of an update verifies that.
            return match attributes.operation {
                Operation::Create => strategy::address(&Target { name: "", ..call.target("") }, object),
                _ => Ok(()),
            };
        };
        let sent = scale::of(object, paths);
        let mut scaled = sent.clone();
        call.admit(attributes, &mut scaled).await?;
        if scaled != sent {
            scale::write(object, &scaled, paths);
        }
        Ok(())
    }

    /// Runs the steps after mutating admission, again while only a side effect conflicts with concurrent writes.
    async fn store(
        &self,
        mut object: Value,
        before: Option<&Current>,
        attributes: &Attributes<'_>,
        ids: &GeneratedIds,
    ) -> Result<Outcome, Status> {
        let call = self.call;
        // Without side effects the object is not needed a second time, which saves a copy.
        let tries = if self.has_side_effects(attributes) { CHARGES_MAX } else { 1 };
        for left in (0..tries).rev() {
            let draft = if left == 0 { std::mem::take(&mut object) } else { object.clone() };
            let prepared = self.prepare(draft, before, attributes, ids).await?;
            let name = Meta::of(&prepared.object).name().to_owned();
            if let Some(stored) = self.submit(prepared, before).await? {
                return Ok(Outcome::Stored(stored));
            }
            let fresh = call.current(&name).await?;
            let is_changed = fresh.as_ref().map(|fresh| fresh.revision) != before.map(|before| before.revision);
            match (before, fresh) {
                (None, Some(existing)) => return Ok(Outcome::Exists(self.already_exists(&existing.object))),
                (Some(_), None) => return Err(call.not_found(&name)),
                (_, fresh) if is_changed || tries == 1 => return Ok(Outcome::Changed(fresh)),
                _ => call.state.storage.catch_up().await?,
            };
        }
        Err(Status::server_timeout(resource_name(&call.kind), &attributes.operation.word().to_lowercase(), 1))
    }

    /// Whether the write can have side effects that conflict with other writes.
    fn has_side_effects(&self, attributes: &Attributes<'_>) -> bool {
        let Call { kind, state, .. } = self.call;
        kind.allocates.is_some() || state.admission.charges(attributes)
    }

    /// Allocates, prepares, validates and charges. The object is then final.
    async fn prepare(
        &self,
        mut object: Value,
        before: Option<&Current>,
        attributes: &Attributes<'_>,
        ids: &GeneratedIds,
    ) -> Result<Prepared, Status> {
        let (call, kind) = (self.call, &*self.call.kind);
        let old = before.map(|current| &current.object);
        let subresource = if self.scale().is_some() { "" } else { call.resource.subresource.as_str() };
        let claims = match subresource {
            "" => allocations::plan(
                &call.state.storage,
                kind,
                &mut object,
                old,
                allocations::random_source(self.options),
            )?,
            _ => Plan::default(),
        };
        let requester = call.requester();
        let context = Context { version: call.version(), subresource, now: attributes.now, requester: &requester };
        let warnings = match old {
            None => strategy::create(kind, &mut object, ids, &context)?,
            Some(old) => strategy::update(kind, &mut object, old, &context)?,
        };
        let reviewed = self.scale().map_or(Cow::Borrowed(&object), |paths| Cow::Owned(scale::of(&object, paths)));
        let attributes = Attributes { name: Meta::of(&object).name(), ..*attributes };
        call.validate(&attributes, &reviewed).await?;
        let effects = call.state.admission.charge(&attributes, &reviewed)?;
        drop(reviewed);
        strategy::normalize(kind, &mut object);
        Ok(Prepared { object, claims, effects, warnings })
    }

    /// Writes the object, or removes it if its last finalizer was removed. Returns `None` on a conflict.
    async fn submit(&self, prepared: Prepared, before: Option<&Current>) -> Result<Option<Value>, Status> {
        let Prepared { mut object, claims, effects, warnings } = prepared;
        let (call, kind, state) = (self.call, &*self.call.kind, &*self.call.state);
        let name = Meta::of(&object).name().to_owned();
        let key = ObjectKey::new(&state.storage, kind, call.namespace(), &name);
        let transaction = match before {
            None if self.options.dry_run && call.current(&name).await?.is_some() => return Ok(None),
            None => {
                let stored = conversion::to_storage_version(&state.storage, kind, &object).await?;
                key.create(&stored).with_allocations(&claims, &object)
            }
            Some(current) => {
                // A change of only managedFields timestamps is not a change.
                apply::keep_times(&current.object, &mut object);
                match self.replacement(key, current, &object, &claims).await? {
                    Some(transaction) => transaction,
                    None => return Ok(Some(self.accepted(object, warnings, None).await)),
                }
            }
        };
        if self.options.dry_run {
            return Ok(Some(self.accepted(object, warnings, None).await));
        }
        let Some(revision) = transaction.with_effects(&effects).submit().await? else { return Ok(None) };
        Ok(Some(self.accepted(object, warnings, Some(revision)).await))
    }

    /// Returns the transaction that replaces or removes an object, or `None` if nothing changes.
    async fn replacement<'k>(
        &self,
        key: ObjectKey<'k>,
        current: &Current,
        object: &Value,
        claims: &Plan,
    ) -> Result<Option<Transaction<'k>>, Status> {
        if deletion::ends(&self.call.kind, object, &current.object) {
            return Ok(Some(key.remove(&current.object, current.revision)));
        }
        let bytes = storage_format::encode(object);
        if !current.stale && current.is(&bytes) {
            return Ok(None);
        }
        let value = match conversion::to_storage_version(&self.call.state.storage, &self.call.kind, object).await? {
            Cow::Borrowed(_) => bytes,
            Cow::Owned(stored) => storage_format::encode(&stored),
        };
        Ok(Some(key.replace_with(value, current.revision).with_allocations(claims, object)))
    }

    /// Returns the object for the response. `revision` is that of the write, if anything was written.
    async fn accepted(&self, mut object: Value, warnings: Vec<String>, revision: Option<i64>) -> Value {
        let call = self.call;
        call.warn(warnings);
        conversion::echoed(&mut object, &call.kind, call.version());
        if let Some(revision) = revision {
            call.state.storage.followers.follow_up(&call.kind, revision).await;
            if let Some(mut meta) = MetaMut::of(&mut object) {
                meta.set_resource_version(revision.unsigned_abs());
            }
        }
        object
    }

    /// Returns the replica paths if the request writes the scale subresource.
    fn scale(&self) -> Option<&ReplicaPaths> {
        let Call { kind, resource, .. } = self.call;
        match &kind.subresource(&resource.version, &resource.subresource)?.does {
            SubresourceAction::Scale(paths) => Some(paths),
            _ => None,
        }
    }

    fn already_exists(&self, existing: &Value) -> Status {
        let meta = Meta::of(existing);
        let mut status = Status::already_exists(resource_name(&self.call.kind), meta.name());
        if meta.is_deleting() {
            status.message = format!("object is being deleted: {}", status.message);
        }
        status
    }
}
