//! CertificateSigningRequest: a certificate request with its approval and the issued certificate.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::{Scope, name_is_path_segment};
use apimachinery::table::human_duration;
use apimachinery::time::Duration;
use apimachinery::{At, Errors, Object, Value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::pem;
use super::request::CertificateRequest;
use crate::field_rules::{column, keep, keep_all_but};
use crate::kind::{
    Context, Kind, Requester, Rules, Selectable, Subresource, UpdateChecks, age_column, name_column, names,
};

const EXPIRATION_SECONDS_MIN: i64 = 600;

const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

pub fn kind() -> Kind {
    Kind {
        short_names: names(&["csr"]),
        scope: Scope::Cluster,
        subresources: vec![Subresource::updatable("approval"), Subresource::status()],
        selectable: vec![Selectable::new("spec.signerName", |object| object.text_at(&["spec", "signerName"]).into())],
        name_rule: name_is_path_segment,
        update_checks: UpdateChecks { whole: 1, change: 1 },
        rules: Arc::new(CertificateSigningRequest),
        ..Kind::stored("certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests")
    }
    .with_columns(&[
        name_column(),
        age_column(),
        column("SignerName", "string", "Signer of the certificate.", |object, _| {
            object.str_at(&["spec", "signerName"]).filter(|name| !name.is_empty()).unwrap_or("<none>").into()
        }),
        column("Requestor", "string", "User who created the request.", |object, _| {
            object.text_at(&["spec", "username"]).into()
        }),
        column("RequestedDuration", "string", "Requested validity of the certificate.", |object, _| {
            let seconds = object.int_at(&["spec", "expirationSeconds"]);
            seconds.map_or_else(|| "<none>".into(), |seconds| human_duration(Duration::from_seconds(seconds)).into())
        }),
        column("Condition", "string", "State of the object.", |object, _| condition(object).into()),
    ])
}

#[derive(Debug)]
struct CertificateSigningRequest;

impl Rules for CertificateSigningRequest {
    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        // The spec is immutable and the server sets the requester, so no client manages these fields.
        if subresource.is_empty() { &["spec", "status"] } else { &["spec"] }
    }

    fn prepare_create(&self, object: &mut Value, context: &Context<'_>) {
        let Some(object) = object.as_object_mut() else { return };
        object.remove("status");
        if let Some(spec) = object.get_or_insert_with("spec", Value::object).as_object_mut() {
            record(spec, context.requester);
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        keep_all_but(object, old, "status");
        match context.subresource {
            "status" => keep_approval(object, old),
            "approval" => keep_certificate(object, old),
            _ => return keep(object, old, "status"),
        }
        set_times(object, old, context);
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        validate_spec(&root.get("spec"), errors);
        validate_status(&root.get("status"), None, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        // The spec is immutable and was validated on create.
        validate_status(&root.get("status"), Some(old), errors);
        let status = root.get("status");
        let conditions = status.get("conditions");
        for ty in ["Approved", "Denied", "Failed"] {
            let (now, before) = (count(object, ty), count(old, ty));
            if now < before {
                errors.push(conditions.forbidden(format!("updates may not remove a condition of type \"{ty}\"")));
            }
            if now > before && ty != "Failed" && context.subresource != "approval" {
                errors.push(conditions.forbidden(format!("updates may not add a condition of type \"{ty}\"")));
            }
        }
        let (certificate, before) = (status.get("certificate"), At::root(old));
        let (before, now) = (before.get("status").get("certificate").str().to_owned(), certificate.str());
        if now != before {
            if context.subresource != "status" {
                errors.push(certificate.forbidden("updates may not set certificate content"));
            } else if !before.is_empty() {
                errors.push(certificate.forbidden("updates may not modify existing certificate content"));
            }
        }
    }
}

/// Sets the requester's identity from the authenticated user and ignores the client's values.
fn record(spec: &mut Object, requester: &Requester) {
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    spec.insert("username", requester.name.clone());
    if !requester.uid.is_empty() {
        spec.insert("uid", requester.uid.clone());
    }
    if !requester.groups.is_empty() {
        spec.insert("groups", requester.groups.iter().cloned().map(Value::from).collect::<Vec<_>>());
    }
    if !requester.extra.is_empty() {
        let values = |values: &[apimachinery::Str]| values.iter().cloned().map(Value::from).collect::<Vec<_>>();
        let extra = requester.extra.iter().map(|(key, all)| (key.clone(), values(all)));
        spec.insert("extra", extra.collect::<Object>());
    }
}

fn conditions(object: &Value) -> &[Value] {
    object.list_at(&["status", "conditions"])
}

fn count(object: &Value, ty: &str) -> usize {
    conditions(object).iter().filter(|condition| condition.str_at(&["type"]) == Some(ty)).count()
}

/// Restores approval and denial conditions: a status write cannot change them.
fn keep_approval(object: &mut Value, old: &Value) {
    let is_verdict = |condition: &&Value| matches!(condition.str_at(&["type"]), Some("Approved" | "Denied"));
    let verdicts = conditions(old).iter().filter(is_verdict);
    let others = conditions(object).iter().filter(|condition| !is_verdict(condition));
    let same =
        conditions(object).iter().filter(is_verdict).count() == conditions(old).iter().filter(is_verdict).count();
    if !same {
        // Validation reports an added or removed condition.
        return;
    }
    let preserved: Vec<_> = verdicts.chain(others).cloned().collect();
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut)
        && !preserved.is_empty()
    {
        status.insert("conditions", preserved);
    }
}

/// Restores everything except the conditions: an approval write changes only them.
fn keep_certificate(object: &mut Value, old: &Value) {
    let sent = object.at(&["status", "conditions"]).cloned();
    keep(object, old, "status");
    let status = object.as_object_mut().map(|object| object.get_or_insert_with("status", Value::object));
    if let Some(status) = status.and_then(Value::as_object_mut) {
        match sent {
            Some(sent) => drop(status.insert("conditions", sent)),
            None => drop(status.remove("conditions")),
        }
    }
}

/// Sets missing timestamps of conditions to the time of the same old condition, or to now.
fn set_times(object: &mut Value, old: &Value, context: &Context<'_>) {
    let now = context.now.to_seconds().to_string();
    let olds = conditions(old).to_vec();
    let list = object.get_mut("status").and_then(|status| status.get_mut("conditions")).and_then(Value::as_array_mut);
    for condition in list.into_iter().flatten() {
        let text = |of: &Value, field: &str| of.text_at(&[field]).to_owned();
        let before = olds.iter().find(|old| {
            text(old, "type") == text(condition, "type") && text(old, "status") == text(condition, "status")
        });
        let since = before.map(|before| text(before, "lastTransitionTime")).filter(|time| !time.is_empty());
        let Some(condition) = condition.as_object_mut() else { continue };
        if condition.get("lastUpdateTime").is_none_or(Value::is_null) {
            condition.insert("lastUpdateTime", now.as_str());
        }
        if condition.get("lastTransitionTime").is_none_or(Value::is_null) {
            condition.insert("lastTransitionTime", since.unwrap_or_else(|| now.clone()));
        }
    }
}

fn validate_spec(spec: &At<'_>, errors: &mut Errors) {
    let request = spec.get("request");
    let text = STANDARD.decode(request.str()).unwrap_or_default();
    if let Err(wrong) = CertificateRequest::from_pem(&text) {
        errors.push(request.invalid(wrong.to_string()));
    }
    let usages = spec.get("usages");
    if usages.is_empty() {
        errors.push(usages.required(""));
    }
    for usage in usages.items().filter(|usage| !USAGES.contains(&usage.str())) {
        errors.push(usage.not_supported(USAGES));
    }
    let mut seen = BTreeSet::new();
    for usage in usages.items() {
        if !seen.insert(usage.str()) {
            errors.push(usage.duplicate());
        }
    }
    let signer = spec.get("signerName");
    if signer.str() == "kubernetes.io/legacy-unknown" {
        errors.push(signer.invalid("the legacy signerName is not allowed via this API version"));
    } else {
        super::signer_name(&signer, errors);
    }
    let expiration = spec.get("expirationSeconds");
    if expiration.is_present() && expiration.int() < EXPIRATION_SECONDS_MIN {
        errors.push(expiration.invalid("may not specify a duration less than 600 seconds (10 minutes)"));
    }
}

fn validate_status(status: &At<'_>, old: Option<&Value>, errors: &mut Errors) {
    let conditions = status.get("conditions");
    let mut seen = BTreeSet::new();
    for condition in conditions.items() {
        let (ty, state) = (condition.get("type"), condition.get("status"));
        if ty.is_empty() {
            errors.push(ty.required(""));
        }
        let allowed: &[&str] = match ty.str() {
            "Approved" | "Denied" | "Failed" => &["True"],
            _ => &["False", "True", "Unknown"],
        };
        if state.is_empty() {
            errors.push(state.required(""));
        } else if !allowed.contains(&state.str()) {
            errors.push(state.not_supported(allowed));
        }
        let opposite = if ty.str() == "Approved" { "Denied" } else { "Approved" };
        if ["Approved", "Denied"].contains(&ty.str()) && seen.contains(opposite) {
            errors.push(ty.invalid("Approved and Denied conditions are mutually exclusive"));
        }
        if !seen.insert(ty.str().to_owned()) {
            errors.push(Error::duplicate(ty.path(), ty.str()));
        }
    }
    let certificate = status.get("certificate");
    let had = old.and_then(|old| old.str_at(&["status", "certificate"])).unwrap_or_default();
    if !certificate.is_empty() && certificate.str() != had {
        let text = STANDARD.decode(certificate.str()).unwrap_or_default();
        if let Err(wrong) = pem::check_certificates(&String::from_utf8_lossy(&text)) {
            errors.push(Error::invalid(certificate.path(), "<certificate data>", wrong.to_string()));
        }
    }
}

fn condition(object: &Value) -> String {
    let mut state = match (count(object, "Denied") > 0, count(object, "Approved") > 0) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if count(object, "Failed") > 0 {
        state.push_str(",Failed");
    }
    if !object.text_at(&["status", "certificate"]).is_empty() {
        state.push_str(",Issued");
    }
    state
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;
    use crate::validation;

    fn approved() -> Value {
        value!({"spec": {"username": "u"}, "status": {"conditions": [{"type": "Approved", "status": "True"}]}})
    }

    #[test]
    fn conditions_are_approved_only_through_the_approval_subresource() {
        let old = value!({"spec": {"username": "u"}});
        let (object, errors) = validation::update(&kind(), "approval", &approved(), &old);
        assert_eq!(errors, [""; 0]);
        assert_eq!(object["status"]["conditions"][0]["lastUpdateTime"], value!("2023-11-14T22:13:20Z"));
        let (_, errors) = validation::update(&kind(), "status", &approved(), &old);
        assert_eq!(errors, ["status.conditions: Forbidden: updates may not add a condition of type \"Approved\""]);
        let (object, errors) = validation::update(&kind(), "", &approved(), &old);
        assert_eq!((object, errors), (old, Vec::new()));
    }

    #[test]
    fn approval_cannot_be_removed_or_combined_with_denial() {
        let mut both = approved();
        let conditions = both.get_mut("status").and_then(|status| status.get_mut("conditions")).unwrap();
        conditions.as_array_mut().unwrap().push(value!({"type": "Denied", "status": "True"}));
        let (_, errors) = validation::update(&kind(), "approval", &both, &approved());
        assert_eq!(
            errors,
            [
                "status.conditions[1].type: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive"
            ]
        );
        let (_, errors) = validation::update(&kind(), "approval", &value!({"status": {}}), &approved());
        assert_eq!(errors, ["status.conditions: Forbidden: updates may not remove a condition of type \"Approved\""]);
    }
}
