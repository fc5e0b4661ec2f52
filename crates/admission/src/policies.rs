//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy: CEL expressions that validate and mutate objects.
//!
//! ```text
//! policy ─matches?─> binding ─matches?─> params ─each─> match conditions ─all true?─> validations or mutations
//! ```

pub(super) mod evaluate;
pub(super) mod matching;
mod mutating;
mod params;
pub(super) mod program;
mod validating;

use apimachinery::GroupResource;
use apimachinery::Value;
use apimachinery::meta::Meta;

use super::pods::spec;
use super::{Attributes, CachedObject, View};

pub(crate) use mutating::MutatingAdmissionPolicy;
pub(crate) use validating::ValidatingAdmissionPolicy;

const GROUP: &str = "admissionregistration.k8s.io";

/// Kinds that are exempt from policies, so that a policy cannot prevent its own repair.
const EXEMPT: [&str; 4] = [
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
];

fn is_exempt(attributes: &Attributes<'_>) -> bool {
    attributes.kind.group == GROUP && EXEMPT.contains(&attributes.kind.plural.as_str())
}

/// A policy with its bindings.
struct Bound {
    policy: CachedObject,
    bindings: Vec<CachedObject>,
}

/// Returns all policies that have bindings.
fn in_force(view: &dyn View, policies: GroupResource, bindings: GroupResource) -> Vec<Bound> {
    let policies = view.objects(policies, "");
    if policies.is_empty() {
        return Vec::new();
    }
    let bindings = view.objects(bindings, "");
    let bound = policies.into_iter().map(|policy| {
        let name = Meta::of(&policy).name();
        let own = bindings.iter().filter(|binding| spec(binding).text_at(&["policyName"]) == name).cloned().collect();
        Bound { policy, bindings: own }
    });
    bound.filter(|bound| !bound.bindings.is_empty()).collect()
}

/// Whether a failed evaluation rejects the request.
fn fails_closed(policy: &Value) -> bool {
    spec(policy).text_at(&["failurePolicy"]) != "Ignore"
}

#[cfg(test)]
mod tests;
