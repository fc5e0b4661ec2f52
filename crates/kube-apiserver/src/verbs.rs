//! API verbs on resources: one module per verb, selected by the authorized verb.

mod bind;
mod component_status;
mod connect;
mod create;
mod delete;
mod evict;
mod get;
mod list;
mod patch;
mod render;
mod review;
mod scale;
mod selected;
mod subresource;
mod token;
mod update;
mod watch;
mod write;

use std::sync::{Arc, Mutex};
use std::time::Instant;

use ::admission::{Attributes, Notes};
use api::kind::{Connect, Kind, Persistence, Requester, Subresource, SubresourceAction, Verb, Version, VirtualKind};
use api_registry::decode::Media;
use api_registry::negotiate::{FORMS, FORMS_WITHOUT_TABLE, Form, ResponseFormat};
use api_registry::request_info::{Form as UrlForm, Resource};
use api_registry::strategy::Target;
use apimachinery::Value;
use apimachinery::status::{Reason, Status};
use auth::{Authorizer, Decision, User};
use bytes::Bytes;
use mvcc::Revision;

use crate::conversion;
use crate::kind_table::not_served;
use crate::proxy::Stream;
use crate::request_info::RequestInfo;
use crate::response::HttpResponse;
use crate::state::State;
use crate::storage::unavailable;
use crate::{admission, storage_format};

/// An authorized request.
pub struct Call<'a> {
    pub state: Arc<State>,
    pub request: &'a RequestInfo,
    /// The resource in the URL.
    pub resource: &'a Resource,
    pub kind: Arc<Kind>,
    /// The negotiated response format.
    pub accepted: ResponseFormat,
    pub user: User,
    /// The body; empty for streams.
    pub body: Bytes,
    /// The body and connection of a stream.
    pub stream: Mutex<Option<Stream>>,
    /// Warnings for the client and annotations for the audit event, collected even if the request fails.
    pub notes: Mutex<Notes>,
}

/// An object read from the store.
pub struct Current {
    /// Whether an unchanged object must be written again, because its encryption key or its stored form is outdated.
    pub stale: bool,
    /// The object in the storage version (a custom resource: in the request's version), with its resourceVersion.
    pub object: Value,
    pub revision: Revision,
    /// The stored bytes; `None` if `object` was converted from another version.
    written: Option<Bytes>,
}

impl Current {
    /// Whether `bytes` encode the same object.
    fn is(&self, bytes: &Bytes) -> bool {
        self.written.as_ref().map_or_else(|| storage_format::encode(&self.object) == *bytes, |written| written == bytes)
    }
}

/// Executes the request.
pub async fn serve(call: &Call<'_>) -> Result<HttpResponse, Status> {
    if let Persistence::Virtual(question) = call.kind.persistence {
        return review::serve(call, question).await;
    }
    match call.resource.subresource.as_str() {
        "" => object(call).await,
        name => {
            let subresource = call.kind.subresource(&call.resource.version, name).ok_or_else(not_served)?;
            serve_subresource(call, subresource).await
        }
    }
}

/// Whether the subresource is a stream (exec, attach, port-forward, log, proxy), whose body is forwarded unread.
pub fn is_stream(kind: &Kind, resource: &Resource) -> bool {
    kind.subresource(&resource.version, &resource.subresource)
        .is_some_and(|subresource| matches!(subresource.does, SubresourceAction::Connect(_)))
}

/// Returns the response forms (object, Table, PartialObjectMetadata) that the resource supports.
pub fn forms(kind: &Kind, resource: &Resource) -> &'static [Form] {
    let subresource = kind.subresource(&resource.version, &resource.subresource).map(|subresource| &subresource.does);
    let is_review = match kind.persistence {
        Persistence::Virtual(question) => question != VirtualKind::ComponentStatus,
        Persistence::Stored { .. } => false,
    };
    let is_made_up =
        matches!(subresource, Some(SubresourceAction::Bind | SubresourceAction::Token | SubresourceAction::Evict));
    if is_review || is_made_up { FORMS_WITHOUT_TABLE } else { FORMS }
}

/// Executes a verb on an object or a collection.
async fn object(call: &Call<'_>) -> Result<HttpResponse, Status> {
    let verb = authorized_verb(call).ok_or_else(method_not_allowed)?;
    let named = call.resource.in_url;
    // The collection across all namespaces is read-only.
    let everywhere = call.kind.is_namespaced() && call.resource.form == UrlForm::Cluster;
    let is_routed = match verb {
        Verb::Watch => true,
        Verb::List => !named,
        Verb::Create | Verb::DeleteCollection => !named && !everywhere,
        Verb::Get | Verb::Update | Verb::Patch | Verb::Delete => named && !everywhere,
    };
    if !is_routed || !call.kind.verbs.contains(&verb) {
        return Err(method_not_allowed());
    }
    match verb {
        Verb::Get => get::serve(call).await,
        Verb::List => list::serve(call).await,
        Verb::Watch => watch::serve(call).await,
        Verb::Create => create::serve(call).await,
        Verb::Update => update::serve(call).await,
        Verb::Patch => patch::serve(call).await,
        Verb::Delete => delete::serve(call).await,
        Verb::DeleteCollection => delete::serve_collection(call).await,
    }
}

/// Executes a verb on a subresource.
async fn serve_subresource(call: &Call<'_>, subresource: &Subresource) -> Result<HttpResponse, Status> {
    let is_proxy = subresource.does == SubresourceAction::Connect(Connect::Proxy);
    if !call.resource.rest.is_empty() && !is_proxy {
        return Err(not_served());
    }
    let verb = match authorized_verb(call) {
        Some(verb) => verb,
        // OPTIONS is authorized as a separate verb and forwarded to the backend.
        None if is_proxy && call.request.info.verb == "options" => Verb::Get,
        None => return Err(method_not_allowed()),
    };
    if !subresource.verbs.contains(&verb) {
        return Err(method_not_allowed());
    }
    match (&subresource.does, verb) {
        (SubresourceAction::Fields, Verb::Get) => get::serve(call).await,
        (SubresourceAction::Fields, Verb::Update) => update::serve(call).await,
        (SubresourceAction::Fields, Verb::Patch) => patch::serve(call).await,
        (SubresourceAction::Scale(paths), verb) => scale::serve(call, paths, verb).await,
        (SubresourceAction::Bind, _) => bind::serve_binding(call).await,
        (SubresourceAction::Token, _) => token::serve(call).await,
        (SubresourceAction::Evict, _) => evict::serve(call).await,
        (SubresourceAction::Connect(stream), _) => connect::serve(call, *stream).await,
        _ => Err(method_not_allowed()),
    }
}

/// Returns the verb that was authorized. Only this verb selects the code that runs: interpreting the HTTP method a
/// second time could give a different result.
fn authorized_verb(call: &Call<'_>) -> Option<Verb> {
    Verb::of(call.request.info.verb)
}

/// Returns the 405 for a known URL with an unsupported method.
pub fn method_not_allowed() -> Status {
    let message = "the server does not allow this method on the requested resource";
    Status::failure(Reason::MethodNotAllowed, message).with_details(Default::default())
}

impl Call<'_> {
    /// Returns the version in the URL.
    fn version(&self) -> &Version {
        self.kind.version(&self.resource.version).expect("only served versions are found")
    }

    /// Returns the namespace of objects, empty for a cluster-scoped kind. The URL of a Namespace object contains a
    /// namespace for authorizers, though the object itself is cluster-scoped.
    fn namespace(&self) -> &str {
        if self.kind.is_namespaced() { &self.resource.namespace } else { "" }
    }

    /// Authorizes a second verb on the same resource, for requests that do more than their verb: a PUT or apply that
    /// creates, or a GET that opens a stream.
    fn authorize(&self, verb: &str) -> Result<(), Status> {
        if self.request.info.verb == verb {
            return Ok(());
        }
        let target = crate::request_info::target(self.resource, &[], &[]);
        let attributes = auth::Attributes { user: &self.user, verb, target };
        match self.state.filters.authorization.authorize(&attributes) {
            Decision::Allow(_) => Ok(()),
            Decision::Deny(reason) | Decision::NoOpinion(reason) => Err(attributes.forbidden(&reason)),
        }
    }

    fn target<'c>(&'c self, manager: &'c str) -> Target<'c> {
        Target {
            kind: &self.kind,
            version: self.version(),
            namespace: self.namespace(),
            name: &self.resource.name,
            subresource: &self.resource.subresource,
            manager,
        }
    }

    /// Adds warnings to the response.
    fn warn(&self, warnings: Vec<String>) {
        self.note(Notes { warnings, audit: Vec::new() });
    }

    /// Adds warnings and audit annotations of admission.
    fn note(&self, notes: Notes) {
        let mut all = self.notes.lock().expect("no holder panics");
        all.warnings.extend(notes.warnings);
        all.audit.extend(notes.audit);
    }

    /// Runs mutating admission and collects its warnings and annotations.
    async fn admit(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        let (began, mut notes) = (Instant::now(), Notes::default());
        let admitted = admission::admit(&self.state.admission, attributes, object, &mut notes).await;
        self.record_admission(attributes, "admit", began, admitted, notes)
    }

    /// Runs validating admission and collects its warnings and annotations.
    async fn validate(&self, attributes: &Attributes<'_>, object: &Value) -> Result<(), Status> {
        let (began, mut notes) = (Instant::now(), Notes::default());
        let admitted = admission::validate(&self.state.admission, attributes, object, &mut notes).await;
        self.record_admission(attributes, "validate", began, admitted, notes)
    }

    fn record_admission(
        &self,
        attributes: &Attributes<'_>,
        step: &str,
        began: Instant,
        result: Result<(), Status>,
        notes: Notes,
    ) -> Result<(), Status> {
        self.state.metrics.admission.stepped(step, attributes.operation.word(), result.is_err(), began.elapsed());
        self.note(notes);
        result
    }

    fn requester(&self) -> Requester {
        Requester {
            name: self.user.name.clone(),
            uid: self.user.uid.clone(),
            groups: self.user.groups.clone(),
            extra: self.user.extra.iter().map(|(key, values)| (key.clone(), values.clone())).collect(),
        }
    }

    fn media(&self) -> Result<Media, Status> {
        Media::of(self.request.content_type()).ok_or_else(api_registry::decode::unsupported_media)
    }

    /// Reads an object of the request's kind and namespace from the store.
    async fn current(&self, name: &str) -> Result<Option<Current>, Status> {
        self.find(&self.kind, self.namespace(), name).await
    }

    /// Reads an object of any kind from the store. Returns 404 if it does not exist.
    async fn object_of(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Current, Status> {
        let found = self.find(kind, namespace, name).await?;
        found.ok_or_else(|| Status::not_found(api_registry::decode::resource_name(kind), name))
    }

    async fn find(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Option<Current>, Status> {
        let key = self.state.storage.layout.key(kind, namespace, name);
        let found = self.state.storage.store.get(key).await.map_err(|error| unavailable(&error))?;
        let Some((value, revision, stale)) = found else { return Ok(None) };
        let mut object = storage_format::decode(&value, revision).map_err(Status::internal_error)?;
        let stale = stale || conversion::is_outdated(kind, &object);
        if kind.is_custom() {
            object = conversion::read(&self.state.storage, kind, self.version(), object).await?;
        }
        let written = (!kind.is_custom() && storage_format::is_encoded(&value)).then_some(value);
        Ok(Some(Current { object, revision, stale, written }))
    }

    fn not_found(&self, name: &str) -> Status {
        Status::not_found(api_registry::decode::resource_name(&self.kind), name)
    }
}
