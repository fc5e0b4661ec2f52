//! Metadata validation that upstream's kind-specific rules repeat after the generic validation.
//!
//! Clients see the number of causes, so errors are repeated here too.

use apimachinery::field::Error;
use apimachinery::meta::{self, Meta, Scope, name_is_dns_subdomain};
use apimachinery::{Errors, Path, Value};

/// Finalizers that are valid without a domain.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// Adds the errors of kind-specific metadata validation for a new object.
pub(crate) fn created(object: &Value, errors: &mut Errors) {
    short_finalizers(object, errors);
}

/// Adds the errors of kind-specific metadata validation for an update of `old`.
pub(crate) fn updated(object: &Value, old: &Value, errors: &mut Errors) {
    meta::validate_update(object, old, &Path::of("metadata"), errors);
    short_finalizers(object, errors);
}

/// Adds the errors for namespaced kinds whose update validation validates the object as if it were new.
pub(crate) fn validate_as_new(object: &Value, errors: &mut Errors) {
    meta::validate_create(object, Scope::Namespaced, name_is_dns_subdomain, &Path::of("metadata"), errors);
    short_finalizers(object, errors);
}

fn short_finalizers(object: &Value, errors: &mut Errors) {
    let metadata = Path::of("metadata");
    let path = metadata.field("finalizers");
    for (index, name) in Meta::of(object).finalizers().enumerate() {
        if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(Error::invalid(&path.index(index), name, detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apimachinery::value;

    #[test]
    fn unqualified_finalizer_must_be_standard() {
        let mut errors = Errors::new();
        created(&value!({"metadata": {"finalizers": ["orphan", "example.com/a", "b"]}}), &mut errors);
        let found: Vec<_> = errors.iter().map(ToString::to_string).collect();
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        assert_eq!(found, [format!("metadata.finalizers[2]: Invalid value: \"b\": {detail}")]);
    }
}
