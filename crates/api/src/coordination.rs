//! API kinds of the coordination.k8s.io group.

pub mod lease;
pub mod lease_candidate;

use apimachinery::field::Error;
use apimachinery::{At, Errors, names};

use crate::kind::Kind;

pub const KINDS: &[fn() -> Kind] = &[lease::kind, lease_candidate::kind];

/// Validates a leader election strategy: a Kubernetes name without domain, or a domain-prefixed name.
fn strategy(at: &At<'_>, errors: &mut Errors) {
    let parts: Vec<_> = at.str().split('/').collect();
    match parts[..] {
        [_] => {
            if at.str() != "OldestEmulationVersion" {
                errors.push(Error::not_supported(at.path(), at.str(), &["OldestEmulationVersion"]));
            }
        }
        [_, _] => {
            let wrong = names::qualified_name(at.str());
            errors.extend(wrong.into_iter().map(|wrong| Error::invalid(at.path(), at.str(), wrong)));
        }
        _ => errors.push(at.invalid("must be a fully qualified domain and path of the form 'example.com/foo'")),
    }
}
