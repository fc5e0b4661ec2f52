//! AdmissionReview requests to webhooks, in a version that the webhook supports.

use api_registry::options::{DeleteOptions, Propagation, WriteOptions};
use apimachinery::field_validation::FieldValidation;
use apimachinery::{Object, Value, value};

use super::{Failure, Hook, VersionedKind};
use crate::Attributes;

/// The AdmissionReview versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    V1,
    V1beta1,
}

/// A request as a webhook sees it.
#[derive(Clone, Debug)]
pub struct Review {
    /// The AdmissionRequest without its objects.
    pub request: Value,
    /// The object in the webhook's version, or `null`.
    pub object: Value,
    /// The old object in the webhook's version, or `null`.
    pub old: Value,
}

impl Review {
    /// Creates the review of a write. The objects must already be in the matched version.
    pub fn of(attributes: &Attributes<'_>, seen: VersionedKind<'_>, uid: &str, object: Value, old: Value) -> Self {
        Self { request: attributes.admission_request(seen, uid), object, old }
    }

    /// Returns the UID that correlates the response.
    pub fn uid(&self) -> &str {
        self.request.text_at(&["uid"])
    }

    /// Returns the AdmissionReview to send.
    pub fn to_value(&self, version: ReviewVersion) -> Value {
        let mut request = self.request.clone();
        if let Value::Object(fields) = &mut request {
            fields.insert("object", self.object.clone());
            fields.insert("oldObject", self.old.clone());
        }
        value!({"apiVersion": (version.api_version()), "kind": "AdmissionReview", "request": request})
    }
}

impl ReviewVersion {
    /// Returns the apiVersion, for example `admission.k8s.io/v1`.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

impl Hook {
    /// Returns the first of the webhook's versions that is supported. Fails if the dry-run check rejects the request.
    pub fn review_version(&self, attributes: &Attributes<'_>) -> Result<ReviewVersion, Failure> {
        self.check_dry_run(attributes)?;
        let known = |version: &Value| match version.as_str() {
            Some("v1") => Some(ReviewVersion::V1),
            Some("v1beta1") => Some(ReviewVersion::V1beta1),
            _ => None,
        };
        self.entry.list_at(&["admissionReviewVersions"]).iter().find_map(known).ok_or_else(|| {
            let message = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            Failure::Call(format!("could not create admission objects: {message}"))
        })
    }
}

/// Returns the options of a write as an object; `kind` is `CreateOptions` or `UpdateOptions`.
pub fn write_options(kind: &str, options: &WriteOptions) -> Value {
    let mut out = options_of(kind, options.dry_run);
    if !options.field_manager.is_empty() {
        out.insert("fieldManager", options.field_manager.as_str());
    }
    let mode = match options.field_validation {
        FieldValidation::Ignore => "Ignore",
        FieldValidation::Strict => "Strict",
        FieldValidation::Warn => return Value::Object(out),
    };
    out.insert("fieldValidation", mode);
    Value::Object(out)
}

/// Returns the options of a delete as an object.
pub fn delete_options(options: &DeleteOptions) -> Value {
    let mut out = options_of("DeleteOptions", options.dry_run);
    if let Some(seconds) = options.grace_period_seconds {
        out.insert("gracePeriodSeconds", seconds);
    }
    let mut preconditions = Object::new();
    for (key, text) in [("uid", &options.uid), ("resourceVersion", &options.resource_version)] {
        if let Some(text) = text {
            preconditions.insert(key, text.as_str());
        }
    }
    if preconditions.iter().next().is_some() {
        out.insert("preconditions", preconditions);
    }
    let policy = match options.propagation {
        Some(Propagation::Orphan) => "Orphan",
        Some(Propagation::Background) => "Background",
        Some(Propagation::Foreground) => "Foreground",
        None => return Value::Object(out),
    };
    out.insert("propagationPolicy", policy);
    Value::Object(out)
}

fn options_of(kind: &str, dry_run: bool) -> Object {
    let mut out = Object::new();
    out.insert("apiVersion", "meta.k8s.io/v1");
    out.insert("kind", kind);
    if dry_run {
        out.insert("dryRun", vec![Value::from("All")]);
    }
    out
}
