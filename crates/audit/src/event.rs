//! Audit events: the record of a request at one of its stages.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use apimachinery::time::Time;
use apimachinery::{Object, Str, Value, go};

use crate::policy::{Level, Stage};
use crate::request::User;

pub const API_VERSION: &str = "audit.k8s.io/v1";

/// The record of a request at one of its stages.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub level: Level,
    /// The unique ID of the request.
    pub audit_id: Str,
    pub stage: Stage,
    /// The URI as the client wrote it.
    pub request_uri: String,
    /// The API verb, or the HTTP method in lower case.
    pub verb: Str,
    pub user: User,
    pub impersonated_user: Option<User>,
    /// The verb that permitted a constrained impersonation.
    pub impersonation_constraint: Option<Str>,
    /// The client first, then the proxies in between.
    pub source_ips: Vec<Str>,
    pub user_agent: String,
    pub object_ref: Option<ObjectRef>,
    /// The fields of the response `Status`.
    pub response_status: Option<Value>,
    pub request_object: Option<Value>,
    pub response_object: Option<Value>,
    pub received_at: Time,
    pub stage_at: Time,
    pub annotations: BTreeMap<String, String>,
}

/// A reference to the object of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectRef {
    /// The plural name.
    pub resource: Str,
    pub namespace: Str,
    pub name: Str,
    pub uid: Str,
    pub api_group: Str,
    pub api_version: Str,
    pub resource_version: Str,
    pub subresource: Str,
}

impl Event {
    pub fn to_value(&self) -> Value {
        self.fields(Form::Standalone).into_value()
    }

    /// Returns the event as one line of JSON, with its fields in upstream's order.
    pub fn to_json(&self) -> String {
        self.fields(Form::Standalone).to_json()
    }

    /// Returns the number of bytes in the log, including the newline.
    pub fn size(&self) -> usize {
        self.to_json().len() + 1
    }

    /// Returns the fields in upstream's order.
    fn fields(&self, form: Form) -> Fields {
        let mut fields = Fields::default();
        if form == Form::Standalone {
            fields.always("kind", "Event");
            fields.always("apiVersion", API_VERSION);
        }
        fields.always("level", self.level.name());
        fields.always("auditID", self.audit_id.clone());
        fields.always("stage", self.stage.name());
        fields.always("requestURI", self.request_uri.as_str());
        fields.always("verb", self.verb.clone());
        fields.nested("user", Some(user(&self.user)));
        fields.nested("impersonatedUser", self.impersonated_user.as_ref().map(user));
        fields.nested("authenticationMetadata", self.impersonation_constraint.as_ref().map(constraint));
        fields.list("sourceIPs", &self.source_ips);
        fields.text("userAgent", &self.user_agent);
        fields.nested("objectRef", self.object_ref.as_ref().map(ObjectRef::fields));
        fields.nested("responseStatus", self.response_status.as_ref().map(status));
        fields.some("requestObject", self.request_object.as_ref());
        fields.some("responseObject", self.response_object.as_ref());
        fields.always("requestReceivedTimestamp", self.received_at.micro().to_string());
        fields.always("stageTimestamp", self.stage_at.micro().to_string());
        if !self.annotations.is_empty() {
            let annotations: Object = self.annotations.iter().map(|(key, value)| (&**key, &**value)).collect();
            fields.always("annotations", annotations);
        }
        fields
    }
}

impl ObjectRef {
    fn fields(&self) -> Fields {
        let mut fields = Fields::default();
        fields.text("resource", &self.resource);
        fields.text("namespace", &self.namespace);
        fields.text("name", &self.name);
        fields.text("uid", &self.uid);
        fields.text("apiGroup", &self.api_group);
        fields.text("apiVersion", &self.api_version);
        fields.text("resourceVersion", &self.resource_version);
        fields.text("subresource", &self.subresource);
        fields
    }
}

/// Returns an EventList as the body of a webhook call.
pub fn list_to_json(events: &[Event]) -> String {
    let items: Vec<String> = events.iter().map(|event| event.fields(Form::Item).to_json()).collect();
    format!(r#"{{"kind":"EventList","apiVersion":"{API_VERSION}","metadata":{{}},"items":[{}]}}"#, items.join(","))
}

/// Whether an event contains apiVersion and kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A single event, with apiVersion and kind.
    Standalone,
    /// A list item, without them.
    Item,
}

/// Fields in upstream's order, which the tree does not preserve.
#[derive(Default)]
struct Fields(Vec<(&'static str, Node)>);

enum Node {
    Value(Value),
    Fields(Fields),
}

impl Fields {
    fn always(&mut self, name: &'static str, value: impl Into<Value>) {
        self.0.push((name, Node::Value(value.into())));
    }

    fn some(&mut self, name: &'static str, value: Option<&Value>) {
        if let Some(value) = value {
            self.always(name, value.clone());
        }
    }

    fn nested(&mut self, name: &'static str, fields: Option<Self>) {
        self.0.extend(fields.map(|fields| (name, Node::Fields(fields))));
    }

    fn text(&mut self, name: &'static str, text: &str) {
        if !text.is_empty() {
            self.always(name, text);
        }
    }

    fn list(&mut self, name: &'static str, items: &[Str]) {
        if !items.is_empty() {
            self.always(name, strings(items));
        }
    }

    fn into_value(self) -> Value {
        let value = |node| match node {
            Node::Value(value) => value,
            Node::Fields(fields) => fields.into_value(),
        };
        Value::Object(self.0.into_iter().map(|(name, node)| (name, value(node))).collect())
    }

    /// Encodes each value as Go does.
    fn to_json(&self) -> String {
        let mut out = String::from("{");
        for (at, (name, node)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let value = match node {
                Node::Value(value) => go::json(value),
                Node::Fields(fields) => fields.to_json(),
            };
            write!(out, "{comma}\"{name}\":{value}").expect("writing to memory cannot fail");
        }
        out.push('}');
        out
    }
}

fn user(user: &User) -> Fields {
    let mut fields = Fields::default();
    fields.text("username", &user.username);
    fields.text("uid", &user.uid);
    fields.list("groups", &user.groups);
    if !user.extra.is_empty() {
        let extra: Object = user.extra.iter().map(|(key, values)| (key.clone(), strings(values))).collect();
        fields.always("extra", extra);
    }
    fields
}

fn constraint(verb: &Str) -> Fields {
    let mut fields = Fields::default();
    fields.text("impersonationConstraint", verb);
    fields
}

/// Returns the fields of a `Status`, which always has metadata, even if empty.
fn status(status: &Value) -> Fields {
    let mut fields = Fields::default();
    fields.always("metadata", Value::object());
    for name in ["status", "message", "reason", "details", "code"] {
        fields.some(name, status.get(name));
    }
    fields
}

fn strings(items: &[Str]) -> Value {
    Value::Array(items.iter().map(|item| Value::from(item.clone())).collect())
}
