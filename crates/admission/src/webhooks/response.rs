//! AdmissionReview responses of webhooks: warnings, audit annotations, patches and rejections.

use apimachinery::patch::json::Patch;
use apimachinery::status::Status;
use apimachinery::{Object, Value, go, json};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::{Hook, Phase, Review, ReviewVersion};
use crate::Notes;

/// The response of a webhook.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdmissionResponse {
    allowed: bool,
    /// The Status of a rejection, possibly incomplete.
    result: Value,
    patch: Vec<u8>,
    patch_type: String,
    audit: Vec<(String, String)>,
    warnings: Vec<String>,
}

/// Reasons why a webhook did not admit a request.
#[derive(Debug)]
pub enum Failure {
    /// The call failed or the response is invalid; the failure policy decides.
    Call(String),
    /// The webhook rejected the request.
    Rejected(Box<Status>),
    /// The webhook's patch cannot be applied.
    InvalidPatch(Box<Status>),
}

impl AdmissionResponse {
    /// Parses the response to a review.
    pub fn read(phase: Phase, version: ReviewVersion, review: &Review, reply: &Value) -> Result<Self, Failure> {
        verify(phase, version, review.uid(), reply)
            .map_err(|error| Failure::Call(format!("received invalid webhook response: {error}")))
    }

    /// Adds the webhook's warnings and audit annotations to `notes`. Returns its patch, or its rejection.
    pub fn take(self, hook: &Hook, notes: &mut Notes) -> Result<Option<Patch>, Failure> {
        notes.audit.extend(self.audit.into_iter().map(|(key, value)| (format!("{}/{key}", hook.name), value)));
        notes.warnings.extend(self.warnings);
        if !self.allowed {
            return Err(Failure::Rejected(Box::new(denied(&hook.name, &self.result))));
        }
        if self.patch.is_empty() {
            return Ok(None);
        }
        let internal = |message: String| Failure::InvalidPatch(Box::new(Status::internal_error(message)));
        let patch = json::parse(&self.patch).map_err(|error| internal(error.to_string()))?;
        if patch.as_array().is_some_and(<[_]>::is_empty) || patch.is_null() {
            return Ok(None);
        }
        if self.patch_type != "JSONPatch" {
            return Err(Failure::Call(format!("unsupported patch type {}", go::quote(&self.patch_type))));
        }
        Patch::new(patch).map(Some).map_err(|error| internal(error.to_string()))
    }
}

impl Hook {
    /// Applies a patch to the object that the webhook saw.
    pub fn patched(&self, original: &Value, patch: Patch) -> Result<Value, Failure> {
        let internal = |message: String| Failure::InvalidPatch(Box::new(Status::internal_error(message)));
        if original.is_null() {
            let name = go::quote(&self.name);
            let message = "attempted to modify the object, which is not supported for this operation";
            return Err(internal(format!("admission webhook {name} {message}")));
        }
        patch.apply(original.clone()).map_err(|error| {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            internal(format!("{error}{cause}"))
        })
    }

    /// Adds the audit annotations of a mutating webhook call.
    pub fn note_mutation(&self, (round, at): (usize, usize), changed: bool, notes: &mut Notes) {
        let mut note = Object::new();
        note.insert("configuration", self.configuration.as_str());
        note.insert("webhook", self.name.as_str());
        note.insert("mutated", changed);
        let key = format!("mutation.webhook.admission.k8s.io/round_{round}_index_{at}");
        notes.audit.push((key, json::to_string(&Value::Object(note))));
    }
}

fn verify(phase: Phase, version: ReviewVersion, uid: &str, reply: &Value) -> Result<AdmissionResponse, String> {
    let response = reply.get("response").filter(|response| !response.is_null());
    let response = response.ok_or("webhook response was absent")?;
    let text = |field: &str| response.text_at(&[field]);
    if version == ReviewVersion::V1 {
        if text("uid") != uid {
            return Err(format!("expected response.uid={}, got {}", go::quote(uid), go::quote(text("uid"))));
        }
        let field_text = |field: &str| reply.text_at(&[field]);
        let expected = version.api_version();
        if field_text("apiVersion") != expected || field_text("kind") != "AdmissionReview" {
            let (api_version, kind) = (field_text("apiVersion"), field_text("kind"));
            let api_version = if api_version.is_empty() { "/" } else { api_version };
            return Err(format!(
                "expected webhook response of {expected}, Kind=AdmissionReview, got {api_version}, Kind={kind}"
            ));
        }
    }
    let allowed = match response.get("allowed") {
        None => false,
        Some(Value::Bool(allowed)) => *allowed,
        Some(_) => return Err("response.allowed is not a boolean".to_owned()),
    };
    let (patch, patch_type) = patch_of(phase, version, response)?;
    let strings = |field: &str| response.get(field).and_then(Value::as_object).into_iter().flat_map(Object::iter);
    Ok(AdmissionResponse {
        allowed,
        result: response.get("status").cloned().unwrap_or_default(),
        patch,
        patch_type,
        audit: strings("auditAnnotations")
            .filter_map(|(key, value)| Some((key.to_owned(), value.as_str()?.to_owned())))
            .collect(),
        warnings: response
            .list_at(&["warnings"])
            .iter()
            .filter_map(|warning| warning.as_str().map(str::to_owned))
            .collect(),
    })
}

fn patch_of(phase: Phase, version: ReviewVersion, response: &Value) -> Result<(Vec<u8>, String), String> {
    let encoded = response.text_at(&["patch"]);
    let patch = BASE64.decode(encoded).map_err(|error| format!("response.patch is not base64: {error}"))?;
    let patch_type = response.str_at(&["patchType"]);
    match (phase, version) {
        (Phase::Mutating, ReviewVersion::V1) => match patch_type {
            None if !patch.is_empty() => Err("webhook returned response.patch but not response.patchType".to_owned()),
            Some(_) if patch.is_empty() => Err("webhook returned response.patchType but not response.patch".to_owned()),
            Some("") => Err("webhook returned invalid response.patchType of \"\"".to_owned()),
            patch_type => Ok((patch, patch_type.unwrap_or_default().to_owned())),
        },
        // In v1beta1 the patch type was never checked.
        (Phase::Mutating, ReviewVersion::V1beta1) => Ok((patch, "JSONPatch".to_owned())),
        (Phase::Validating, ReviewVersion::V1) if !patch.is_empty() => {
            Err("validating webhook may not return response.patch".to_owned())
        }
        (Phase::Validating, ReviewVersion::V1) if patch_type.is_some() => {
            Err("validating webhook may not return response.patchType".to_owned())
        }
        (Phase::Validating, _) => Ok((Vec::new(), String::new())),
    }
}

/// Returns the rejection with the webhook's message, never with a success code.
fn denied(name: &str, result: &Value) -> Status {
    const BAD_REQUEST: u16 = 400;
    let by = format!("admission webhook {} denied the request", go::quote(name));
    let mut whole = result.as_object().cloned().unwrap_or_default();
    whole.insert("kind", "Status");
    let mut status = Status::from_value(&Value::Object(whole)).expect("the kind of the object was set above");
    status.success = false;
    status.code = status.code.max(BAD_REQUEST);
    status.message = match (status.message.as_str(), status.reason.name()) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    status
}
