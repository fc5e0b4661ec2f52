//! Authorization webhook: SubjectAccessReviews sent to the webhook, and its responses.

use apimachinery::{Object, Str, Value, fields, labels, value};

use crate::Decision;
use crate::attributes::{Attributes, Resource, Target};

/// The SubjectAccessReview version of a webhook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// `authorization.k8s.io/v1`
    #[default]
    V1,
    /// `authorization.k8s.io/v1beta1`, whose field for the groups is `group`.
    V1beta1,
}

/// The decision if a webhook fails or its response is invalid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The next authorizer decides.
    #[default]
    NoOpinion,
    /// The request is denied.
    Deny,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the webhook's response is not a SubjectAccessReview")]
    Kind,
    #[error("webhook subject access review returned both allow and deny response")]
    Both,
}

impl FailurePolicy {
    /// Returns the decision for a failed webhook.
    pub const fn decision(self) -> Decision {
        match self {
            Self::NoOpinion => Decision::NoOpinion(String::new()),
            Self::Deny => Decision::Deny(String::new()),
        }
    }
}

/// Returns the SubjectAccessReview for a request.
pub fn request(attributes: &Attributes<'_>, version: Version) -> Value {
    let mut spec = spec(attributes);
    if version == Version::V1beta1 {
        let spec = spec.as_object_mut().expect("the value was created as an object");
        if let Some(groups) = spec.remove("groups") {
            spec.insert("group", groups);
        }
    }
    let api_version = match version {
        Version::V1 => "authorization.k8s.io/v1",
        Version::V1beta1 => "authorization.k8s.io/v1beta1",
    };
    value!({
        "apiVersion": api_version, "kind": "SubjectAccessReview", "metadata": {}, "spec": spec, "status": {"allowed": false},
    })
}

/// Returns the decision in the response.
pub fn decision(response: &Value) -> Result<Decision, Error> {
    let status = response
        .get("status")
        .filter(|_| response.str_at(&["kind"]) == Some("SubjectAccessReview"))
        .ok_or(Error::Kind)?;
    let is = |key: &str| status.get(key).and_then(Value::as_bool).unwrap_or(false);
    let reason = status.text_at(&["reason"]).to_owned();
    match (is("allowed"), is("denied")) {
        (true, true) => Err(Error::Both),
        (true, false) => Ok(Decision::Allow(reason)),
        (false, true) => Ok(Decision::Deny(reason)),
        (false, false) => Ok(Decision::NoOpinion(reason)),
    }
}

/// Returns the review's spec for a request, without empty fields.
fn spec(attributes: &Attributes<'_>) -> Value {
    let user = attributes.user;
    let mut spec = user.to_user_info().as_object().cloned().unwrap_or_default();
    if let Some(name) = spec.remove("username") {
        spec.insert("user", name);
    }
    match attributes.target {
        Target::Path(path) => spec.insert("nonResourceAttributes", texts(&[("path", path), ("verb", attributes.verb)])),
        Target::Resource(resource) => {
            spec.insert("resourceAttributes", resource_attributes(attributes.verb, &resource))
        }
    };
    Value::Object(spec)
}

fn resource_attributes(verb: &str, resource: &Resource<'_>) -> Object {
    let mut out = texts(&[
        ("namespace", resource.namespace),
        ("verb", verb),
        ("group", resource.group),
        ("version", resource.version),
        ("resource", resource.resource),
        ("subresource", resource.subresource),
        ("name", resource.name),
    ]);
    let list = |requirements: Vec<Value>| value!({"requirements": requirements});
    if !resource.field_selector.is_empty() {
        out.insert("fieldSelector", list(resource.field_selector.iter().map(field_requirement).collect()));
    }
    if !resource.label_selector.is_empty() {
        out.insert("labelSelector", list(resource.label_selector.iter().filter_map(label_requirement).collect()));
    }
    out
}

fn texts(pairs: &[(&str, &str)]) -> Object {
    pairs.iter().filter(|(_, text)| !text.is_empty()).map(|(key, text)| (*key, *text)).collect()
}

fn field_requirement(requirement: &fields::Requirement) -> Value {
    let operator = match requirement.operator {
        fields::Operator::Equals => "In",
        fields::Operator::NotEquals => "NotIn",
    };
    value!({"key": (requirement.field.as_str()), "operator": operator, "values": [(requirement.value.as_str())]})
}

/// Returns a requirement of a review. Reviews have no operators for numeric comparison. Omitting such a requirement
/// requests broader access, which is safe.
fn label_requirement(requirement: &labels::Requirement) -> Option<Value> {
    let operator = match requirement.operator() {
        labels::Operator::Equals | labels::Operator::DoubleEquals | labels::Operator::In => "In",
        labels::Operator::NotEquals | labels::Operator::NotIn => "NotIn",
        labels::Operator::Exists => "Exists",
        labels::Operator::DoesNotExist => "DoesNotExist",
        labels::Operator::GreaterThan | labels::Operator::LessThan => return None,
    };
    let mut out: Object = [("key", requirement.key()), ("operator", operator)].into_iter().collect();
    let mut values: Vec<Str> = requirement.values().to_vec();
    if !values.is_empty() {
        values.sort_unstable();
        out.insert("values", Value::Array(values.into_iter().map(Value::String).collect()));
    }
    Some(Value::Object(out))
}

/// Returns the input of CEL match conditions, which includes empty fields.
pub fn condition_input(attributes: &Attributes<'_>) -> Value {
    let mut spec = spec(attributes).as_object().cloned().unwrap_or_default();
    for (key, empty) in [
        ("user", Value::from("")),
        ("uid", "".into()),
        ("groups", Value::Array(Vec::new())),
        ("extra", Value::object()),
    ] {
        spec.get_or_insert_with(key, || empty);
    }
    let fields: &[&str] = match attributes.target {
        Target::Path(_) => &["path", "verb"],
        Target::Resource(_) => &["namespace", "verb", "group", "version", "resource", "subresource", "name"],
    };
    for section in ["resourceAttributes", "nonResourceAttributes"] {
        if let Some(section) = spec.get_mut(section).and_then(Value::as_object_mut) {
            for word in fields {
                section.get_or_insert_with(word, || "".into());
            }
        }
    }
    Value::Object(spec)
}
