//! The request handler chain: authentication, audit, impersonation, priority and fairness, authorization, then the
//! verb.

mod trace;

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission::Notes;
use api::kind::Verb;
use api_registry::negotiate::{Form, NegotiationError, ResponseFormat, is_pretty, negotiate};
use api_registry::query::Query;
use api_registry::request_info::{Form as UrlForm, Info, Mismatch, Resource};
use apimachinery::Value;
use apimachinery::status::{Reason, Status};
use auth::impersonation::{self, Gate, Trial};
use auth::{Attributes, Authorizer, Decision, Target, User};
use bytes::{Bytes, BytesMut};
use client::shared_objects::WantShared;
use component_base::{spans, without_head_body};
use futures_util::FutureExt;
use http::header::{ACCEPT, ACCEPT_ENCODING, AsHeaderName, CONTENT_TYPE, HeaderName, USER_AGENT};
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::BodyExt;
use tokio::time::Instant;
use tracing::Instrument;

pub use trace::{RequestTrace, TracedBody};

use crate::authentication::{Peer, check_readable, pairs};
use crate::kind_table::KindLookup;
use crate::proxy::{Outgoing, Stream};
use crate::response::{self, Body, HttpResponse, PLAIN};
use crate::state::State;
use crate::verbs::{self, Call};
use crate::{aggregation, discovery};

/// Maximum size of a request body; upstream's limit.
const BODY_BYTES_MAX: usize = 3 << 20;
/// Maximum number of bytes drained from a body that is too large.
const DRAINED_BYTES_MAX: usize = 16 << 20;
/// Maximum time for draining an unread body.
const DRAINED_TIME: Duration = Duration::from_millis(500);

/// A request without its body.
pub struct RequestInfo {
    pub method: Method,
    /// The URL, as the client wrote it.
    pub uri: Uri,
    pub headers: HeaderMap,
    pub query: Query,
    /// The parsed URL: verb, resource or path.
    pub info: Info,
    /// The client's IP address, if the request came over the network.
    pub from: Option<IpAddr>,
    /// Set if the client is in this process and can receive decoded objects.
    pub want_shared: Option<WantShared>,
}

/// Reasons to reject a request.
pub enum Rejection {
    Status(Box<Status>),
    /// 429 with Retry-After in seconds.
    TooManyRequests(u32),
    /// The audit event could not be written, and the audit backend's mode is `blocking-strict`.
    AuditFailed,
    /// 404 for a path that does not exist.
    NotFound,
}

/// Serves a request. A panic in a handler fails only this request.
pub async fn serve<B>(state: Arc<State>, peer: Peer, mut request: Request<B>) -> Response<TracedBody>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let upgrade = request.extensions_mut().remove();
    let (mut request, body) = RequestInfo::of(request);
    request.from = peer.address.map(|address| address.ip());
    let mut stream = Some(Stream::new(body, upgrade));
    let mut trace = RequestTrace::start(&state, &request);
    let span = trace.span.clone();
    let handled = AssertUnwindSafe(in_time(&state, &peer, &mut request, &mut stream, &mut trace)).catch_unwind();
    let guarded = handled.instrument(span.clone()).await;
    let response = match guarded {
        Ok(Ok(response)) => response,
        Ok(Err(rejection)) => rejection.into_response(&request),
        Err(panic) => {
            span.in_scope(|| trace.panicked(&*panic));
            let message = "This request caused apiserver to panic. Look in the logs for details.";
            response::status(&Status::internal_error(message), PLAIN)
        }
    };
    if let Some(stream) = &mut stream {
        let _ = tokio::time::timeout(DRAINED_TIME, drain(&mut stream.body)).await;
    }
    trace.sends(without_head_body(&request.method, response, || Body::Full(Bytes::new())), stream)
}

/// Reads the unread rest of a body, up to limits. A client that is still sending when its request is rejected may
/// otherwise see only a reset connection instead of the response.
async fn drain(body: &mut Outgoing) {
    let mut read = 0;
    while let Some(Ok(frame)) = body.frame().await
        && read < DRAINED_BYTES_MAX
    {
        read += frame.data_ref().map_or(0, Bytes::len);
    }
}

/// Runs the request with its deadline. Long-running requests (watch, exec, attach, log, proxy) have none.
async fn in_time(
    state: &Arc<State>,
    peer: &Peer,
    request: &mut RequestInfo,
    stream: &mut Option<Stream>,
    trace: &mut RequestTrace,
) -> Result<HttpResponse, Rejection> {
    if request.info.is_long_running() {
        return live(state, peer, request, stream, trace).await;
    }
    trace.deadline = Some(trace.arrived + time_allowed(request, state.request_timeout)?);
    let deadline = trace.deadline.expect("the deadline was set above");
    match tokio::time::timeout_at(deadline, live(state, peer, request, stream, trace)).await {
        Ok(lived) => lived,
        Err(_) => Err(Status::timeout("request did not complete within the allotted timeout", 0).into()),
    }
}

/// Runs the handler chain. Each step can reject the request.
async fn live(
    state: &Arc<State>,
    peer: &Peer,
    request: &mut RequestInfo,
    stream: &mut Option<Stream>,
    trace: &mut RequestTrace,
) -> Result<HttpResponse, Rejection> {
    let user = match authenticate(state, request, peer).await {
        Ok(user) => user,
        Err(status) => return Err(trace.unauthenticated(request, status)),
    };
    spans::authenticated(&trace.span, &user.name);
    // From here on the request is audited under the authenticated name, even if it is rejected.
    trace.audit(request, &user)?;
    // Authorizers decide by the URL, so the URL must mean the same to them and to the handlers.
    check_url(state, &request.info)?;
    // The impersonated user applies to all following steps.
    let user = impersonate(state, request, user, trace)?;
    // The seat is taken before authorization, because rejecting a request is work too.
    trace.take_seat(request, &user).await?;
    authorize(state, request, &user, trace)?;
    verb(state, request, user, stream, trace).await
}

/// Rejects a URL whose scope does not match its kind, or whose method is not supported, before any authorizer runs.
fn check_url(state: &State, info: &Info) -> Result<(), Status> {
    let scope = match (state.aggregation.remote(info), &info.resource) {
        (_, None) => None,
        (Some(behind), Some(resource)) => behind.is_namespaced(resource),
        (None, Some(resource)) => match state.table().find(&resource.group, &resource.version, &resource.plural) {
            KindLookup::Kind(kind)
                if kind.is_namespaced() && is_cluster_wide(resource) && !kind.verbs.contains(&Verb::List) =>
            {
                return Err(not_served());
            }
            KindLookup::Kind(kind) => Some(kind.is_namespaced()),
            KindLookup::NotServed | KindLookup::NoGroup => None,
        },
    };
    info.check(scope).map_err(|mismatch| match mismatch {
        Mismatch::NotFound => not_served(),
        Mismatch::Method => verbs::method_not_allowed(),
    })
}

fn is_cluster_wide(resource: &Resource) -> bool {
    resource.form == UrlForm::Cluster
}

/// Executes the verb of the request.
async fn verb(
    state: &Arc<State>,
    request: &RequestInfo,
    user: User,
    stream: &mut Option<Stream>,
    trace: &mut RequestTrace,
) -> Result<HttpResponse, Rejection> {
    if let Some(remote) = state.aggregation.remote(&request.info) {
        let stream = stream.take().expect("the stream is taken only once");
        return Ok(aggregation::serve(state, &remote, request, &user, stream).await);
    }
    let Some(resource) = &request.info.resource else {
        let response = discovery::serve(state, request).await.ok_or(Rejection::NotFound)?;
        trace.found_document(request);
        return Ok(response);
    };
    let kind = match state.table().find(&resource.group, &resource.version, &resource.plural) {
        KindLookup::Kind(kind) => kind,
        KindLookup::NotServed => return Err(not_served().into()),
        KindLookup::NoGroup => return Err(Rejection::NotFound),
    };
    trace.found(request, &kind, resource);
    let streams = verbs::is_stream(&kind, resource);
    let accepted = match accept(request, verbs::forms(&kind, resource)) {
        // Content negotiation does not apply to streams.
        Err(_) if streams => PLAIN,
        accepted => accepted?,
    };
    let (body, stream) = if streams {
        (Bytes::new(), stream.take())
    } else {
        match read(&mut stream.as_mut().expect("the stream is taken only once").body).await {
            Ok(body) => (body, None),
            Err(status) => return Ok(response::status(&status, accepted)),
        }
    };
    trace.received(request, &kind, resource, &body);
    let deprecation = kind.version(&resource.version).and_then(|version| version.deprecation.as_ref());
    let notes = Notes { warnings: deprecation.map(ToString::to_string).into_iter().collect(), audit: Vec::new() };
    let (stream, notes) = (Mutex::new(stream), Mutex::new(notes));
    let call = Call { state: state.clone(), request, resource, kind, accepted, user, body, stream, notes };
    let served = verbs::serve(&call).await;
    let mut response = served.unwrap_or_else(|status| response::status(&status, accepted));
    let notes = call.notes.into_inner().expect("no holder panics");
    response::warn(&mut response, &notes.warnings);
    trace.annotate(notes.audit);
    Ok(compress(request, response).await)
}

/// Executes a write on behalf of the server itself, without authentication, audit, flow control and authorization.
pub async fn own(
    state: &Arc<State>,
    method: Method,
    uri: Uri,
    content_type: &'static str,
    object: &Value,
) -> Result<HttpResponse, Status> {
    let request = Request::builder().method(method).uri(uri).header(CONTENT_TYPE, content_type);
    let request = request.body(()).map_err(Status::internal_error)?;
    let (request, ()) = RequestInfo::of(request);
    check_url(state, &request.info)?;
    let resource = request.info.resource.as_ref().ok_or_else(not_served)?;
    let KindLookup::Kind(kind) = state.table().find(&resource.group, &resource.version, &resource.plural) else {
        return Err(not_served());
    };
    let user = User::authenticated("system:apiserver", [auth::user::MASTERS.into()]);
    let body = Bytes::from(apimachinery::json::to_vec(object));
    let (stream, notes) = (Mutex::default(), Mutex::default());
    let call =
        Call { state: state.clone(), request: &request, resource, kind, accepted: PLAIN, user, body, stream, notes };
    verbs::serve(&call).await
}

/// Returns the timeout of the request: the client's `timeout` parameter, capped by the server's limit.
fn time_allowed(request: &RequestInfo, most: Duration) -> Result<Duration, Status> {
    let Some(text) = request.query.get("timeout").filter(|text| !text.is_empty()) else { return Ok(most) };
    let requested: apimachinery::time::Duration = text
        .parse()
        .map_err(|error| Status::bad_request(format!("invalid timeout specified in the request URL: {error}")))?;
    let requested = u64::try_from(requested.nanos()).map_or(Duration::ZERO, Duration::from_nanos);
    Ok(if requested.is_zero() { most } else { requested.min(most) })
}

async fn authenticate(state: &State, request: &mut RequestInfo, peer: &Peer) -> Result<User, Status> {
    check_readable(&request.headers, state.authenticators.request_header.as_ref())?;
    let began = Instant::now();
    let found = state.authenticators.identify(request, peer, state).await;
    state.metrics.authenticated(found.as_ref().ok(), began.elapsed());
    found
}

/// Returns the impersonated user, or `user` if the request does not impersonate.
fn impersonate(state: &State, request: &mut RequestInfo, user: User, trace: &mut RequestTrace) -> Result<User, Status> {
    let Some(target_user) = impersonation::target_user(&pairs(&request.headers)).map_err(|status| *status)? else {
        return Ok(user);
    };
    let selectors = Selectors::of(&request.info, &request.query);
    let attributes = attributes(&request.info, &user, &selectors);
    let trial = Trial::new(&target_user, &attributes, Gate::default());
    let acted = trial.run(|attributes| state.authorization.authorize(attributes)).map_err(|status| *status)?;
    trace.impersonates(&acted);
    request.remove_headers(impersonation::owns);
    Ok(acted.user)
}

/// The selectors of a list or watch, which authorizers can take into account.
struct Selectors {
    fields: Vec<apimachinery::fields::Requirement>,
    labels: Vec<apimachinery::labels::Requirement>,
}

impl Selectors {
    fn of(info: &Info, query: &Query) -> Self {
        if !info.has_selectors() {
            return Self { fields: Vec::new(), labels: Vec::new() };
        }
        let (fields, labels) =
            auth::attributes::selectors(info.verb, query.text("fieldSelector"), query.text("labelSelector"));
        Self { fields, labels }
    }
}

/// Returns the authorization attributes of a request.
fn attributes<'a>(info: &'a Info, user: &'a User, selectors: &'a Selectors) -> Attributes<'a> {
    let target = match &info.resource {
        None => Target::Path(&info.path),
        Some(resource) => target(resource, &selectors.fields, &selectors.labels),
    };
    Attributes { user, verb: info.verb, target }
}

/// Returns the authorization target of a resource request.
pub fn target<'a>(
    resource: &'a Resource,
    field_selector: &'a [apimachinery::fields::Requirement],
    label_selector: &'a [apimachinery::labels::Requirement],
) -> Target<'a> {
    Target::Resource(auth::Resource {
        group: &resource.group,
        version: &resource.version,
        resource: &resource.plural,
        subresource: &resource.subresource,
        namespace: &resource.namespace,
        name: &resource.name,
        field_selector,
        label_selector,
    })
}

/// Rejects the request unless an authorizer allows it.
fn authorize(state: &State, request: &RequestInfo, user: &User, trace: &mut RequestTrace) -> Result<(), Status> {
    let selectors = Selectors::of(&request.info, &request.query);
    let attributes = attributes(&request.info, user, &selectors);
    let began = Instant::now();
    let decision = state.authorization.authorize(&attributes);
    state.metrics.authorized(&decision, began.elapsed());
    trace.authorized(&decision);
    match decision {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => Err(attributes.forbidden(&reason)),
    }
}

/// Negotiates the response's content type.
fn accept(request: &RequestInfo, forms: &[Form]) -> Result<ResponseFormat, Status> {
    const REPRESENTATIONS: &str = "406: Not Acceptable\n\nAvailable representations: application/json, \
        application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, \
        application/vnd.kubernetes.protobuf;stream=watch";
    negotiate(request.header(ACCEPT), request.is_pretty(), forms).map_err(|rejection| match rejection {
        NegotiationError::Form => Status::not_acceptable(&api_registry::decode::MEDIA_TYPES),
        NegotiationError::Encoding => {
            Status::failure(Reason::NotAcceptable, REPRESENTATIONS).with_details(Default::default())
        }
    })
}

/// Reads a body of at most [`BODY_BYTES_MAX`] bytes. The rest of a larger body is drained up to limits, because a
/// client that is still sending does not read the response.
async fn read(body: &mut Outgoing) -> Result<Bytes, Status> {
    let (mut read, mut whole) = (0, BytesMut::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Status::bad_request(format!("the body could not be read: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        read += data.len();
        if read <= BODY_BYTES_MAX {
            whole.extend_from_slice(&data);
        } else if read > DRAINED_BYTES_MAX {
            break;
        }
    }
    if read > BODY_BYTES_MAX {
        let message = format!("Request entity too large: limit is {BODY_BYTES_MAX}");
        return Err(Status::failure(Reason::RequestEntityTooLarge, message));
    }
    Ok(whole.freeze())
}

/// Compresses a large response if the client accepts gzip.
async fn compress(request: &RequestInfo, response: HttpResponse) -> HttpResponse {
    let gzip = request
        .header(ACCEPT_ENCODING)
        .split(',')
        .any(|coding| coding.split(';').next().unwrap_or_default().trim() == "gzip");
    if gzip { response::compressed(response).await } else { response }
}

/// Returns the 404 for an unknown resource or version in a known group.
pub fn not_served() -> Status {
    let message = "the server could not find the requested resource";
    Status::failure(Reason::NotFound, message).with_details(Default::default())
}

impl Rejection {
    fn into_response(self, request: &RequestInfo) -> HttpResponse {
        match self {
            Self::Status(status) => response::status(&status, ResponseFormat { pretty: request.is_pretty(), ..PLAIN }),
            Self::TooManyRequests(seconds) => response::too_many(seconds),
            Self::AuditFailed => {
                let path = apimachinery::go::quote(&request.uri.to_string());
                response::text(500, format!("Internal Server Error: {path}: failed to store audit event\n"))
            }
            Self::NotFound => response::text(404, "404 page not found\n"),
        }
    }
}

impl From<Status> for Rejection {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

impl RequestInfo {
    /// Splits a request into its parsed head and its body.
    fn of<B>(request: Request<B>) -> (Self, B) {
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let info = Info::of(parts.method.as_str(), parts.uri.path(), &query);
        let want_shared = parts.extensions.get().copied();
        (
            Self { method: parts.method, uri: parts.uri, headers: parts.headers, query, info, from: None, want_shared },
            body,
        )
    }

    /// Removes the headers for which `owned` returns true: they were consumed here and must not be forwarded.
    pub fn remove_headers(&mut self, owned: impl Fn(&str) -> bool) {
        let names: Vec<HeaderName> = self.headers.keys().filter(|name| owned(name.as_str())).cloned().collect();
        for name in names {
            self.headers.remove(name);
        }
    }

    /// Returns the text of a header, empty if absent.
    pub fn header(&self, name: impl AsHeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub fn content_type(&self) -> &str {
        self.header(CONTENT_TYPE)
    }

    pub fn user_agent(&self) -> &str {
        self.header(USER_AGENT)
    }

    /// Whether JSON is to be indented.
    pub fn is_pretty(&self) -> bool {
        is_pretty(&self.query, self.user_agent())
    }

    pub fn resource(&self) -> Option<&Resource> {
        self.info.resource.as_ref()
    }
}
