//! The trail of one request: what becomes known of it on its way, and an event at each of its stages.
//!
//! ```text
//!  begin ──> received ──> (annotate, request_object, …) ──> responds ──> complete
//!                                                              └───────> panicked
//! ```

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use machinery::meta::Meta;
use machinery::time::{Duration, Time};
use machinery::{Object, Str, Value, json, value};

use crate::event::{Event, ObjectRef};
use crate::policy::{Level, Stage, Verdict};
use crate::request::{Attributes, Target, User};

/// The annotation that says what the authorizer decided.
pub const AUTHORIZATION_DECISION: &str = "authorization.k8s.io/decision";
/// The annotation that says why.
pub const AUTHORIZATION_REASON: &str = "authorization.k8s.io/reason";
/// The annotation of a request for a version that is going away.
pub const DEPRECATED: &str = "k8s.io/deprecated";
/// The annotation that says when it goes.
pub const REMOVED_RELEASE: &str = "k8s.io/removed-release";
/// What the annotations begin with that say where a slow request spent its time.
const LATENCY: &str = "apiserver.latency.k8s.io/";
/// Requests that take longer say where they spent their time.
const SLOW: Duration = Duration::from_nanos(500_000_000);

const USER_AGENT_MAX: usize = 1024;
const USER_AGENT_CUT: &str = "...TRUNCATED";

/// The annotations of a request, as many as anybody could want.
const ANNOTATIONS_MAX: usize = 1000;

/// A request as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// What tells it from all others.
    pub audit_id: &'a str,
    /// What the client asked for, as it wrote it.
    pub request_uri: &'a str,
    /// What the client says it is.
    pub user_agent: &'a str,
    /// Where it came from.
    pub source_ips: &'a [Str],
    /// When it came.
    pub at: Time,
    /// Who wants what.
    pub attributes: Attributes<'a>,
}

/// How long a request runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Until it is answered.
    Short,
    /// For as long as the client likes, such as a watch: the begin of its answer is an event of its own.
    LongRunning,
}

/// What was decided about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It may.
    Allow,
    /// It may not.
    Forbid,
}

/// What is known of a request so far.
#[derive(Clone, Debug)]
pub struct Trail {
    event: Event,
    verdict: Verdict,
    length: Length,
    has_response: bool,
}

impl Trail {
    /// A request that arrived, if anything is to be written down about it.
    pub fn begin(verdict: Verdict, received: &Received<'_>, length: Length) -> Option<Self> {
        if verdict.level == Level::None {
            return None;
        }
        let attributes = &received.attributes;
        let event = Event {
            level: verdict.level,
            audit_id: received.audit_id.into(),
            stage: Stage::RequestReceived,
            request_uri: received.request_uri.to_owned(),
            verb: attributes.verb.into(),
            user: attributes.user.clone(),
            impersonated_user: None,
            impersonation_constraint: None,
            source_ips: received.source_ips.to_vec(),
            user_agent: cut_user_agent(received.user_agent),
            object_ref: object_ref(attributes.target),
            response_status: None,
            request_object: None,
            response_object: None,
            received_at: received.at,
            stage_at: received.at,
            annotations: BTreeMap::new(),
        };
        Some(Self { event, verdict, length, has_response: false })
    }

    /// How much is written down.
    pub const fn level(&self) -> Level {
        self.event.level
    }

    /// The event of its arrival. If that cannot be written and the log is strict, the request fails.
    pub fn received(&mut self) -> Option<Event> {
        let at = self.event.received_at;
        self.at_stage(Stage::RequestReceived, at)
    }

    /// Somebody asks as somebody else. `constraint` is the verb that allowed it, if it allows only some of it.
    pub fn impersonates(&mut self, user: User, constraint: Option<&str>) {
        self.event.impersonated_user = Some(user);
        self.event.impersonation_constraint = constraint.map(Str::from);
    }

    /// Notes something. What was noted first stays; tells whether this is what stands there now.
    pub fn annotate(&mut self, key: impl Into<String>, text: impl Into<String>) -> bool {
        let (count, text) = (self.event.annotations.len(), text.into());
        match self.event.annotations.entry(key.into()) {
            Entry::Occupied(there) => *there.get() == text,
            Entry::Vacant(_) if count >= ANNOTATIONS_MAX => false,
            Entry::Vacant(free) => {
                free.insert(text);
                true
            }
        }
    }

    /// Notes what the authorizer decided, and why.
    pub fn authorized(&mut self, decision: Decision, reason: &str) {
        let decision = match decision {
            Decision::Allow => "allow",
            Decision::Forbid => "forbid",
        };
        self.annotate(AUTHORIZATION_DECISION, decision);
        self.annotate(AUTHORIZATION_REASON, reason);
    }

    /// Notes where a slow request spent its time: in all, and in layers such as `etcd` or `apf-queue-wait`.
    pub fn took(&mut self, total: Duration, layers: &[(&str, Duration)]) {
        if total <= SLOW {
            return;
        }
        for (layer, time) in layers.iter().filter(|(_, time)| time.nanos() > 0) {
            self.annotate(format!("{LATENCY}{layer}"), time.to_string());
        }
        self.annotate(format!("{LATENCY}total"), total.to_string());
    }

    /// The object that was sent, in the version in which it was sent, and the resource that it was sent to.
    pub fn request_object(&mut self, object: &Value, target: Target<'_>) {
        let meta = Meta::of(object);
        let reference = self.event.object_ref.get_or_insert_default();
        complete(&mut reference.namespace, meta.namespace());
        complete(&mut reference.name, meta.name());
        complete(&mut reference.uid, meta.uid());
        complete(&mut reference.resource_version, meta.resource_version());
        if let Target::Resource { group, version, resource, subresource, .. } = target {
            if reference.api_version.is_empty() {
                (reference.api_group, reference.api_version) = (group.into(), version.into());
            }
            complete(&mut reference.resource, resource);
            complete(&mut reference.subresource, subresource);
        }
        if self.event.level >= Level::Request {
            self.event.request_object = Some(self.cleaned(object));
        }
    }

    /// The patch that was sent. One that is no JSON is not written.
    pub fn request_patch(&mut self, patch: &[u8]) {
        if self.event.level >= Level::Request {
            self.event.request_object = json::parse(patch).ok();
        }
    }

    /// The object that is answered.
    pub fn response_object(&mut self, object: &Value) {
        if object.str_at(&["kind"]) == Some("Status") && object.str_at(&["apiVersion"]) == Some("v1") {
            let fields = ["status", "message", "reason", "details", "code"];
            let kept = fields.iter().filter_map(|field| Some((*field, object.get(field)?.clone())));
            self.event.response_status = Some(Value::Object(kept.collect()));
        }
        if self.event.level >= Level::RequestResponse {
            self.event.response_object = Some(self.cleaned(object));
        }
    }

    /// The head of the answer is sent. Its event is written for requests that run long.
    pub fn responds(&mut self, code: u16, now: Time) -> Option<Event> {
        if self.has_response {
            return None;
        }
        self.has_response = true;
        let status = self.event.response_status.get_or_insert_with(Value::object);
        status.as_object_mut().expect("a status is an object").insert("code", i64::from(code));
        if self.length == Length::Short {
            return None;
        }
        self.at_stage(Stage::ResponseStarted, now)
    }

    /// The request is over.
    pub fn complete(mut self, now: Time) -> Vec<Event> {
        let mut events = Vec::new();
        if self.event.response_status.is_none() {
            let status = value!({"status": "Success", "message": "Connection closed early", "code": 200});
            self.event.response_status = Some(status);
            if self.length == Length::LongRunning {
                events.extend(self.at_stage(Stage::ResponseStarted, now));
            }
        }
        events.extend(self.at_last_stage(Stage::ResponseComplete, now));
        events
    }

    /// The server stumbled over the request.
    pub fn panicked(mut self, message: &str, now: Time) -> Option<Event> {
        let message = format!("APIServer panic'd: {message}");
        let status = value!({"status": "Failure", "message": message, "reason": "InternalError", "code": 500});
        self.event.response_status = Some(status);
        self.at_last_stage(Stage::Panic, now)
    }

    fn at_stage(&mut self, stage: Stage, at: Time) -> Option<Event> {
        self.event.stage = stage;
        if self.verdict.omit_stages.has(stage) {
            return None;
        }
        self.event.stage_at = at;
        Some(self.event.clone())
    }

    /// The objects of the last event need not be copied.
    fn at_last_stage(mut self, stage: Stage, at: Time) -> Option<Event> {
        (self.event.stage, self.event.stage_at) = (stage, at);
        (!self.verdict.omit_stages.has(stage)).then_some(self.event)
    }

    fn cleaned(&self, object: &Value) -> Value {
        let mut object = object.clone();
        if self.verdict.omit_managed_fields {
            drop_managed_fields(&mut object);
        }
        object
    }
}

/// Drops the managed fields of an object, of the items of a list, and of the objects in the rows of a table.
fn drop_managed_fields(object: &mut Value) {
    drop_own_managed_fields(object);
    for (list, within) in [("items", None), ("rows", Some("object"))] {
        for item in object.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            match within {
                None => drop_own_managed_fields(item),
                Some(field) => item.get_mut(field).into_iter().for_each(drop_own_managed_fields),
            }
        }
    }
}

fn drop_own_managed_fields(object: &mut Value) {
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        Object::remove(meta, "managedFields");
    }
}

fn object_ref(target: Target<'_>) -> Option<ObjectRef> {
    let Target::Resource { group, version, resource, subresource, namespace, name } = target else { return None };
    Some(ObjectRef {
        resource: resource.into(),
        namespace: namespace.into(),
        name: name.into(),
        api_group: group.into(),
        api_version: version.into(),
        subresource: subresource.into(),
        ..ObjectRef::default()
    })
}

fn complete(field: &mut Str, text: &str) {
    if field.is_empty() {
        *field = text.into();
    }
}

fn cut_user_agent(agent: &str) -> String {
    if agent.len() <= USER_AGENT_MAX {
        return agent.to_owned();
    }
    format!("{}{USER_AGENT_CUT}", &agent[..agent.floor_char_boundary(USER_AGENT_MAX)])
}

#[cfg(test)]
pub(crate) mod tests;
