//! Selects the handler of an authorized request: an extension API server, a non-resource path, or a verb on a kind.

use std::sync::{Arc, Mutex};

use admission::Notes;
use api::kind::{Kind, Verb};
use api_registry::negotiate::{Form, NegotiationError, ResponseFormat, negotiate};
use api_registry::request_info::{Form as UrlForm, Info, Mismatch};
use apimachinery::Value;
use apimachinery::status::{Reason, Status};
use auth::User;
use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE};
use http::{Method, Request, Uri};
use http_body_util::BodyExt;

use crate::aggregation::ExtensionVersion;
use crate::discovery;
use crate::kind_table::{KindLookup, not_served};
use crate::proxy::{Outgoing, Stream};
use crate::rejection::Rejection;
use crate::request_info::RequestInfo;
use crate::request_trace::RequestTrace;
use crate::response::{self, HttpResponse, PLAIN};
use crate::state::State;
use crate::verbs::{self, Call};

/// Maximum size of a request body; upstream's limit.
const BODY_BYTES_MAX: usize = 3 << 20;
/// Maximum number of bytes drained from a body that is too large.
pub(crate) const DRAINED_BYTES_MAX: usize = 16 << 20;

/// The handler of a request.
pub(crate) enum Handler {
    /// An extension API server.
    Extension(Arc<ExtensionVersion>),
    /// A non-resource path.
    Document,
    Kind(Arc<Kind>),
    /// The group is served, but not this resource or version.
    NotServed,
    /// The group is not served.
    NoGroup,
}

/// Finds the handler of a request, once: a kind that changes while the request is authorized must not be served in a
/// scope that was not authorized. Rejects a URL whose scope does not match its kind, or whose method is not supported.
pub(crate) fn resolve(state: &State, info: &Info) -> Result<Handler, Status> {
    let handler = find(state, info);
    let scope = match (&handler, &info.resource) {
        (Handler::Extension(extension), Some(resource)) => extension.is_namespaced(resource),
        (Handler::Kind(kind), Some(resource)) => {
            let is_cluster_wide = resource.form == UrlForm::Cluster;
            if kind.is_namespaced() && is_cluster_wide && !kind.verbs.contains(&Verb::List) {
                return Err(not_served());
            }
            Some(kind.is_namespaced())
        }
        _ => None,
    };
    info.check(scope).map_err(|mismatch| match mismatch {
        Mismatch::NotFound => not_served(),
        Mismatch::Method => verbs::method_not_allowed(),
    })?;
    Ok(handler)
}

fn find(state: &State, info: &Info) -> Handler {
    if let Some(extension) = state.aggregation.remote(info) {
        return Handler::Extension(extension);
    }
    let Some(resource) = &info.resource else { return Handler::Document };
    match state.storage.table().find(&resource.group, &resource.version, &resource.plural) {
        KindLookup::Kind(kind) => Handler::Kind(kind),
        KindLookup::NotServed => Handler::NotServed,
        KindLookup::NoGroup => Handler::NoGroup,
    }
}

/// Runs the handler of an authorized request.
pub(crate) async fn dispatch(
    state: &Arc<State>,
    handler: Handler,
    request: &RequestInfo,
    user: User,
    stream: &mut Option<Stream>,
    trace: &mut RequestTrace,
) -> Result<HttpResponse, Rejection> {
    match handler {
        Handler::Extension(extension) => {
            let stream = stream.take().expect("the stream is taken only once");
            Ok(state.aggregation.serve(&state.storage, &extension, request, &user, stream).await)
        }
        Handler::Document => {
            let response = discovery::serve(state, request).await.ok_or(Rejection::NotFound)?;
            trace.found_document(request);
            Ok(response)
        }
        Handler::Kind(kind) => serve_kind(state, kind, request, user, stream, trace).await,
        Handler::NotServed => Err(not_served().into()),
        Handler::NoGroup => Err(Rejection::NotFound),
    }
}

/// Negotiates the response, reads the body and executes the verb.
async fn serve_kind(
    state: &Arc<State>,
    kind: Arc<Kind>,
    request: &RequestInfo,
    user: User,
    stream: &mut Option<Stream>,
    trace: &mut RequestTrace,
) -> Result<HttpResponse, Rejection> {
    let resource = request.info.resource.as_ref().expect("kinds are found only for resources");
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
pub(crate) async fn own(
    state: &Arc<State>,
    method: Method,
    uri: Uri,
    content_type: &'static str,
    object: &Value,
) -> Result<HttpResponse, Status> {
    let request = Request::builder().method(method).uri(uri).header(CONTENT_TYPE, content_type);
    let request = request.body(()).map_err(Status::internal_error)?;
    let (request, ()) = RequestInfo::of(request);
    let resource = request.info.resource.as_ref().ok_or_else(not_served)?;
    let Handler::Kind(kind) = resolve(state, &request.info)? else { return Err(not_served()) };
    let user = User::authenticated("system:apiserver", [auth::user::MASTERS.into()]);
    let body = Bytes::from(apimachinery::json::to_vec(object));
    let (stream, notes) = (Mutex::default(), Mutex::default());
    let call =
        Call { state: state.clone(), request: &request, resource, kind, accepted: PLAIN, user, body, stream, notes };
    verbs::serve(&call).await
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
