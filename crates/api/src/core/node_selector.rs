//! NodeSelector, used by volumes, devices and pods.

use apimachinery::field::Error;
use apimachinery::{At, Errors, names};

use crate::field_rules::looks;

pub fn validate(selector: &At<'_>, errors: &mut Errors) {
    let terms = selector.get("nodeSelectorTerms");
    if terms.is_empty() {
        errors.push(terms.required("must have at least one node selector term"));
    }
    for term in terms.items() {
        validate_term(&term, errors);
    }
}

pub fn validate_term(term: &At<'_>, errors: &mut Errors) {
    for requirement in term.get("matchExpressions").items() {
        validate_expression(&requirement, errors);
        for value in requirement.get("values").items() {
            looks(&value, names::label_value, errors);
        }
    }
    validate_fields(term, errors);
}

/// Validates a preferred term, whose values need not be valid label values.
pub fn validate_preferred_term(term: &At<'_>, errors: &mut Errors) {
    for requirement in term.get("matchExpressions").items() {
        validate_expression(&requirement, errors);
    }
    validate_fields(term, errors);
}

fn validate_fields(term: &At<'_>, errors: &mut Errors) {
    for requirement in term.get("matchFields").items() {
        validate_field(&requirement, errors);
    }
}

fn validate_expression(requirement: &At<'_>, errors: &mut Errors) {
    let (operator, values) = (requirement.get("operator"), requirement.get("values"));
    match operator.str() {
        "In" | "NotIn" if values.is_empty() => {
            errors.push(values.required("must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors.push(values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
        }
        "Gt" | "Lt" if values.len() != 1 => {
            errors.push(values.required("must be specified single value when `operator` is 'Lt' or 'Gt'"));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.push(Error::invalid(operator.path(), other, "not a valid selector operator")),
    }
    looks(&requirement.get("key"), names::qualified_name, errors);
}

fn validate_field(requirement: &At<'_>, errors: &mut Errors) {
    let (operator, values, key) = (requirement.get("operator"), requirement.get("values"), requirement.get("key"));
    match operator.str() {
        "In" | "NotIn" if values.len() != 1 => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.push(values.required(detail));
        }
        "In" | "NotIn" => {}
        other => errors.push(Error::invalid(operator.path(), other, "not a valid selector operator")),
    }
    if key.str() == "metadata.name" {
        for value in values.items() {
            looks(&value, names::dns1123_subdomain, errors);
        }
    } else {
        errors.push(Error::invalid(key.path(), key.str(), "not a valid field selector key"));
    }
}
