//! Admission of writes: in-process plugins and admission webhooks.
//!
//! ```text
//! mutating: plugins ─> webhooks sequentially ─(changed by a policy or a webhook?)─> plugins again (policies only with
//!           reinvocationPolicy IfNeeded) ─> webhooks with reinvocationPolicy IfNeeded
//! validating: plugins ─> all webhooks concurrently
//! ```
//!
//! `admission::webhooks` selects the webhooks, builds the reviews and interprets the responses; this module sends the
//! requests.

mod credentials;
mod images;
mod view;

use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use admission::reinvocation::Reinvocation;
use admission::webhooks::{AdmissionResponse, Failure, Hook, Phase, Review, is_exempt};
use admission::{Attributes, Chain, Effect, Flags, Link, Notes, Operation, VersionedKind};
use api_registry::conversion::to_stored;
use api_registry::decode;
use apimachinery::Value;
use apimachinery::field_validation::FieldValidation;
use apimachinery::patch::json::Patch;
use apimachinery::status::Status;
use bytes::Bytes;
use futures_util::future::join_all;
use mvcc::Revision;

use crate::authorization::Authorization;
use crate::backend::Destination;
use crate::ids::generate_ids;
use crate::metrics::{HookCall, Metrics, Turn};
use crate::response;
use crate::storage::Storage;
use crate::{conversion, remote};

pub use credentials::{Credentials, CredentialsError};
pub use images::{Images, ImagesError};

const GROUP: &str = "admissionregistration.k8s.io";

/// Admission of a server: the plugins in order, the webhooks, and what they read.
pub struct Admission {
    pub chain: Chain,
    pub webhooks: Webhooks,
    pub storage: Arc<Storage>,
    pub authorization: Arc<Authorization>,
    pub metrics: Arc<Metrics>,
}

/// The configured admission webhooks.
pub struct Webhooks {
    mutating: CachedWebhooks,
    validating: CachedWebhooks,
    images: Option<Images>,
}

/// The webhooks of one configuration kind, parsed again when one of its objects changes.
struct CachedWebhooks {
    /// Whether the admission plugin that calls them is enabled.
    on: bool,
    plural: &'static str,
    credentials: Credentials,
    read: RwLock<Option<(Revision, Arc<Vec<Callable>>)>>,
}

/// Reasons why the webhook plugins are misconfigured.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error(transparent)]
    Images(#[from] ImagesError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

/// A webhook and its destination.
struct Callable {
    hook: Hook,
    to: Result<Destination, String>,
}

impl Admission {
    /// Returns a namespace to create before the write, if NamespaceAutoProvision is enabled.
    pub fn provision(&self, attributes: &Attributes<'_>) -> Option<Value> {
        self.chain.provision(attributes, self)
    }

    /// Whether [`Self::charge`] can return side effects, which then can conflict with concurrent writes.
    pub fn charges(&self, attributes: &Attributes<'_>) -> bool {
        self.chain.charges(attributes, self)
    }

    /// Returns the side effects to write in the same transaction.
    pub fn charge(&self, attributes: &Attributes<'_>, object: &Value) -> Result<Vec<Effect>, Status> {
        self.chain.charge(attributes, object, self)
    }
}

impl Webhooks {
    /// Creates the webhook clients of the enabled plugins.
    pub fn of(chain: &Chain, flags: &Flags) -> Result<Self, ConfigError> {
        const IMAGES: &str = "ImagePolicyWebhook";
        let images = chain.has(IMAGES).then(|| Images::of(flags.config.get(IMAGES))).transpose()?;
        let configured = |plugin: &str, plural| -> Result<CachedWebhooks, CredentialsError> {
            let credentials = Credentials::of(flags.config.get(plugin))?;
            Ok(CachedWebhooks { on: chain.has(plugin), plural, credentials, read: RwLock::default() })
        };
        Ok(Self {
            images,
            mutating: configured("MutatingAdmissionWebhook", "mutatingwebhookconfigurations")?,
            validating: configured("ValidatingAdmissionWebhook", "validatingwebhookconfigurations")?,
        })
    }
}

impl CachedWebhooks {
    /// Returns all webhooks, in the order of their configurations' names.
    fn hooks(&self, storage: &Storage, attributes: &Attributes<'_>) -> Arc<Vec<Callable>> {
        let table = storage.table();
        let kind = table.kind(GROUP, self.plural).filter(|_| self.on && !is_exempt(attributes));
        let Some(kind) = kind else { return Arc::default() };
        let kind_cache = storage.cache.kind_cache(kind);
        let revision = kind_cache.revision();
        if let Some((read, hooks)) = &*self.read.read().expect("no holder panics")
            && *read == revision
        {
            return hooks.clone();
        }
        let (entries, revision) = kind_cache.snapshot("", |_| true);
        let hooks = entries.iter().flat_map(|entry| Hook::all(&entry.object()));
        let callable = |hook: Hook| Callable { to: self.destination(&hook), hook };
        let hooks = Arc::new(hooks.map(callable).collect::<Vec<_>>());
        *self.read.write().expect("no holder panics") = Some((revision, hooks.clone()));
        hooks
    }

    fn destination(&self, hook: &Hook) -> Result<Destination, String> {
        let mut to = Destination::of(hook.client_config()).map_err(|wrong| wrong.to_string())?;
        self.credentials.show(&mut to)?;
        Ok(to)
    }
}

/// Runs mutating plugins and webhooks. The first rejection fails the request.
pub async fn admit(
    admission: &Admission,
    attributes: &Attributes<'_>,
    object: &mut Value,
    notes: &mut Notes,
) -> Result<(), Status> {
    let (mut policies, mut again) = (Reinvocation::default(), Reinvocation::default());
    plug_in(admission, attributes, object, notes, &mut policies)?;
    let hooks = admission.webhooks.mutating.hooks(&admission.storage, attributes);
    mutate(admission, &hooks, attributes, object, notes, &mut again).await?;
    if !policies.has_changed() && !again.has_changed() {
        return Ok(());
    }
    policies.start_second_round();
    plug_in(admission, attributes, object, notes, &mut policies)?;
    again.start_second_round();
    mutate(admission, &hooks, attributes, object, notes, &mut again).await?;
    // Warnings of plugins that ran twice are deduplicated.
    let mut seen_warnings = std::collections::BTreeSet::new();
    notes.warnings.retain(|warning| seen_warnings.insert(warning.clone()));
    Ok(())
}

/// Runs validating plugins and webhooks.
pub async fn validate(
    admission: &Admission,
    attributes: &Attributes<'_>,
    object: &Value,
    notes: &mut Notes,
) -> Result<(), Status> {
    let mut stopwatch = Stopwatch::start(admission, attributes.operation, true);
    for Link { name, plugin } in admission.chain.plugins() {
        stopwatch.lap(*name, plugin.validate(attributes, object, admission, notes))?;
    }
    if let Some(images) = &admission.webhooks.images {
        images.validate(attributes, object, notes).await?;
    }
    let hooks = admission.webhooks.validating.hooks(&admission.storage, attributes);
    call_validating_hooks(admission, &hooks, attributes, object, notes).await
}

/// Runs all mutating plugins. The first rejection fails the request.
fn plug_in(
    admission: &Admission,
    attributes: &Attributes<'_>,
    object: &mut Value,
    notes: &mut Notes,
    round: &mut Reinvocation,
) -> Result<(), Status> {
    let mut stopwatch = Stopwatch::start(admission, attributes.operation, false);
    for Link { name, plugin } in admission.chain.plugins() {
        stopwatch.lap(*name, plugin.admit_round(attributes, object, admission, notes, round))?;
    }
    Ok(())
}

/// Measures consecutive plugins with one clock read per plugin.
struct Stopwatch<'a> {
    metrics: &'a Metrics,
    operation: Operation,
    validates: bool,
    at: usize,
    last: Instant,
}

impl<'a> Stopwatch<'a> {
    fn start(admission: &'a Admission, operation: Operation, validates: bool) -> Self {
        Self { metrics: &admission.metrics, operation, validates, at: 0, last: Instant::now() }
    }

    /// Records the result of a plugin. Plugins without a name, which no flag disables, are not measured.
    fn lap(&mut self, name: Option<&str>, outcome: Result<(), Status>) -> Result<(), Status> {
        let now = Instant::now();
        let took = now.duration_since(std::mem::replace(&mut self.last, now));
        if let Some(name) = name {
            let Self { operation, validates, .. } = *self;
            let turn = Turn { name, operation, validates, is_rejected: outcome.is_err() };
            self.metrics.admission.plugged(self.at, &turn, took);
            self.at += 1;
        }
        outcome
    }
}

/// Calls the mutating webhooks sequentially; each sees the result of the previous one.
async fn mutate(
    admission: &Admission,
    hooks: &[Callable],
    attributes: &Attributes<'_>,
    object: &mut Value,
    notes: &mut Notes,
    again: &mut Reinvocation,
) -> Result<(), Status> {
    if hooks.is_empty() {
        return Ok(());
    }
    again.resume(object);
    for (at, callable) in hooks.iter().enumerate() {
        let hook = &callable.hook;
        let Some((seen, review)) = concerned(admission, hook, attributes, object).await? else { continue };
        if !again.wants(hook.id()) {
            continue;
        }
        let position = (usize::from(again.is_second()), at);
        let began = Instant::now();
        let result = match callable.call(admission, Phase::Mutating, attributes, &review, notes).await {
            Ok(None) => Ok(None),
            Ok(Some(patch)) => hook.patched(&review.object, patch).map(Some),
            Err(failure) => Err(failure),
        };
        called(admission, hook, "admit", attributes, result.as_ref().err(), began);
        let changed = match result {
            Ok(None) => false,
            Ok(Some(patched)) => {
                let fit = fit(attributes, patched, seen)?;
                let changed = fit != review.object;
                *object = taken_back(admission, attributes, fit, seen).await?;
                changed
            }
            Err(failure) => {
                hook.apply_failure_policy(failure, Phase::Mutating, position, notes)?;
                false
            }
        };
        hook.note_mutation(position, changed, notes);
        again.record_call(hook.id(), hook.again(), changed);
    }
    again.finish(object);
    Ok(())
}

/// Calls the validating webhooks concurrently. Of several rejections the first in configuration order is returned.
async fn call_validating_hooks(
    admission: &Admission,
    hooks: &[Callable],
    attributes: &Attributes<'_>,
    object: &Value,
    notes: &mut Notes,
) -> Result<(), Status> {
    let mut calls = Vec::new();
    for (at, callable) in hooks.iter().enumerate() {
        if let Some((_, review)) = concerned(admission, &callable.hook, attributes, object).await? {
            calls.push((at, callable, review));
        }
    }
    let results = calls.iter().map(async |(at, callable, review)| {
        let mut notes = Notes::default();
        let began = Instant::now();
        let calls = callable.call(admission, Phase::Validating, attributes, review, &mut notes).await;
        called(admission, &callable.hook, "validating", attributes, calls.as_ref().err(), began);
        let outcome = calls
            .map(drop)
            .or_else(|failure| callable.hook.apply_failure_policy(failure, Phase::Validating, (0, *at), &mut notes));
        (notes, outcome)
    });
    let results = join_all(results).await;
    let mut verdict = Ok(());
    for (call_notes, outcome) in results {
        notes.warnings.extend(call_notes.warnings);
        notes.audit.extend(call_notes.audit);
        verdict = verdict.and(outcome);
    }
    verdict
}

/// Records a call and its result in upstream's metrics.
fn called(
    admission: &Admission,
    hook: &Hook,
    phase: &'static str,
    attributes: &Attributes<'_>,
    failure: Option<&Failure>,
    began: Instant,
) {
    /// The code that upstream records for a failed call.
    const UNAVAILABLE: u16 = 503;
    let failed_open = matches!(failure, Some(Failure::Call(_))) && hook.fails_open();
    let (code, rejection) = match failure {
        None => (200, None),
        Some(Failure::Call(_)) if failed_open => (UNAVAILABLE, None),
        Some(Failure::Call(_)) => (UNAVAILABLE, Some("calling_webhook_error")),
        Some(Failure::InvalidPatch(_)) => (0, Some("apiserver_internal_error")),
        Some(Failure::Rejected(status)) => (status.code, Some("no_error")),
    };
    let operation = attributes.operation.word();
    let took = began.elapsed();
    let call = HookCall { name: &hook.name, phase, operation, code, rejection, failed_open, took };
    admission.metrics.admission.called(&call);
}

/// Returns the review to send to a webhook, or `None` if the webhook does not match the request.
async fn concerned<'a>(
    admission: &Admission,
    hook: &Hook,
    attributes: &Attributes<'a>,
    object: &Value,
) -> Result<Option<(VersionedKind<'a>, Review)>, Status> {
    let Some(seen) = hook.selects(attributes, object, admission)? else { return Ok(None) };
    let old = match attributes.old {
        Some(old) => convert_object(admission, attributes, old, seen).await?,
        None => Value::Null,
    };
    let converted = convert_object(admission, attributes, object, seen).await?;
    let review = Review::of(attributes, seen, &generate_ids().uid, converted, old);
    Ok(hook.conditions_hold(attributes, &review, admission)?.then_some((seen, review)))
}

/// Converts an object to the version that a webhook matches.
async fn convert_object(
    admission: &Admission,
    attributes: &Attributes<'_>,
    object: &Value,
    seen: VersionedKind<'_>,
) -> Result<Value, Status> {
    if object.is_null() || attributes.subresource_kind().is_some() {
        return Ok(object.clone());
    }
    conversion::served(&admission.storage, seen.kind, seen.version, object.clone()).await
}

/// Decodes a patched object as its kind does: unknown fields are dropped, defaults applied.
fn fit(attributes: &Attributes<'_>, patched: Value, seen: VersionedKind<'_>) -> Result<Value, Status> {
    let fit = match attributes.subresource_kind() {
        Some(gvk) => decode::plain_again(patched, gvk),
        None => decode::again(patched, seen.kind, seen.version, FieldValidation::Ignore),
    };
    fit.map(|received| received.object).map_err(|status| Status::internal_error(status.message))
}

/// Converts a changed object back to the storage version, or to the request's version for a custom resource.
async fn taken_back(
    admission: &Admission,
    attributes: &Attributes<'_>,
    mut object: Value,
    seen: VersionedKind<'_>,
) -> Result<Value, Status> {
    if attributes.subresource_kind().is_some() {
        return Ok(object);
    }
    if attributes.kind.is_custom() {
        return conversion::served(&admission.storage, attributes.kind, attributes.version, object).await;
    }
    to_stored(&mut object, seen.kind, seen.version);
    Ok(object)
}

impl Callable {
    /// Sends a review and returns the patch in the response.
    async fn call(
        &self,
        admission: &Admission,
        phase: Phase,
        attributes: &Attributes<'_>,
        review: &Review,
        notes: &mut Notes,
    ) -> Result<Option<Patch>, Failure> {
        let version = self.hook.review_version(attributes)?;
        let to = self.to.as_ref();
        let to = to.map_err(|wrong| Failure::Call(format!("could not get REST client: {wrong}")))?;
        let seconds = self.hook.timeout_seconds();
        let body = Bytes::from(response::as_json(&review.to_value(version)));
        let query = format!("timeout={seconds}s");
        let sent =
            admission.storage.backends.post(&*admission.storage, to, &query, body, Duration::from_secs(seconds)).await;
        let reply = sent
            .map_err(|error| error.to_string())
            .and_then(|(code, body)| remote::read(code.as_u16(), &body))
            .map_err(|message| Failure::Call(format!("failed to call webhook: {message}")))?;
        AdmissionResponse::read(phase, version, review, &reply)?.take(&self.hook, notes)
    }
}
