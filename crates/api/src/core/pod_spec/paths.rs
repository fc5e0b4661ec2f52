//! Validation of relative paths against directory traversal.

use apimachinery::field::Error;
use apimachinery::{Errors, Path};

/// Rejects a path with `..`.
pub(crate) fn no_backsteps(text: &str, at: &Path<'_>, errors: &mut Errors) {
    if has_backsteps(text) {
        errors.push(Error::invalid(at, text, "must not contain '..'"));
    }
}

/// Rejects an absolute path or a path with `..`.
pub(crate) fn descending(text: &str, at: &Path<'_>, errors: &mut Errors) {
    if text.starts_with('/') {
        errors.push(Error::invalid(at, text, "must be a relative path"));
    }
    no_backsteps(text, at, errors);
}

/// Also rejects a path that starts with `..`, which the kubelet reserves.
pub(crate) fn not_reserved(text: &str, at: &Path<'_>, errors: &mut Errors) {
    descending(text, at, errors);
    if text.starts_with("..") && !text.starts_with("../") {
        errors.push(Error::invalid(at, text, "must not start with '..'"));
    }
}

/// Whether a path element is `..`.
pub(crate) fn has_backsteps(text: &str) -> bool {
    text.split('/').any(|segment| segment == "..")
}
