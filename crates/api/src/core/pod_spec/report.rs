//! Findings about values that read as Go's zero where they are absent.

use machinery::field::Error;
use machinery::{At, Errors};

use crate::field_rules::one_of;

/// The text is wrong: it is shown as empty, not as `null`, if there is none.
pub(crate) fn invalid_text(at: &At<'_>, why: impl Into<String>) -> Error {
    Error::invalid(at.path(), at.str(), why)
}

/// The number is wrong: it is shown as 0, not as `null`, if there is none.
pub(crate) fn invalid_int(at: &At<'_>, why: impl Into<String>) -> Error {
    Error::invalid(at.path(), at.int(), why)
}

/// Everything that is wrong with a text.
pub(crate) fn text(at: &At<'_>, wrong: Vec<String>, errors: &mut Errors) {
    errors.extend(wrong.into_iter().map(|why| invalid_text(at, why)));
}

/// Everything that is wrong with a number.
pub(crate) fn int(at: &At<'_>, wrong: Vec<String>, errors: &mut Errors) {
    errors.extend(wrong.into_iter().map(|why| invalid_int(at, why)));
}

/// A text that must not be empty. Gives back whether it is there.
pub(crate) fn required(at: &At<'_>, errors: &mut Errors) -> bool {
    let there = !at.is_empty();
    if !there {
        errors.push(at.required(""));
    }
    there
}

/// A text that must be there and one of `supported`.
pub(crate) fn required_one_of(at: &At<'_>, supported: &[&str], errors: &mut Errors) {
    if required(at, errors) {
        one_of(at, supported, errors);
    }
}

/// A number that must be positive.
pub(crate) fn positive(at: &At<'_>, errors: &mut Errors) {
    if at.int() <= 0 {
        errors.push(invalid_int(at, "must be greater than zero"));
    }
}
