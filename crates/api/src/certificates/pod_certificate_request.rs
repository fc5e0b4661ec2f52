//! PodCertificateRequest: a kubelet's request for a pod certificate.

use std::sync::Arc;

use apimachinery::meta;
use apimachinery::{At, Errors, Value, names};

use crate::field_rules::{column, drop_field, immutable_with_value, keep, keep_for_status, required_and_looks};
use crate::go_form;
use crate::kind::{Context, Kind, Rules, Selectable, Subresource, age_column, name_column};

const SECONDS_MIN: i64 = 3600;
const SECONDS_MAX: i64 = 91 * 86_400;
/// Maximum lifetime of certificates from kubernetes.io signers: one day.
const OWN_SECONDS_MAX: i64 = 86_400;

pub fn kind() -> Kind {
    let mut kind = Kind {
        subresources: vec![Subresource::status()],
        selectable: vec![
            Selectable::new("spec.signerName", |object| spec(object, "signerName").into()),
            Selectable::new("spec.podName", |object| spec(object, "podName").into()),
            Selectable::new("spec.nodeName", |object| spec(object, "nodeName").into()),
        ],
        rules: Arc::new(PodCertificateRequest),
        ..Kind::stored("certificates.k8s.io", "v1beta1", "PodCertificateRequest", "podcertificaterequests")
    }
    .with_columns(&[
        name_column(),
        column("PodName", "string", "Pod of the request.", |object, _| spec(object, "podName").into()),
        column("ServiceAccountName", "string", "Service account of the pod.", |object, _| {
            spec(object, "serviceAccountName").into()
        }),
        column("NodeName", "string", "Node.", |object, _| spec(object, "nodeName").into()),
        column("SignerName", "string", "Signer of the certificate.", |object, _| spec(object, "signerName").into()),
        column("State", "string", "State of the object.", |object, _| state(object).into()),
        age_column(),
    ]);
    for version in &mut kind.versions {
        version.served = false;
    }
    kind
}

#[derive(Debug)]
struct PodCertificateRequest;

impl Rules for PodCertificateRequest {
    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        drop_field(object, "status");
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        match context.subresource {
            "status" => keep_for_status(object, old),
            _ => keep(object, old, "status"),
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let spec = root.get("spec");
        super::signer_name(&spec.get("signerName"), errors);
        for (field, id) in [("podName", "podUID"), ("serviceAccountName", "serviceAccountUID"), ("nodeName", "nodeUID")]
        {
            required_and_looks(&spec.get(field), names::dns1123_subdomain, errors);
            if spec.get(id).is_empty() {
                errors.push(spec.get(id).required(""));
            }
        }
        let seconds = spec.get("maxExpirationSeconds");
        let own = spec.get("signerName").str().starts_with("kubernetes.io/");
        let max = if own { OWN_SECONDS_MAX } else { SECONDS_MAX };
        if seconds.is_absent() {
            errors.push(seconds.required("must be set"));
        } else if !(SECONDS_MIN..=max).contains(&seconds.int()) {
            errors.push(seconds.invalid(format!("must be in the range [{SECONDS_MIN}, {max}]")));
        }
        if spec.get("stubPKCS10Request").is_empty() {
            errors.push(spec.get("stubPKCS10Request").required(""));
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        let (root, before) = (At::root(object), At::root(old));
        if context.subresource == "status" {
            let status = root.get("status");
            let conditions = status.get("conditions");
            return meta::validate_conditions(conditions.list(), conditions.path(), errors);
        }
        let spec = root.get("spec");
        let bad_value = || go_form::bad_value_at(&spec, context.version.schema(), &["spec"]);
        immutable_with_value(&spec, &before.get("spec"), bad_value, errors);
    }
}

fn spec<'a>(object: &'a Value, field: &str) -> &'a str {
    object.text_at(&["spec", field])
}

fn state(object: &Value) -> &'static str {
    let conditions = object.list_at(&["status", "conditions"]);
    let has = |ty: &str| conditions.iter().any(|condition| condition.str_at(&["type"]) == Some(ty));
    match (has("Issued"), has("Denied"), has("Failed")) {
        (true, _, _) => "Issued",
        (_, true, _) => "Denied",
        (_, _, true) => "Failed",
        _ => "Pending",
    }
}
