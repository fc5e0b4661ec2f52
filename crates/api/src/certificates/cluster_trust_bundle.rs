//! ClusterTrustBundle: X.509 trust anchors for pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::{Meta, Scope, name_is_path_segment};
use apimachinery::{At, Errors, Value, names};

use super::pem;
use crate::field_rules::{column, immutable};
use crate::kind::{Context, Kind, Rules, Selectable, age_column, name_column};

const BYTES_MAX: usize = 1 << 20;

pub fn kind() -> Kind {
    let row = Kind::stored("certificates.k8s.io", "v1beta1", "ClusterTrustBundle", "clustertrustbundles");
    let mut kind = Kind {
        scope: Scope::Cluster,
        name_rule: name_is_path_segment,
        selectable: vec![Selectable::new("spec.signerName", |object| object.text_at(&["spec", "signerName"]).into())],
        rules: Arc::new(ClusterTrustBundle),
        ..row.with_beta("v1alpha1")
    }
    .with_columns(&[
        name_column(),
        column("SignerName", "string", "Signer whose certificates the bundle verifies.", |object, _| {
            object.str_at(&["spec", "signerName"]).filter(|name| !name.is_empty()).unwrap_or("<none>").into()
        }),
        age_column(),
    ]);
    for version in &mut kind.versions {
        version.served = false;
    }
    kind
}

#[derive(Debug)]
struct ClusterTrustBundle;

impl Rules for ClusterTrustBundle {
    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let spec = root.get("spec");
        let signer = spec.get("signerName");
        validate_name(object, signer.str(), errors);
        if !signer.is_empty() {
            super::signer_name(&signer, errors);
        }
        validate_bundle(&spec.get("trustBundle"), errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        self.validate(object, context, errors);
        let (root, before) = (At::root(object), At::root(old));
        let (spec, had) = (root.get("spec"), before.get("spec"));
        immutable(&spec.get("signerName"), &had.get("signerName"), errors);
    }
}

/// The name must start with the signer name, with colons instead of slashes, if there is a signer.
fn validate_name(object: &Value, signer: &str, errors: &mut Errors) {
    let name = Meta::of(object).name();
    if name.is_empty() {
        return;
    }
    let root = At::root(object);
    let metadata = root.get("metadata");
    let at = metadata.get("name");
    let (own, wrong) = if signer.is_empty() {
        let has_signer = name
            .contains(':')
            .then(|| "ClusterTrustBundle without signer name must not have \":\" in its name".to_owned());
        (name, has_signer)
    } else {
        let prefix = format!("{}:", signer.replace('/', ":"));
        let wrong = format!("ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}");
        match name.strip_prefix(&prefix) {
            Some(own) => (own, None),
            None => (name, Some(wrong)),
        }
    };
    let wrong = wrong.map_or_else(|| names::dns1123_subdomain(own), |wrong| vec![wrong]);
    errors.extend(wrong.into_iter().map(|wrong| Error::invalid(at.path(), name, wrong)));
}

fn validate_bundle(bundle: &At<'_>, errors: &mut Errors) {
    if bundle.len() > BYTES_MAX {
        errors.push(Error::too_long(bundle.path(), BYTES_MAX));
        return;
    }
    let blocks = pem::blocks(bundle.str());
    if blocks.is_empty() {
        errors.push(Error::invalid(bundle.path(), "<value omitted>", "at least one trust anchor must be provided"));
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, block) in blocks.iter().enumerate() {
        let mut blame = |wrong: String| errors.push(Error::invalid(bundle.path(), "<value omitted>", wrong));
        if block.label != "CERTIFICATE" {
            blame(format!("entry {index} has bad block type: {}", block.label));
        } else if block.headers {
            blame(format!("entry {index} has PEM block headers"));
        } else if pem::single_certificate(pem::certificate(&block.bytes).as_bytes()).is_err() {
            blame(format!("entry {index} does not parse as X.509"));
        } else if !seen.insert(block.bytes.clone()) {
            blame(format!("duplicate trust anchor (indices [{index}])"));
        }
    }
}
