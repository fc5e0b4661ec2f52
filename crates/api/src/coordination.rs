//! The kinds of coordination.k8s.io.

pub mod lease;
pub mod lease_candidate;

use machinery::field::Error;
use machinery::{At, Errors, names};

use crate::kind::Kind;

/// Every kind of the group.
pub const KINDS: &[fn() -> Kind] = &[lease::kind, lease_candidate::kind];

/// How the holder of a lease is chosen: a word of Kubernetes' own, or somebody's with a domain.
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
