//! The life of a request, in the order in which it happens.

use std::sync::{Arc, Mutex};

use auth::impersonation::{self, Gate, Trial};
use auth::{Attributes, Authorizer, Decision, Target, User};
use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::BodyExt;
use machinery::status::{Reason, Status};
use registry::accept::{Accepted, Encoding, Form, Refused, negotiate};
use registry::query::Query;
use registry::route::{Info, Resource};

use crate::answer::{self, Answer};
use crate::authentication::{Peer, pairs};
use crate::proxy::Stream;
use crate::state::State;
use crate::table::Found;
use crate::verbs::{self, Call};
use crate::{aggregation, documents};

/// No body may be larger: upstream's limit.
const BODY_BYTES_MAX: usize = 3 << 20;
/// What is read of a body that is too large, at most.
const DRAINED_BYTES_MAX: usize = 16 << 20;

/// A failure is told in JSON if nothing else is known of the client.
const PLAIN: Accepted = Accepted { encoding: Encoding::Json, form: Form::Whole, pretty: false };

/// What is known of a request before its body is read.
pub struct Asked {
    /// The method.
    pub method: Method,
    /// The URL, as the client wrote it.
    pub uri: Uri,
    /// The headers.
    pub headers: HeaderMap,
    /// The query.
    pub query: Query,
    /// What it is about.
    pub info: Info,
}

/// Answers a request, whatever becomes of it: a panic in a handler is one request's failure.
pub async fn serve<B>(state: Arc<State>, peer: Peer, request: Request<B>) -> Answer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let guarded = std::panic::AssertUnwindSafe(live(&state, &peer, request)).catch_unwind().await;
    guarded.unwrap_or_else(|_| {
        let message = "This request caused apiserver to panic. Look in the logs for details.";
        answer::status(&Status::internal_error(message), PLAIN)
    })
}

async fn live<B>(state: &Arc<State>, peer: &Peer, mut request: Request<B>) -> Answer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let upgrade = request.extensions_mut().remove();
    let (parts, body) = request.into_parts();
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let info = Info::of(parts.method.as_str(), parts.uri.path(), &query);
    let asked = Asked { method: parts.method, uri: parts.uri, headers: parts.headers, query, info };
    let user = match identify(state, &asked, peer) {
        Ok(user) => user,
        Err(status) => return answer::status(&status, PLAIN),
    };
    if let Err(status) = authorize(state, &asked, &user) {
        return answer::status(&status, PLAIN);
    }
    if let Some(remote) = state.aggregation.remote(&asked.info) {
        return aggregation::serve(state, &remote, &asked, &user, Stream::new(body, upgrade)).await;
    }
    let Some(resource) = &asked.info.resource else {
        return documents::serve(state, &asked).unwrap_or_else(not_found_page);
    };
    let kind = match state.table().find(&resource.group, &resource.version, &resource.plural) {
        Found::Kind(kind) => kind,
        Found::NotServed => return answer::status(&not_served(), PLAIN),
        Found::NoGroup => return not_found_page(),
    };
    let streams = verbs::is_stream(&kind, resource);
    let accepted = match accept(&asked) {
        Ok(accepted) => accepted,
        // Whatever a stream carries, it is not for this server to choose.
        Err(_) if streams => PLAIN,
        Err(status) => return answer::status(&status, PLAIN),
    };
    let (body, stream) = if streams {
        (Bytes::new(), Some(Stream::new(body, upgrade)))
    } else {
        match read(body).await {
            Ok(body) => (body, None),
            Err(status) => return answer::status(&status, accepted),
        }
    };
    let deprecation = kind.version(&resource.version).and_then(|version| version.deprecation.as_ref());
    let warnings = Mutex::new(deprecation.map(ToString::to_string).into_iter().collect());
    let stream = Mutex::new(stream);
    let call = Call { state: state.clone(), asked: &asked, resource, kind, accepted, user, body, stream, warnings };
    let served = verbs::serve(&call).await;
    let mut answer = served.unwrap_or_else(|status| answer::status(&status, accepted));
    answer::warn(&mut answer, &call.warnings.into_inner().expect("no holder panics"));
    answer
}

/// Who asks, and as whom they act.
fn identify(state: &State, asked: &Asked, peer: &Peer) -> Result<User, Status> {
    let user = state.authenticators.identify(&asked.headers, peer, state)?;
    let Some(wanted) = impersonation::wanted(&pairs(&asked.headers)).map_err(|status| *status)? else {
        return Ok(user);
    };
    let selectors = Selectors::of(&asked.info, &asked.query);
    let attributes = attributes(&asked.info, &user, &selectors);
    let trial = Trial::new(&wanted, &attributes, Gate::default());
    let acted = trial.run(|attributes| state.authorization.authorize(attributes)).map_err(|status| *status)?;
    Ok(acted.user)
}

/// The selectors of a list or watch, by which some may be allowed who may not see everything.
struct Selectors {
    fields: Vec<machinery::fields::Requirement>,
    labels: Vec<machinery::labels::Requirement>,
}

impl Selectors {
    fn of(info: &Info, query: &Query) -> Self {
        let (fields, labels) =
            auth::attributes::selectors(info.verb, query.text("fieldSelector"), query.text("labelSelector"));
        Self { fields, labels }
    }
}

/// A request as the authorizers see it.
fn attributes<'a>(info: &'a Info, user: &'a User, selectors: &'a Selectors) -> Attributes<'a> {
    let target = match &info.resource {
        None => Target::Path(&info.path),
        Some(resource) => Target::Resource(auth::Resource {
            group: &resource.group,
            version: &resource.version,
            resource: &resource.plural,
            subresource: &resource.subresource,
            namespace: &resource.namespace,
            name: &resource.name,
            field_selector: &selectors.fields,
            label_selector: &selectors.labels,
        }),
    };
    Attributes { user, verb: info.verb, target }
}

/// Refuses what no authorizer allows.
fn authorize(state: &State, asked: &Asked, user: &User) -> Result<(), Status> {
    let selectors = Selectors::of(&asked.info, &asked.query);
    let attributes = attributes(&asked.info, user, &selectors);
    match state.authorization.authorize(&attributes) {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => Err(attributes.forbidden(&reason)),
    }
}

/// Which form of the answer the client wants.
fn accept(asked: &Asked) -> Result<Accepted, Status> {
    const REPRESENTATIONS: &str = "406: Not Acceptable\n\nAvailable representations: application/json, \
        application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, \
        application/vnd.kubernetes.protobuf;stream=watch";
    let header = asked.headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let pretty = asked.query.flag("pretty");
    negotiate(header, pretty).map_err(|refused| match refused {
        Refused::Form => Status::not_acceptable(&registry::body::MEDIA_TYPES),
        Refused::Encoding => Status::failure(Reason::NotAcceptable, REPRESENTATIONS).with_details(Default::default()),
    })
}

/// The whole body, if it is not too large. What is too much is read and dropped for a while, because a client that is
/// still sending does not hear the answer.
async fn read<B>(body: B) -> Result<Bytes, Status>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut body = std::pin::pin!(body);
    let (mut read, mut whole) = (0, BytesMut::new());
    while let Some(frame) = body.as_mut().frame().await {
        let frame =
            frame.map_err(|error| Status::bad_request(format!("the body could not be read: {}", error.into())))?;
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

fn not_found_page() -> Answer {
    answer::text(404, "404 page not found\n")
}

/// The group is there, the resource or version is not.
pub fn not_served() -> Status {
    let message = "the server could not find the requested resource";
    Status::failure(Reason::NotFound, message).with_details(Default::default())
}

impl Asked {
    /// What the `Content-Type` says, empty if nothing.
    pub fn content_type(&self) -> &str {
        self.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The program that asks.
    pub fn user_agent(&self) -> &str {
        self.headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The name that the URL has, for a resource.
    pub fn resource(&self) -> Option<&Resource> {
        self.info.resource.as_ref()
    }
}
