//! Scheduling policy shared by PodGroups and the pod group templates of Workloads.

use std::collections::BTreeSet;

use apimachinery::field::Error;
use apimachinery::{At, Errors, names};

use crate::field_rules::{looks, one_of_if_present, required_and_looks};

const CLAIMS_MAX: usize = 4;
const TOPOLOGIES_MAX: usize = 1;

/// Validates a PodGroup spec or a pod group template.
pub(super) fn validate(group: &At<'_>, errors: &mut Errors) {
    let policy = group.get("schedulingPolicy");
    let (basic, gang) = (policy.get("basic"), policy.get("gang"));
    match (basic.is_present(), gang.is_present()) {
        (true, true) => {
            let detail = "must specify exactly one of: `basic`, `gang`";
            errors.push(Error::invalid(policy.path(), "{`basic`, `gang`}", detail));
        }
        (false, false) => {
            let detail = "must specify one of: `basic`, `gang`";
            errors.push(Error::invalid(policy.path(), "", detail));
        }
        (false, true) if gang.get("minCount").int() == 0 => errors.push(gang.get("minCount").required("")),
        (false, true) if gang.get("minCount").int() < 0 => {
            errors.push(gang.get("minCount").invalid("must be greater than or equal to 1"));
        }
        _ => {}
    }
    let constraints = group.get("schedulingConstraints");
    let topologies = constraints.get("topology");
    if topologies.len() > TOPOLOGIES_MAX {
        errors.push(Error::too_many(topologies.path(), topologies.len(), TOPOLOGIES_MAX));
    }
    for topology in topologies.items() {
        required_and_looks(&topology.get("key"), names::qualified_name, errors);
    }
    validate_claims(&group.get("resourceClaims"), errors);
    one_of_if_present(&group.get("disruptionMode"), &["Pod", "PodGroup"], errors);
    if !group.get("priorityClassName").is_empty() {
        looks(&group.get("priorityClassName"), names::dns1123_subdomain, errors);
    }
}

fn validate_claims(claims: &At<'_>, errors: &mut Errors) {
    if claims.len() > CLAIMS_MAX {
        errors.push(Error::too_many(claims.path(), claims.len(), CLAIMS_MAX));
        return;
    }
    let mut seen = BTreeSet::new();
    for claim in claims.items() {
        let name = claim.get("name");
        required_and_looks(&name, names::dns1123_label, errors);
        if !seen.insert(name.str().to_owned()) {
            errors.push(Error::duplicate(claim.path(), name.str()));
        }
        let (own, template) = (claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName"));
        if own.is_present() == template.is_present() {
            let detail = "must specify exactly one of: `resourceClaimName`, `resourceClaimTemplateName`";
            errors.push(Error::invalid(claim.path(), "", detail));
        }
        for reference in [own, template].into_iter().filter(At::is_present) {
            looks(&reference, names::dns1123_subdomain, errors);
        }
    }
}
