//! SubjectAccessReview, LocalSubjectAccessReview and SelfSubjectAccessReview: parsing, validation and status.

mod selectors;
pub mod webhook;

use apimachinery::field::{self, BadValue, Errors};
use apimachinery::meta::Meta;
use apimachinery::status::{GroupName, Status};
use apimachinery::{Object, Path, Str, Value};

use crate::attributes::{OwnedAttributes, OwnedResource, OwnedTarget};
use crate::{Decision, User};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SubjectAccessReview.
    Subject,
    /// LocalSubjectAccessReview, limited to one namespace.
    LocalSubject,
    /// SelfSubjectAccessReview.
    SelfSubject,
}

/// A parsed review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Review {
    /// The attributes for the authorizers.
    pub question: OwnedAttributes,
    /// The parts that could not be interpreted. The status reports them.
    pub ignored: Vec<&'static str>,
}

/// Parses a review sent by `requester`, or returns the validation error. For a local review the metadata holds the
/// namespace of the request path.
pub fn read(kind: Kind, review: &Value, requester: &User) -> Result<Review, Status> {
    let errors = validate(kind, review);
    if !errors.is_empty() {
        // Upstream omits the kind in this error, which is visible to clients.
        return Err(Status::invalid(GroupName::new("authorization.k8s.io", ""), "", &errors));
    }
    let spec = &review["spec"];
    let text = |key: &str| Str::from(spec.text_at(&[key]));
    let user = match kind {
        Kind::SelfSubject => requester.clone(),
        Kind::Subject | Kind::LocalSubject => User { name: text("user"), ..User::from_parts(spec) },
    };
    Ok(match given(spec, "resourceAttributes") {
        Some(resource) => resource_question(user, resource),
        None => {
            let path = &spec["nonResourceAttributes"];
            let text = |key| Str::from(path.text_at(&[key]));
            Review {
                question: OwnedAttributes { user, verb: text("verb"), about: OwnedTarget::Path(text("path")) },
                ignored: Vec::new(),
            }
        }
    })
}

/// Returns the status of a review for a decision.
pub fn status(review: &Review, decision: &Decision) -> Value {
    let mut status = Object::new();
    let (allowed, denied, reason) = match decision {
        Decision::Allow(reason) => (true, false, reason),
        Decision::Deny(reason) => (false, true, reason),
        Decision::NoOpinion(reason) => (false, false, reason),
    };
    status.insert("allowed", allowed);
    if denied {
        status.insert("denied", true);
    }
    if !reason.is_empty() {
        status.insert("reason", reason.as_str());
    }
    if !review.ignored.is_empty() {
        status.insert("evaluationError", review.ignored.join("; "));
    }
    Value::Object(status)
}

/// Returns all validation errors of a review.
pub fn validate(kind: Kind, review: &Value) -> Errors {
    let (spec, at) = (&review["spec"], Path::of("spec"));
    let mut errors = Errors::new();
    let (resource, path) = (given(spec, "resourceAttributes"), given(spec, "nonResourceAttributes"));
    match (resource, path) {
        (Some(_), Some(path)) => {
            let detail = "cannot be specified in combination with resourceAttributes";
            errors.push(field::Error::invalid(&at.field("nonResourceAttributes"), path, detail));
        }
        (None, None) => {
            let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            errors.push(field::Error::invalid(&at.field("resourceAttributes"), Value::Null, detail));
        }
        _ => {}
    }
    let has_groups = spec.get("groups").and_then(Value::as_array).is_some_and(|groups| !groups.is_empty());
    if kind != Kind::SelfSubject && spec.text_at(&["user"]).is_empty() && !has_groups {
        errors.push(field::Error::invalid(&at.field("user"), "", "at least one of user or group must be specified"));
    }
    if let Some(resource) = resource {
        selectors::validate(resource, &at.field("resourceAttributes"), &mut errors);
    }
    validate_metadata(kind, review, &mut errors);
    if kind == Kind::LocalSubject {
        validate_scope(review, resource, path, &mut errors);
    }
    errors
}

/// Rejects metadata: a review is not stored, so metadata has no meaning.
fn validate_metadata(kind: Kind, review: &Value, errors: &mut Errors) {
    let Some(metadata) = review.get("metadata").and_then(Value::as_object) else { return };
    let allowed = |key: &str| key == "managedFields" || kind == Kind::LocalSubject && key == "namespace";
    let is_set = |value: &Value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => true,
    };
    if metadata.iter().any(|(key, value)| !allowed(key) && is_set(value)) {
        let detail = if kind == Kind::LocalSubject { "must be empty except for namespace" } else { "must be empty" };
        let bad_value = BadValue::Value(Value::Object(metadata.clone()));
        errors.push(field::Error::invalid(&Path::of("metadata"), bad_value, detail));
    }
}

fn validate_scope(review: &Value, resource: Option<&Value>, path: Option<&Value>, errors: &mut Errors) {
    let spec = Path::of("spec");
    if let Some(resource) = resource {
        let namespace = resource.text_at(&["namespace"]);
        if namespace != Meta::of(review).namespace() {
            let attributes = spec.field("resourceAttributes");
            let error =
                field::Error::invalid(&attributes.field("namespace"), namespace, "must match metadata.namespace");
            errors.push(error);
        }
    }
    if let Some(path) = path {
        let at = spec.field("nonResourceAttributes");
        errors.push(field::Error::invalid(&at, path, "disallowed on this kind of request"));
    }
}

fn resource_question(user: User, resource: &Value) -> Review {
    let text = |key: &str| Str::from(resource.text_at(&[key]));
    let mut ignored = Vec::new();
    let (field_selector, label_selector) = selectors::read(resource, &mut ignored);
    let version = Some(text("version")).filter(|version| !version.is_empty()).unwrap_or("*".into());
    let about = OwnedTarget::Resource(OwnedResource {
        group: text("group"),
        version,
        resource: text("resource"),
        subresource: text("subresource"),
        namespace: text("namespace"),
        name: text("name"),
        field_selector,
        label_selector,
    });
    Review { question: OwnedAttributes { user, verb: text("verb"), about }, ignored }
}

fn given<'a>(spec: &'a Value, key: &str) -> Option<&'a Value> {
    spec.get(key).filter(|value| !value.is_null())
}

#[cfg(test)]
mod tests;
