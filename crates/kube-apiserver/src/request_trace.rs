//! Request context: metrics, audit trail and seat of a request, from its arrival to the last byte of the response.

use std::any::Any;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::audit::trail::{DEPRECATED, Decision as Decided, Length, REMOVED_RELEASE, ReceivedRequest};
use ::audit::{Level, Trail, request};
use api::kind::Kind;
use api_registry::decode::{self, Media};
use api_registry::request_info::Resource;
use apimachinery::field_validation::FieldValidation;
use apimachinery::status::Status;
use apimachinery::{Str, Value, json, protobuf, yaml};
use auth::impersonation::ImpersonatedUser;
use auth::{Decision, User};
use bytes::Bytes;
use client::shared_objects::ResponseObject;
use component_base::spans;
use flowcontrol::Classification;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, Response};
use http_body::{Frame, SizeHint};
use tokio::time::Instant;
use tracing::Span;

use crate::audit::user_of;
use crate::flow_control::{Seat, Watching};
use crate::ids::generate_uid;
use crate::metrics::Labels;
use crate::proxy::Stream;
use crate::rejection::Rejection;
use crate::request_info::RequestInfo;
use crate::response::{Body, HttpResponse};
use crate::state::State;
use client::clock::now;

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// Maximum length of an Audit-ID that a client supplies.
const AUDIT_ID_MAX: usize = 64;

/// The context of a request.
pub struct RequestTrace {
    state: Arc<State>,
    pub arrived: Instant,
    pub deadline: Option<Instant>,
    is_long_running: bool,
    labels: Labels,
    audit_id: Str,
    connected: Option<IpAddr>,
    trail: Option<Trail>,
    seat: Option<Seat>,
    classification: Option<Arc<Classification>>,
    watching: Option<Watching>,
    sent: Option<Progress>,
    /// The span of the log lines of the request and of its response body.
    pub span: Span,
}

/// The progress of the response.
struct Progress {
    code: u16,
    bytes: u64,
}

/// A response body together with the request context, which is released when the body is sent.
pub struct TracedBody {
    body: Body,
    trace: RequestTrace,
    _unread: Option<Stream>,
}

impl RequestTrace {
    /// Starts the context of a request that has arrived.
    pub fn start(state: &Arc<State>, request: &RequestInfo) -> Self {
        let given = request.header(request::AUDIT_ID_HEADER);
        let audit_id = match given {
            "" => generate_uid().into(),
            given => Str::from(&given[..given.floor_char_boundary(AUDIT_ID_MAX)]),
        };
        let span = spans::request(&state.span, &span_attributes(request, &audit_id));
        Self {
            state: state.clone(),
            arrived: Instant::now(),
            deadline: None,
            is_long_running: request.info.is_long_running(),
            labels: Labels::of(request),
            audit_id,
            connected: request.from,
            trail: None,
            seat: None,
            classification: None,
            watching: None,
            sent: None,
            span,
        }
    }

    /// Starts auditing if the policy requires it.
    pub fn audit(&mut self, request: &RequestInfo, user: &User) -> Result<(), Rejection> {
        if !self.state.filters.audit.is_on() {
            return Ok(());
        }
        let user = user_of(user);
        let attributes = ::audit::Attributes { user: &user, verb: request.info.verb, target: target(request) };
        let Some(verdict) = self.state.filters.audit.verdict(&attributes) else { return Ok(()) };
        let (forwarded, real) = (request.header("x-forwarded-for"), request.header("x-real-ip"));
        let source_ips = request::source_ips(forwarded, real, self.connected);
        let uri = request.uri.path_and_query().map_or("", |uri| uri.as_str());
        let received = ReceivedRequest {
            audit_id: &self.audit_id,
            request_uri: uri,
            user_agent: request.user_agent(),
            source_ips: &source_ips,
            at: now(),
            attributes,
        };
        let length = if self.is_long_running { Length::LongRunning } else { Length::Short };
        self.trail = Trail::start(verdict, &received, length);
        let event = self.trail.as_mut().and_then(Trail::received);
        event.map_or(Ok(()), |event| self.state.filters.audit.write_first(&event)).map_err(|_| Rejection::AuditFailed)
    }

    /// Audits a request that failed authentication and returns its rejection.
    pub fn unauthenticated(&mut self, request: &RequestInfo, status: Status) -> Rejection {
        match self.audit(request, &User::default()) {
            Ok(()) => status.into(),
            Err(rejection) => rejection,
        }
    }

    /// Records the impersonation in the audit event.
    pub fn impersonates(&mut self, acted: &ImpersonatedUser) {
        if let Some(trail) = &mut self.trail {
            let constraint = Some(acted.constraint).filter(|constraint| !constraint.is_empty());
            trail.impersonates(user_of(&acted.user), constraint);
        }
    }

    /// Waits for a seat. Long-running requests other than watches need none.
    pub async fn take_seat(&mut self, request: &RequestInfo, user: &User) -> Result<(), Rejection> {
        if self.is_long_running && request.info.verb != "watch" {
            return Ok(());
        }
        let admission = self.state.filters.fairness.admit(&self.state.storage, request, user, self.deadline).await;
        self.classification = admission.classification;
        self.seat = Some(admission.seat.map_err(|rejected| Rejection::TooManyRequests(rejected.retry_after_seconds))?);
        Ok(())
    }

    /// Records the authorization decision in the audit event.
    pub fn authorized(&mut self, decision: &Decision) {
        if let Some(trail) = &mut self.trail {
            match decision {
                Decision::Allow(reason) => trail.authorized(Decided::Allow, reason),
                Decision::Deny(reason) | Decision::NoOpinion(reason) => trail.authorized(Decided::Forbid, reason),
            }
        }
    }

    /// Records the kind that serves the request.
    pub fn found(&mut self, request: &RequestInfo, kind: &Kind, resource: &Resource) {
        self.labels.found(request, kind, resource);
        if let Some(text) = kind.version(&resource.version).and_then(|version| version.deprecation.as_deref()) {
            self.deprecated(text);
        }
        if self.is_long_running {
            self.state.metrics.begins(&self.labels);
        }
        if request.info.verb == "watch" {
            self.watching = Some(self.state.filters.fairness.watchers.start(resource));
        }
    }

    /// Counts the use of a deprecated API and annotates the audit event.
    fn deprecated(&mut self, text: &str) {
        let removed = text.split_once("unavailable in v").and_then(|(_, rest)| rest.split(['+', ';', ' ']).next());
        self.state.metrics.count_deprecated_request(&self.labels, removed.unwrap_or_default());
        if let Some(trail) = &mut self.trail {
            trail.annotate(DEPRECATED, "true");
            if let Some(removed) = removed {
                trail.annotate(REMOVED_RELEASE, removed);
            }
        }
    }

    /// Records that the request is for a non-resource path.
    pub fn found_document(&mut self, request: &RequestInfo) {
        self.labels.found_document(request);
    }

    /// Records the request body in the audit event, if the audit level requires it.
    pub fn received(&mut self, request: &RequestInfo, kind: &Kind, resource: &Resource, bytes: &Bytes) {
        let Some(trail) = &mut self.trail else { return };
        if request.method == Method::PATCH {
            trail.request_patch(bytes);
        } else if let Some(object) = sent_object(request, kind, resource, bytes) {
            trail.request_object(&object, target(request));
        }
    }

    /// Adds annotations of admission to the audit event.
    pub fn annotate(&mut self, annotations: Vec<(String, String)>) {
        if let Some(trail) = &mut self.trail {
            for (key, text) in annotations {
                trail.annotate(key, text);
            }
        }
    }

    /// Logs a panic of the handler and audits it.
    pub fn panicked(&mut self, panic: &(dyn Any + Send)) {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no words");
        tracing::error!(panic = text, audit_id = %self.audit_id, "a request handler panicked");
        if let Some(event) = self.trail.take().and_then(|trail| trail.panicked(text, now())) {
            self.state.filters.audit.write(&event);
        }
    }

    /// Starts the response. The unread request body is kept until the response is sent: dropping it earlier would reset
    /// the client's request.
    pub fn sends(mut self, mut response: HttpResponse, unread: Option<Stream>) -> Response<TracedBody> {
        let headers = response.headers_mut();
        if let Ok(id) = HeaderValue::from_str(&self.audit_id) {
            headers.insert(AUDIT_ID, id);
        }
        for (name, uid) in self.classification.iter().flat_map(|classification| classification.headers()) {
            if let (Ok(name), Ok(uid)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(uid)) {
                headers.insert(name, uid);
            }
        }
        let code = response.status().as_u16();
        self.audit_response(&response);
        if let Some(event) = self.trail.as_mut().and_then(|trail| trail.responds(code, now())) {
            self.state.filters.audit.write(&event);
        }
        if self.is_long_running {
            // A watch holds its seat only during initialization.
            self.seat = None;
        }
        self.sent = Some(Progress { code, bytes: 0 });
        response.map(|body| TracedBody { body, trace: self, _unread: unread })
    }

    /// Records the response object in the audit event, if the audit level requires it.
    fn audit_response(&mut self, response: &HttpResponse) {
        let Some(trail) = &mut self.trail else { return };
        let Body::Full(bytes) = response.body() else { return };
        if response.status().as_u16() < 400 && trail.level() < Level::RequestResponse {
            return;
        }
        let media = response.headers().get(CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
        match response.extensions().get() {
            Some(ResponseObject(object)) => trail.response_object(object),
            None => tree(bytes, media).iter().for_each(|object| trail.response_object(object)),
        }
    }
}

/// Completes the request: its response is sent, or its client has disconnected.
impl Drop for RequestTrace {
    fn drop(&mut self) {
        let Progress { code, bytes } = self.sent.take().unwrap_or(Progress { code: 499, bytes: 0 });
        let elapsed = self.arrived.elapsed();
        self.span.in_scope(|| tracing::debug!(code, bytes, latency = ?elapsed, "request completed"));
        self.state.metrics.ends(&self.labels, code, bytes, elapsed, self.is_long_running);
        let Some(mut trail) = self.trail.take() else { return };
        let took = |since: Instant| {
            apimachinery::time::Duration::from_nanos(i64::try_from(since.elapsed().as_nanos()).unwrap_or(i64::MAX))
        };
        if !self.is_long_running {
            trail.took(took(self.arrived), &[]);
        }
        for event in trail.complete(now()) {
            self.state.filters.audit.write(&event);
        }
    }
}

impl http_body::Body for TracedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let frame = ready!(this.trace.span.in_scope(|| Pin::new(&mut this.body).poll_frame(context)));
        if let (Some(progress), Some(Ok(frame))) = (&mut self.trace.sent, &frame) {
            progress.bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns the attributes of a request for its span.
fn span_attributes<'a>(request: &'a RequestInfo, audit_id: &'a str) -> spans::Request<'a> {
    let (verb, path) = (request.info.verb, &request.info.path);
    match &request.info.resource {
        None => spans::Request { audit_id, verb, resource: path, subresource: "", namespace: "", name: "" },
        Some(resource) => spans::Request {
            audit_id,
            verb,
            resource: &resource.plural,
            subresource: &resource.subresource,
            namespace: &resource.namespace,
            name: &resource.name,
        },
    }
}

fn target(request: &RequestInfo) -> ::audit::Target<'_> {
    match &request.info.resource {
        None => ::audit::Target::Path(&request.info.path),
        Some(resource) => ::audit::Target::Resource {
            group: &resource.group,
            version: &resource.version,
            resource: &resource.plural,
            subresource: &resource.subresource,
            namespace: &resource.namespace,
            name: &resource.name,
        },
    }
}

/// Decodes the object of a request body, with defaults if its type is known.
fn sent_object(request: &RequestInfo, kind: &Kind, resource: &Resource, bytes: &Bytes) -> Option<Value> {
    if bytes.is_empty() {
        return None;
    }
    let media = Media::of(request.content_type())?;
    let is_whole = matches!(request.method, Method::POST | Method::PUT) && resource.subresource.is_empty();
    if is_whole && let Some(version) = kind.version(&resource.version) {
        return decode::object(bytes, media, kind, version, FieldValidation::Ignore)
            .ok()
            .map(|received| received.object);
    }
    tree(bytes, request.content_type())
}

/// Decodes bytes according to their media type.
fn tree(bytes: &Bytes, media: &str) -> Option<Value> {
    match media.split(';').next().unwrap_or_default().trim() {
        "" | "application/json" => json::parse(bytes).ok(),
        "application/yaml" => yaml::parse(std::str::from_utf8(bytes).ok()?).ok(),
        "application/vnd.kubernetes.protobuf" => {
            protobuf::decode_object(bytes, &|gvk| api::catalogue::schema(gvk)).ok()
        }
        _ => None,
    }
}

impl From<Box<Status>> for Rejection {
    fn from(status: Box<Status>) -> Self {
        Self::Status(status)
    }
}
