//! Pod volumes: each has a name and exactly one source.

mod claim;
mod files;
mod iscsi;
mod sources;

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::field::Error;
use apimachinery::{At, Errors, Value, go, names};

use super::Owner;
use super::report::{invalid_text, required};
use crate::field_rules::looks;

pub(crate) use files::{field_ref, resource_field_ref};

/// Validates volumes. Returns the valid ones by name: containers may mount only these.
pub(crate) fn validate<'b>(volumes: &'b At<'b>, owner: Owner<'_>, errors: &mut Errors) -> BTreeMap<&'b str, &'b Value> {
    let made = claims_made(volumes, owner);
    let mut known = BTreeMap::new();
    for (volume, value) in volumes.items().zip(volumes.list()) {
        let before = errors.len();
        let name = volume.get("name");
        source(&volume, owner, errors);
        if required(&name, errors) {
            looks(&name, names::dns1123_label, errors);
        }
        if known.contains_key(name.str()) {
            errors.push(Error::duplicate(name.path(), name.str()));
        }
        if errors.len() == before {
            known.insert(value.text_at(&["name"]), value);
        }
        let claim = volume.get("persistentVolumeClaim");
        let claim_name = claim.get("claimName");
        if claim.is_present() && made.contains(claim_name.str()) {
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            errors.push(invalid_text(&claim_name, detail));
        }
    }
    known
}

/// Returns the names of the claims created for generic ephemeral volumes; empty if the pod has no name yet.
fn claims_made(volumes: &At<'_>, owner: Owner<'_>) -> BTreeSet<String> {
    let pod = owner.name();
    let ephemeral = volumes.list().iter().filter(|volume| volume.get("ephemeral").is_some_and(|it| !it.is_null()));
    let claims = ephemeral.map(|volume| format!("{pod}-{}", volume.text_at(&["name"])));
    claims.filter(|_| !pod.is_empty()).collect()
}

/// Requires exactly one valid source.
fn source(volume: &At<'_>, owner: Owner<'_>, errors: &mut Errors) {
    let mut found = 0;
    for row in sources::ALL {
        let source = volume.get(row.field);
        if source.is_absent() {
            continue;
        }
        if found > 0 {
            let path = volume.path().field(row.blamed);
            errors.push(Error::forbidden(&path, "may not specify more than 1 volume type"));
        } else {
            (row.check)(&At::new(source.value(), volume.path().field(row.path)), errors);
            if row.field == "ephemeral" {
                claim_name(volume, owner, errors);
            }
        }
        found += 1;
        if row.field == "iscsi" {
            iscsi::length(volume, errors);
        }
    }
    if found == 0 {
        errors.push(volume.required("must specify a volume type"));
    }
}

/// Validates the name of the claim created for a generic ephemeral volume.
fn claim_name(volume: &At<'_>, owner: Owner<'_>, errors: &mut Errors) {
    let (pod, name) = (owner.name(), volume.get("name"));
    if pod.is_empty() || name.is_empty() {
        return;
    }
    let claim = format!("{pod}-{}", name.str());
    for detail in names::dns1123_subdomain(&claim) {
        errors.push(invalid_text(&name, format!("PVC name {}: {detail}", go::quote(&claim))));
    }
}
