//! API kinds of the certificates.k8s.io group.

pub mod agreement;
pub mod certificate_signing_request;
pub mod cluster_trust_bundle;
pub mod pem;
pub mod pod_certificate_request;
pub mod request;

use apimachinery::field::Error;
use apimachinery::{At, Errors, go, names};

use crate::kind::Kind;

pub const KINDS: &[fn() -> Kind] =
    &[certificate_signing_request::kind, cluster_trust_bundle::kind, pod_certificate_request::kind];

/// Maximum length of a signer name: a domain, a slash, a DNS subdomain, a dot and a label.
const SIGNER_NAME_MAX: usize = 253 + 1 + 253 + 1 + 63;

fn signer_name(at: &At<'_>, errors: &mut Errors) {
    if at.is_empty() {
        errors.push(at.required(""));
        return;
    }
    let parts: Vec<_> = at.str().split('/').collect();
    let [domain, path] = parts[..] else {
        errors.push(at.invalid("must be a fully qualified domain and path of the form 'example.com/signer-name'"));
        return;
    };
    if domain.len() > 253 {
        errors.push(Error::too_long(at.path(), 253));
    }
    let labels = |text: &str, rule: fn(&str) -> Vec<String>, errors: &mut Errors| {
        for label in text.split('.') {
            for wrong in rule(label) {
                let detail = format!("validating label {}: {wrong}", go::quote(label));
                errors.push(Error::invalid(at.path(), text, detail));
            }
        }
    };
    labels(domain, names::dns1123_label, errors);
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.push(Error::invalid(at.path(), domain, detail));
    }
    labels(path, names::dns1123_subdomain, errors);
    if at.len() > SIGNER_NAME_MAX {
        errors.push(Error::too_long(at.path(), SIGNER_NAME_MAX));
    }
}
