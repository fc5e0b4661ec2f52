//! Request policy of a device capacity: valid amounts for a request.

use apimachinery::field::Error;
use apimachinery::quantity::Quantity;
use apimachinery::{At, Errors};

use crate::field_rules::quantity;

const OPTIONS_MAX: usize = 10;

pub(super) fn validate(capacity: &At<'_>, errors: &mut Errors) {
    let policy = capacity.get("requestPolicy");
    if policy.is_absent() {
        return;
    }
    let most = quantity(capacity.get("value").value());
    let (values, range, default) = (policy.get("validValues"), policy.get("validRange"), policy.get("default"));
    match (values.is_empty(), range.is_present()) {
        (false, true) => errors.push(policy.forbidden(
            "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time",
        )),
        (false, false) if default.is_absent() => {
            errors.push(default.required("required when validValues is defined"));
        }
        (true, true) if default.is_absent() => errors.push(default.required("required when validRange is defined")),
        (false, false) => validate_values(&values, quantity(default.value()), most, errors),
        (true, true) => validate_range(&range, quantity(default.value()), most, errors),
        (true, false) => {}
    }
}

fn validate_values(values: &At<'_>, default: Quantity, most: Quantity, errors: &mut Errors) {
    if values.len() > OPTIONS_MAX {
        errors.push(Error::too_many(values.path(), values.len(), OPTIONS_MAX));
        return;
    }
    let mut before: Option<Quantity> = None;
    let mut found = false;
    for at in values.items() {
        let value = quantity(at.value());
        let mut blame = |detail: String| errors.push(Error::invalid(at.path(), value.to_string(), detail));
        if before.is_some_and(|before| before > value) {
            blame("values must be sorted in ascending order".to_owned());
        }
        if value > most {
            blame(format!("option is larger than capacity value: {most}"));
        }
        if before == Some(value) {
            errors.push(Error::duplicate(at.path(), value.value().to_string()));
        }
        found |= value == default;
        before = Some(value);
    }
    if !found {
        let detail = "default value is not valid according to the requestPolicy";
        errors.push(Error::invalid(values.path(), default.to_string(), detail));
    }
}

fn validate_range(range: &At<'_>, default: Quantity, most: Quantity, errors: &mut Errors) {
    let (min, max, step) = (range.get("min"), range.get("max"), range.get("step"));
    if min.is_absent() {
        errors.push(min.required("required when validRange is defined"));
        return;
    }
    let low = quantity(min.value());
    let high = max.is_present().then(|| quantity(max.value()));
    let mut blame = |field: &str, value: Quantity, detail: String| {
        errors.push(Error::invalid(range.get(field).path(), value.to_string(), detail));
    };
    if low > most {
        blame("min", low, format!("min is larger than capacity value: {most}"));
    }
    if default < low {
        blame("default", default, format!("default is less than min: {low}"));
    }
    if let Some(high) = high {
        if low > high {
            blame("max", low, format!("min is larger than max: {high}"));
        }
        if high > most {
            blame("max", high, format!("max is larger than capacity value: {most}"));
        }
        if default > high {
            blame("default", default, format!("default is more than max: {high}"));
        }
    }
    if step.is_absent() {
        return;
    }
    let stride = quantity(step.value());
    if stride.value() <= 0 {
        blame("step", stride, "must be greater than zero".to_owned());
        return;
    }
    let first = low.add(stride);
    if first > most {
        blame("step", stride, format!("one step {first} is larger than capacity value: {most}"));
    }
    for value in [Some(default), high].into_iter().flatten() {
        if value.value().wrapping_sub(low.value()) % stride.value() != 0 {
            let detail = format!("value is not a multiple of a given step ({stride}) from ({low})");
            blame("step", value, detail);
        }
    }
}
