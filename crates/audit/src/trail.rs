//! Audit trail of one request: collects its data and creates an event at each stage.
//!
//! ```text
//!  begin ──> received ──> (annotate, request_object, …) ──> responds ──> complete
//!                                                              └───────> panicked
//! ```

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use apimachinery::meta::Meta;
use apimachinery::time::{Duration, Time};
use apimachinery::{Object, Str, Value, json, value};

use crate::event::{Event, ObjectRef};
use crate::policy::{AuditDecision, Level, Stage};
use crate::request::{Attributes, Target, User};

/// Annotation key of the authorization decision.
pub const AUTHORIZATION_DECISION: &str = "authorization.k8s.io/decision";
/// Annotation key of the authorization reason.
pub const AUTHORIZATION_REASON: &str = "authorization.k8s.io/reason";
/// Annotation key of a request for a deprecated API version.
pub const DEPRECATED: &str = "k8s.io/deprecated";
/// Annotation key of the release that removes the API version.
pub const REMOVED_RELEASE: &str = "k8s.io/removed-release";
/// Prefix of the annotations with the latencies of a slow request.
const LATENCY: &str = "apiserver.latency.k8s.io/";
/// Requests that take longer get latency annotations.
const SLOW: Duration = Duration::from_nanos(500_000_000);

const USER_AGENT_MAX: usize = 1024;
const USER_AGENT_CUT: &str = "...TRUNCATED";

/// Maximum number of annotations per request.
const ANNOTATIONS_MAX: usize = 1000;

/// A request at its arrival.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedRequest<'a> {
    /// The unique ID of the request.
    pub audit_id: &'a str,
    /// The URI as the client wrote it.
    pub request_uri: &'a str,
    pub user_agent: &'a str,
    pub source_ips: &'a [Str],
    /// The arrival time.
    pub at: Time,
    pub attributes: Attributes<'a>,
}

/// The expected duration of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// The request completes with its response.
    Short,
    /// The request is long-running, such as a watch, and also gets a ResponseStarted event.
    LongRunning,
}

/// An authorization decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow,
    Forbid,
}

/// The audit trail of a request.
#[derive(Clone, Debug)]
pub struct Trail {
    event: Event,
    verdict: AuditDecision,
    length: Length,
    has_response: bool,
}

impl Trail {
    /// Starts the trail of a request. Returns `None` if the level is `None`.
    pub fn start(verdict: AuditDecision, received: &ReceivedRequest<'_>, length: Length) -> Option<Self> {
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

    pub const fn level(&self) -> Level {
        self.event.level
    }

    /// Returns the RequestReceived event. In the mode blocking-strict the request fails if the event cannot be written.
    pub fn received(&mut self) -> Option<Event> {
        let at = self.event.received_at;
        self.at_stage(Stage::RequestReceived, at)
    }

    /// Records the impersonated user. `constraint` is the verb that permitted a constrained impersonation.
    pub fn impersonates(&mut self, user: User, constraint: Option<&str>) {
        self.event.impersonated_user = Some(user);
        self.event.impersonation_constraint = constraint.map(Str::from);
    }

    /// Adds an annotation unless the key exists. Returns whether the key now has this value.
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

    /// Records the authorization decision and its reason.
    pub fn authorized(&mut self, decision: Decision, reason: &str) {
        let decision = match decision {
            Decision::Allow => "allow",
            Decision::Forbid => "forbid",
        };
        self.annotate(AUTHORIZATION_DECISION, decision);
        self.annotate(AUTHORIZATION_REASON, reason);
    }

    /// Adds the latencies of a slow request: total, and per layer such as `etcd` or `apf-queue-wait`.
    pub fn took(&mut self, total: Duration, layers: &[(&str, Duration)]) {
        if total <= SLOW {
            return;
        }
        for (layer, time) in layers.iter().filter(|(_, time)| time.nanos() > 0) {
            self.annotate(format!("{LATENCY}{layer}"), time.to_string());
        }
        self.annotate(format!("{LATENCY}total"), total.to_string());
    }

    /// Records the request object in the request's version, and its resource.
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

    /// Records the request patch; one that is not JSON is omitted.
    pub fn request_patch(&mut self, patch: &[u8]) {
        if self.event.level >= Level::Request {
            self.event.request_object = json::parse(patch).ok();
        }
    }

    /// Records the response object.
    pub fn response_object(&mut self, object: &Value) {
        if object.str_at(&["kind"]) == Some("Status") && object.str_at(&["apiVersion"]) == Some("v1") {
            let fields = ["status", "message", "reason", "details", "code"];
            let status_fields = fields.iter().filter_map(|field| Some((*field, object.get(field)?.clone())));
            self.event.response_status = Some(Value::Object(status_fields.collect()));
        }
        if self.event.level >= Level::RequestResponse {
            self.event.response_object = Some(self.cleaned(object));
        }
    }

    /// Records that the response headers were sent. Returns the ResponseStarted event of long-running requests.
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

    /// Completes the request and returns the remaining events.
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

    /// Returns the Panic event.
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

    /// Creates the last event by moving the trail's objects instead of copying them.
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

/// Removes the managedFields of an object, of list items, and of the objects in table rows.
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
