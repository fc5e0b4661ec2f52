//! What upstream's rules of kinds say about metadata, besides what the generic path has said: findings appear again,
//! and clients count them.

use machinery::field::Error;
use machinery::meta::{self, Meta, Scope, name_is_dns_subdomain};
use machinery::{Errors, Path, Value};

/// Finalizers that need no domain.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// What the rules of a kind add to what the generic path says of the metadata of a new object.
pub(crate) fn created(object: &Value, errors: &mut Errors) {
    short_finalizers(object, errors);
}

/// What the rules of a kind say of metadata that takes the place of that of `old`.
pub(crate) fn updated(object: &Value, old: &Value, errors: &mut Errors) {
    meta::validate_update(object, old, &Path::of("metadata"), errors);
    short_finalizers(object, errors);
}

/// What rules say that judge an object in a namespace as if it were new, though it is not.
pub(crate) fn judged_as_new(object: &Value, errors: &mut Errors) {
    meta::validate_create(object, Scope::Namespaced, name_is_dns_subdomain, &Path::of("metadata"), errors);
    short_finalizers(object, errors);
}

fn short_finalizers(object: &Value, errors: &mut Errors) {
    let metadata = Path::of("metadata");
    let path = metadata.field("finalizers");
    for (index, name) in Meta::of(object).finalizers().enumerate() {
        if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(Error::invalid(&path.index(index), name, why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::value;

    #[test]
    fn a_finalizer_without_a_domain_is_one_of_three() {
        let mut errors = Errors::new();
        created(&value!({"metadata": {"finalizers": ["orphan", "example.com/a", "b"]}}), &mut errors);
        let found: Vec<_> = errors.iter().map(ToString::to_string).collect();
        let why = "name is neither a standard finalizer name nor is it fully qualified";
        assert_eq!(found, [format!("metadata.finalizers[2]: Invalid value: \"b\": {why}")]);
    }
}
