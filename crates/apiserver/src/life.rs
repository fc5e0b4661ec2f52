//! The life of a request, in the order in which it happens.

use std::sync::Arc;

use auth::{Attributes, Authorizer, Decision, Target, User};
use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use machinery::status::{GroupName, Reason, Status};
use registry::accept::{Accepted, Encoding, Form, Refused, negotiate};
use registry::query::Query;
use registry::route::{Info, Resource};

use crate::answer::{self, Answer};
use crate::authentication::Peer;
use crate::documents;
use crate::state::State;
use crate::table::Found;
use crate::verbs::{self, Call};

/// No body may be larger: upstream's limit.
const BODY_BYTES_MAX: usize = 3 << 20;

/// A failure is told in JSON if nothing else is known of the client.
const PLAIN: Accepted = Accepted { encoding: Encoding::Json, form: Form::Whole, pretty: false };

/// What is known of a request before its body is read.
pub struct Asked {
    /// The method.
    pub method: Method,
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
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let guarded = std::panic::AssertUnwindSafe(live(&state, &peer, request)).catch_unwind().await;
    guarded.unwrap_or_else(|_| {
        let message = "This request caused apiserver to panic. Look in the logs for details.";
        answer::status(&Status::internal_error(message), PLAIN)
    })
}

async fn live<B>(state: &Arc<State>, peer: &Peer, request: Request<B>) -> Answer
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (parts, body) = request.into_parts();
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let info = Info::of(parts.method.as_str(), parts.uri.path(), &query);
    let asked = Asked { method: parts.method, headers: parts.headers, query, info };
    let user = match identify(state, &asked, peer) {
        Ok(user) => user,
        Err(status) => return answer::status(&status, PLAIN),
    };
    if let Err(status) = authorize(state, &asked.info, &user) {
        return answer::status(&status, PLAIN);
    }
    let Some(resource) = &asked.info.resource else {
        return documents::serve(state, &asked.info.path, &asked.query).unwrap_or_else(not_found_page);
    };
    let kind = match state.table().find(&resource.group, &resource.version, &resource.plural) {
        Found::Kind(kind) => kind,
        Found::NotServed => return answer::status(&not_served(), PLAIN),
        Found::NoGroup => return not_found_page(),
    };
    let accepted = match accept(&asked) {
        Ok(accepted) => accepted,
        Err(status) => return answer::status(&status, PLAIN),
    };
    let body = match read(body).await {
        Ok(body) => body,
        Err(status) => return answer::status(&status, accepted),
    };
    let call = Call { state: state.clone(), asked: &asked, resource, kind, accepted, user, body };
    match verbs::serve(&call).await {
        Ok(answer) => answer,
        Err(status) => answer::status(&status, accepted),
    }
}

/// Who asks, and as whom they act.
fn identify(state: &State, asked: &Asked, peer: &Peer) -> Result<User, Status> {
    let user = state.authenticators.identify(&asked.headers, peer)?;
    impersonate(state, &asked.headers, user)
}

/// Acts as another, if that is asked for and allowed.
fn impersonate(state: &State, headers: &HeaderMap, user: User) -> Result<User, Status> {
    let all = |name: &str| headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect::<Vec<_>>();
    let name = all("impersonate-user").first().copied().unwrap_or_default();
    let groups = all("impersonate-group");
    let uid = all("impersonate-uid").first().copied().unwrap_or_default();
    if name.is_empty() {
        return if groups.is_empty() && uid.is_empty() {
            Ok(user)
        } else {
            let list: Vec<String> = groups.iter().map(|group| format!("{group:?}")).collect();
            let groups =
                if list.is_empty() { "[]string(nil)".to_owned() } else { format!("[]string{{{}}}", list.join(", ")) };
            Err(Status::bad_request(format!(
                "requested &user.DefaultInfo{{Name:\"\", UID:{uid:?}, Groups:{groups}, Extra:map[string][]string(nil)}} \
                 without impersonating a user name"
            )))
        };
    }
    let mut wanted = User { name: name.into(), uid: uid.into(), ..User::default() };
    let check = |resource: &str, namespace: &str, name: &str| {
        let resource = auth::Resource { resource, namespace, name, ..auth::Resource::default() };
        allow(state, &Attributes { user: &user, verb: "impersonate", target: Target::Resource(resource) })
    };
    if let Some((namespace, account)) = auth::service_account::parse(name) {
        check("serviceaccounts", namespace, account)?;
        if groups.is_empty() {
            wanted.groups = auth::service_account::user(namespace, account, "").groups;
        }
    } else {
        check("users", "", name)?;
    }
    for group in groups {
        check("groups", "", group)?;
        wanted.groups.push(group.into());
    }
    if name == auth::user::ANONYMOUS {
        wanted.join(auth::user::UNAUTHENTICATED);
    } else if !wanted.is_in(auth::user::UNAUTHENTICATED) {
        wanted.join(auth::user::AUTHENTICATED);
    }
    Ok(wanted)
}

fn authorize(state: &State, info: &Info, user: &User) -> Result<(), Status> {
    let target = match &info.resource {
        None => Target::Path(&info.path),
        Some(resource) => Target::Resource(auth::Resource {
            group: &resource.group,
            version: &resource.version,
            resource: &resource.plural,
            subresource: &resource.subresource,
            namespace: &resource.namespace,
            name: &resource.name,
        }),
    };
    allow(state, &Attributes { user, verb: info.verb, target })
}

/// Refuses what no authorizer allows, in the words of Kubernetes.
fn allow(state: &State, attributes: &Attributes<'_>) -> Result<(), Status> {
    let reason = match state.authorization.authorize(attributes) {
        Decision::Allow(_) => return Ok(()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => reason,
    };
    let mut refusal = attributes.refusal();
    if !reason.is_empty() {
        refusal = format!("{refusal}: {reason}");
    }
    Err(match attributes.target {
        Target::Resource(resource) => {
            Status::forbidden(GroupName::new(resource.group, resource.resource), resource.name, refusal)
        }
        Target::Path(_) => Status::forbidden(GroupName::default(), "", refusal),
    })
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

/// The whole body, if it is not too large.
async fn read<B>(body: B) -> Result<Bytes, Status>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let message = format!("Request entity too large: limit is {BODY_BYTES_MAX}");
            Err(Status::failure(Reason::RequestEntityTooLarge, message))
        }
        Err(error) => Err(Status::bad_request(format!("the body could not be read: {error}"))),
    }
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
