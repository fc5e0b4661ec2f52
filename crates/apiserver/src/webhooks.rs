//! Admission as a write meets it: plug-ins of this process, and webhooks that are asked over the network.
//!
//! ```text
//! mutating: plug-ins ─> webhooks one after another ─(changed?)─> plug-ins ─> webhooks that want to see it again
//! validating: plug-ins ─> all webhooks at once
//! ```
//!
//! Who is asked, what they are sent and what answers mean is decided in `registry::admission::webhooks`; here it is
//! carried there and back.

mod counters;
mod credentials;
mod images;

use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use api::kind::ReplicaPaths;
use bytes::Bytes;
use futures_util::future::join_all;
use machinery::field_validation::FieldValidation;
use machinery::patch::json::Patch;
use machinery::status::{GroupName, Status};
use machinery::{Value, json};
use mvcc::Revision;
use registry::admission::webhooks::{Answer, Failure, Hook, Phase, Reinvocation, Request, Review};
use registry::admission::{Attributes, Chain, Flags, Notes, Seen};
use registry::body::{self, Media};
use registry::conversion::to_stored;
use registry::scale;

use crate::backend::Destination;
use crate::conversion;
use crate::state::{State, draw};

pub use counters::Counters;
pub use credentials::{Credentials, CredentialsError};
pub use images::{Images, ImagesError};

const GROUP: &str = "admissionregistration.k8s.io";

/// The webhooks that are configured now.
pub struct Webhooks {
    mutating: Configured,
    validating: Configured,
    images: Option<Images>,
    /// How often they were asked and what came of it.
    pub counters: Counters,
}

/// The webhooks of one kind of configuration, read again when one of them changed.
struct Configured {
    /// Whether the plug-in that asks them is on.
    on: bool,
    plural: &'static str,
    credentials: Credentials,
    read: RwLock<Option<(Revision, Arc<Vec<Callable>>)>>,
}

/// Why webhooks cannot be asked as configured.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Nobody can be asked about images.
    #[error(transparent)]
    Images(#[from] ImagesError),
    /// The server cannot say who it is.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

/// A webhook and where it is.
struct Callable {
    hook: Hook,
    to: Result<Destination, String>,
}

impl Webhooks {
    /// Those that the plug-ins which are on ask.
    pub fn of(chain: &Chain, flags: &Flags) -> Result<Self, ConfigError> {
        const IMAGES: &str = "ImagePolicyWebhook";
        let images = chain.has(IMAGES).then(|| Images::of(flags.config.get(IMAGES))).transpose()?;
        let configured = |plugin: &str, plural| -> Result<Configured, CredentialsError> {
            let credentials = Credentials::of(flags.config.get(plugin))?;
            Ok(Configured { on: chain.has(plugin), plural, credentials, read: RwLock::default() })
        };
        Ok(Self {
            images,
            mutating: configured("MutatingAdmissionWebhook", "mutatingwebhookconfigurations")?,
            validating: configured("ValidatingAdmissionWebhook", "validatingwebhookconfigurations")?,
            counters: Counters::default(),
        })
    }
}

impl Configured {
    /// All webhooks, in the order of the names of their configurations.
    fn hooks(&self, state: &State, request: &Request<'_>) -> Arc<Vec<Callable>> {
        let table = state.table();
        let kind = table.kind(GROUP, self.plural).filter(|_| self.on && !request.is_exempt());
        let Some(kind) = kind else { return Arc::default() };
        let shelf = state.cache.shelf(kind);
        let revision = shelf.revision();
        if let Some((read, hooks)) = &*self.read.read().expect("no holder panics")
            && *read == revision
        {
            return hooks.clone();
        }
        let (entries, revision) = shelf.snapshot("", |_| true);
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

/// Lets everybody change the object of a request; the first refusal ends it.
pub async fn admit(state: &State, request: &Request<'_>, object: &mut Value, notes: &mut Notes) -> Result<(), Status> {
    admit_part(state, request, None, object, notes).await
}

/// The same for an object of which only the scale is written: plug-ins see the object, webhooks its `Scale`.
pub async fn admit_part(
    state: &State,
    request: &Request<'_>,
    scale: Option<&ReplicaPaths>,
    object: &mut Value,
    notes: &mut Notes,
) -> Result<(), Status> {
    state.admission.admit(&request.attributes, object, state, notes)?;
    let hooks = state.webhooks.mutating.hooks(state, request);
    if hooks.is_empty() {
        return Ok(());
    }
    let old = scale.and_then(|paths| request.attributes.old.map(|old| scale::of(old, paths)));
    let seen = seen(request, scale, old.as_ref());
    let mut again = Reinvocation::default();
    if !mutate_part(state, &hooks, &seen, scale, object, notes, &mut again).await? {
        return Ok(());
    }
    state.admission.admit(&request.attributes, object, state, notes)?;
    again.begin_second(&part_of(object, scale));
    mutate_part(state, &hooks, &seen, scale, object, notes, &mut again).await?;
    // What plug-ins said twice is told once.
    let mut told = std::collections::BTreeSet::new();
    notes.warnings.retain(|warning| told.insert(warning.clone()));
    Ok(())
}

/// Lets everybody judge the object of a request.
pub async fn validate(state: &State, request: &Request<'_>, object: &Value, notes: &mut Notes) -> Result<(), Status> {
    validate_part(state, request, None, object, notes).await
}

/// The same for an object of which only the scale is written.
pub async fn validate_part(
    state: &State,
    request: &Request<'_>,
    scale: Option<&ReplicaPaths>,
    object: &Value,
    notes: &mut Notes,
) -> Result<(), Status> {
    state.admission.validate(&request.attributes, object, state, notes)?;
    if let Some(images) = &state.webhooks.images {
        images.validate(&request.attributes, object, notes).await?;
    }
    let hooks = state.webhooks.validating.hooks(state, request);
    if hooks.is_empty() {
        return Ok(());
    }
    let old = scale.and_then(|paths| request.attributes.old.map(|old| scale::of(old, paths)));
    judge(state, &hooks, &seen(request, scale, old.as_ref()), &part_of(object, scale), notes).await
}

/// The request as webhooks see it.
fn seen<'a>(request: &Request<'a>, scale: Option<&ReplicaPaths>, old: Option<&'a Value>) -> Request<'a> {
    let attributes = match scale {
        None => request.attributes,
        Some(_) => Attributes { subresource: "scale", old, ..request.attributes },
    };
    Request { attributes, options: request.options.clone() }
}

fn part_of(object: &Value, scale: Option<&ReplicaPaths>) -> Value {
    match scale {
        Some(paths) => scale::of(object, paths),
        None => object.clone(),
    }
}

async fn mutate_part(
    state: &State,
    hooks: &[Callable],
    request: &Request<'_>,
    scale: Option<&ReplicaPaths>,
    object: &mut Value,
    notes: &mut Notes,
    again: &mut Reinvocation,
) -> Result<bool, Status> {
    let Some(paths) = scale else { return mutate(state, hooks, request, object, notes, again).await };
    let mut scaled = scale::of(object, paths);
    let changed = mutate(state, hooks, request, &mut scaled, notes, again).await?;
    if changed {
        scale::write(object, &scaled, paths);
    }
    Ok(changed)
}

/// Asks one webhook after another, each about what the one before made. Whether one of them changed the object.
async fn mutate(
    state: &State,
    hooks: &[Callable],
    request: &Request<'_>,
    object: &mut Value,
    notes: &mut Notes,
    again: &mut Reinvocation,
) -> Result<bool, Status> {
    let mut any = false;
    for (at, callable) in hooks.iter().enumerate() {
        let hook = &callable.hook;
        let Some((seen, review)) = concerned(state, hook, request, object).await? else { continue };
        if !again.wants(hook) {
            continue;
        }
        let place = (usize::from(again.is_second()), at);
        let asked = match callable.ask(state, Phase::Mutating, request, &review, notes).await {
            Ok(None) => Ok(None),
            Ok(Some(patch)) => request.patched(hook, &review.object, patch).map(Some),
            Err(failure) => Err(failure),
        };
        let changed = match asked {
            Ok(None) => false,
            Ok(Some(patched)) => {
                let fit = fit(request, patched, seen)?;
                let changed = fit != review.object;
                *object = taken_back(state, request, fit, seen).await?;
                changed
            }
            Err(failure) => {
                state.webhooks.counters.failed(&failure, hook.fails_open());
                hook.settle(failure, Phase::Mutating, place, notes)?;
                false
            }
        };
        request.note_mutation(hook, place, changed, notes);
        again.asked(hook, changed);
        any |= changed;
    }
    again.finish(object);
    Ok(any)
}

/// Asks all webhooks at once. The refusal of the first in their order is told.
async fn judge(
    state: &State,
    hooks: &[Callable],
    request: &Request<'_>,
    object: &Value,
    notes: &mut Notes,
) -> Result<(), Status> {
    let mut asked = Vec::new();
    for (at, callable) in hooks.iter().enumerate() {
        if let Some((_, review)) = concerned(state, &callable.hook, request, object).await? {
            asked.push((at, callable, review));
        }
    }
    let answers = asked.iter().map(async |(at, callable, review)| {
        let mut notes = Notes::default();
        let asked = callable.ask(state, Phase::Validating, request, review, &mut notes).await;
        let settled = asked.map(drop).or_else(|failure| {
            state.webhooks.counters.failed(&failure, callable.hook.fails_open());
            callable.hook.settle(failure, Phase::Validating, (0, *at), &mut notes)
        });
        (notes, settled)
    });
    let answers = join_all(answers).await;
    let mut refusal = Ok(());
    for (told, settled) in answers {
        notes.warnings.extend(told.warnings);
        notes.audit.extend(told.audit);
        refusal = refusal.and(settled);
    }
    refusal
}

/// What a webhook is to be asked, if it is concerned at all.
async fn concerned<'a>(
    state: &State,
    hook: &Hook,
    request: &Request<'a>,
    object: &Value,
) -> Result<Option<(Seen<'a>, Review)>, Status> {
    let Some(seen) = hook.selects(request, object, state)? else { return Ok(None) };
    let old = match request.attributes.old {
        Some(old) => shown(state, request, old, seen).await?,
        None => Value::Null,
    };
    let shown = shown(state, request, object, seen).await?;
    let review = Review::of(request, seen, &draw().uid, shown, old);
    Ok(hook.conditions_hold(request, &review, state)?.then_some((seen, review)))
}

/// An object in the version that a webhook wants.
async fn shown(state: &State, request: &Request<'_>, object: &Value, seen: Seen<'_>) -> Result<Value, Status> {
    if object.is_null() || request.part().is_some() {
        return Ok(object.clone());
    }
    conversion::served(state, seen.kind, seen.version, object.clone()).await
}

/// A patched object as its kind would have read it: unknown fields gone, defaults in.
fn fit(request: &Request<'_>, patched: Value, seen: Seen<'_>) -> Result<Value, Status> {
    let fit = match request.part() {
        Some(gvk) => body::plain(&json::to_vec(&patched), Media::Json, gvk, FieldValidation::Ignore),
        None => body::again(patched, seen.kind, seen.version, FieldValidation::Ignore),
    };
    fit.map(|received| received.object).map_err(|status| Status::internal_error(status.message))
}

/// A changed object in the version in which it goes on: the stored one, or the request's for a custom resource.
async fn taken_back(state: &State, request: &Request<'_>, mut object: Value, seen: Seen<'_>) -> Result<Value, Status> {
    let attributes = &request.attributes;
    if request.part().is_some() {
        return Ok(object);
    }
    if attributes.kind.is_custom() {
        return conversion::served(state, attributes.kind, attributes.version, object).await;
    }
    to_stored(&mut object, seen.kind, seen.version);
    Ok(object)
}

impl Callable {
    /// Sends a review and gives the patch that comes back.
    async fn ask(
        &self,
        state: &State,
        phase: Phase,
        request: &Request<'_>,
        review: &Review,
        notes: &mut Notes,
    ) -> Result<Option<Patch>, Failure> {
        let version = self.hook.review_version(request)?;
        let to = self.to.as_ref();
        let to = to.map_err(|wrong| Failure::Call(format!("could not get REST client: {wrong}")))?;
        let seconds = self.hook.timeout_seconds();
        let body = Bytes::from(json::to_vec(&review.to_value(version)));
        let started = Instant::now();
        let query = format!("timeout={seconds}s");
        let sent = state.backends.post(state, to, &query, body, Duration::from_secs(seconds)).await;
        state.webhooks.counters.asked(started.elapsed());
        let answer = sent
            .map_err(|error| error.to_string())
            .and_then(|(code, body)| read(code.as_u16(), &body))
            .map_err(|why| Failure::Call(format!("failed to call webhook: {why}")))?;
        Answer::read(phase, version, review, &answer)?.take(&self.hook, notes)
    }
}

/// The object in an answer, or what a client of Kubernetes says of a code that means failure.
pub fn read(code: u16, body: &[u8]) -> Result<Value, String> {
    if (200..300).contains(&code) {
        return json::parse(body).map_err(|error| format!("couldn't get version/kind; json parse error: {error}"));
    }
    if let Some(status) = json::parse(body).ok().and_then(|value| Status::from_value(&value)) {
        return Err(status.message);
    }
    let said = String::from_utf8_lossy(body);
    Err(Status::generic(code, "POST", GroupName::default(), "", said.trim()).message)
}
