//! The request handler chain: authentication, audit, impersonation, priority and fairness, authorization, then the
//! verb.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use api_registry::query::Query;
use api_registry::request_info::Info;
use apimachinery::status::Status;
use auth::impersonation::{self, Gate, Trial};
use auth::{Attributes, Authorizer, Decision, Target, User};
use bytes::Bytes;
use component_base::{spans, without_head_body};
use futures_util::FutureExt;
use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::time::Instant;
use tracing::Instrument;

use crate::authentication::{Peer, check_readable, pairs};
use crate::dispatch::{DRAINED_BYTES_MAX, dispatch, resolve};
use crate::proxy::{Outgoing, Stream};
use crate::rejection::Rejection;
use crate::request_info::{RequestInfo, target};
use crate::request_trace::{RequestTrace, TracedBody};
use crate::response::{self, Body, HttpResponse, PLAIN};
use crate::state::State;

/// Maximum time for draining an unread body.
const DRAINED_TIME: Duration = Duration::from_millis(500);

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
    trace.deadline = Some(trace.arrived + time_allowed(request, state.filters.request_timeout)?);
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
    let handler = resolve(state, &request.info)?;
    // The impersonated user applies to all following steps.
    let user = impersonate(state, request, user, trace)?;
    // The seat is taken before authorization, because rejecting a request is work too.
    trace.take_seat(request, &user).await?;
    authorize(state, request, &user, trace)?;
    dispatch(state, handler, request, user, stream, trace).await
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
    check_readable(&request.headers, state.filters.authenticators.request_header.as_ref())?;
    let began = Instant::now();
    let found = state.filters.authenticators.identify(request, peer, &state.storage).await;
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
    let acted = trial.run(|attributes| state.filters.authorization.authorize(attributes)).map_err(|status| *status)?;
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

/// Rejects the request unless an authorizer allows it.
fn authorize(state: &State, request: &RequestInfo, user: &User, trace: &mut RequestTrace) -> Result<(), Status> {
    let selectors = Selectors::of(&request.info, &request.query);
    let attributes = attributes(&request.info, user, &selectors);
    let began = Instant::now();
    let decision = state.filters.authorization.authorize(&attributes);
    state.metrics.authorized(&decision, began.elapsed());
    trace.authorized(&decision);
    match decision {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => Err(attributes.forbidden(&reason)),
    }
}
