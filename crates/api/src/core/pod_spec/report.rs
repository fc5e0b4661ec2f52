//! Validation errors that report absent values as Go's zero value.

use apimachinery::field::Error;
use apimachinery::{At, Errors};

use crate::field_rules::one_of;

/// Returns an Invalid error; an absent string is reported as empty, not as `null`.
pub(crate) fn invalid_text(at: &At<'_>, detail: impl Into<String>) -> Error {
    Error::invalid(at.path(), at.str(), detail)
}

/// Returns an Invalid error; an absent number is reported as 0, not as `null`.
pub(crate) fn invalid_int(at: &At<'_>, detail: impl Into<String>) -> Error {
    Error::invalid(at.path(), at.int(), detail)
}

/// Adds an error per violation of a string.
pub(crate) fn text(at: &At<'_>, wrong: Vec<String>, errors: &mut Errors) {
    errors.extend(wrong.into_iter().map(|detail| invalid_text(at, detail)));
}

/// Adds an error per violation of a number.
pub(crate) fn int(at: &At<'_>, wrong: Vec<String>, errors: &mut Errors) {
    errors.extend(wrong.into_iter().map(|detail| invalid_int(at, detail)));
}

/// Requires a non-empty string. Returns whether it is present.
pub(crate) fn required(at: &At<'_>, errors: &mut Errors) -> bool {
    let there = !at.is_empty();
    if !there {
        errors.push(at.required(""));
    }
    there
}

/// Requires one of `supported`.
pub(crate) fn required_one_of(at: &At<'_>, supported: &[&str], errors: &mut Errors) {
    if required(at, errors) {
        one_of(at, supported, errors);
    }
}

/// Requires a positive number.
pub(crate) fn positive(at: &At<'_>, errors: &mut Errors) {
    if at.int() <= 0 {
        errors.push(invalid_int(at, "must be greater than zero"));
    }
}
