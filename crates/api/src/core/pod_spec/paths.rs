//! Paths that must stay below where they start.

use machinery::field::Error;
use machinery::{Errors, Path};

/// A path without `..` in it.
pub(crate) fn no_backsteps(text: &str, at: &Path<'_>, errors: &mut Errors) {
    if has_backsteps(text) {
        errors.push(Error::invalid(at, text, "must not contain '..'"));
    }
}

/// A relative path without `..` in it.
pub(crate) fn descending(text: &str, at: &Path<'_>, errors: &mut Errors) {
    if text.starts_with('/') {
        errors.push(Error::invalid(at, text, "must be a relative path"));
    }
    no_backsteps(text, at, errors);
}

/// A descending path that does not begin like the files that the kubelet keeps for itself.
pub(crate) fn not_reserved(text: &str, at: &Path<'_>, errors: &mut Errors) {
    descending(text, at, errors);
    if text.starts_with("..") && !text.starts_with("../") {
        errors.push(Error::invalid(at, text, "must not start with '..'"));
    }
}

/// Whether one of the parts is `..`.
pub(crate) fn has_backsteps(text: &str) -> bool {
    text.split('/').any(|part| part == "..")
}
