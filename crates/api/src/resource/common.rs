//! Names, selectors, taints and configuration shared by claims, device classes and slices.

use std::collections::BTreeSet;

use apimachinery::field::Error;
use apimachinery::{At, Errors, names};
use cel::cost::limits::{SELECTOR, SELECTOR_LENGTH};
use cel::{ExpressionContext, Type};

use crate::field_rules::{driver_name, looks};

/// Maximum number of requests, constraints, configurations and selectors.
pub(super) const ITEMS_MAX: usize = 32;

const PARAMETERS_BYTES_MAX: usize = 10 * 1024;
const POOL_NAME_MAX: usize = 253;
const IDENTIFIER_MAX: usize = 32;
const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];

/// Whether expressions and parameters are new or unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// The client is creating or changing them.
    New,
    /// They are unchanged and were accepted earlier.
    Stored,
}

/// Validates each of at most `max` items; a longer list is rejected without validating its items.
pub(super) fn items(list: &At<'_>, max: usize, errors: &mut Errors, mut one: impl FnMut(&At<'_>, &mut Errors)) {
    if list.len() > max {
        errors.push(Error::too_many(list.path(), list.len(), max));
        return;
    }
    for item in list.items() {
        one(&item, errors);
    }
}

/// Like [`items`], and rejects duplicate keys.
pub(super) fn set(
    list: &At<'_>,
    max: usize,
    key: impl Fn(&At<'_>) -> String,
    errors: &mut Errors,
    one: impl FnMut(&At<'_>, &mut Errors),
) {
    items(list, max, errors, one);
    if list.len() > max {
        return;
    }
    let mut seen = BTreeSet::new();
    for item in list.items() {
        let key = key(&item);
        if seen.contains(&key) {
            errors.push(Error::duplicate(item.path(), key));
        } else {
            seen.insert(key);
        }
    }
}

/// Validates device selectors.
pub(super) fn selectors(list: &At<'_>, age: Age, errors: &mut Errors) {
    items(list, ITEMS_MAX, errors, |selector, errors| {
        let cel = selector.get("cel");
        if cel.is_absent() {
            errors.push(cel.required(""));
        } else if age == Age::New {
            expression(&cel.get("expression"), errors);
        }
    });
}

/// Validates device configurations.
pub(super) fn configurations(list: &At<'_>, age: Age, errors: &mut Errors) {
    items(list, ITEMS_MAX, errors, |config, errors| configuration(config, age, errors));
}

pub(super) fn configuration(config: &At<'_>, age: Age, errors: &mut Errors) {
    let opaque = config.get("opaque");
    if opaque.is_absent() {
        errors.push(opaque.required(""));
        return;
    }
    driver_name(&opaque.get("driver"), errors);
    raw(&opaque.get("parameters"), age, PARAMETERS_BYTES_MAX, errors);
}

/// Requires a JSON object of at most `bytes_max` bytes.
pub(super) fn raw(at: &At<'_>, age: Age, bytes_max: usize, errors: &mut Errors) {
    if at.is_absent() {
        errors.push(at.required(""));
    } else if age == Age::New && apimachinery::json::to_vec(at.value()).len() > bytes_max {
        errors.push(Error::too_long(at.path(), bytes_max));
    } else if at.value().as_object().is_none() {
        errors.push(Error::invalid(at.path(), "<value omitted>", "must be a valid JSON object"));
    }
}

/// Validates a pool name: DNS subdomains separated by slashes.
pub(super) fn pool_name(at: &At<'_>, errors: &mut Errors) {
    if at.is_empty() {
        errors.push(at.required(""));
        return;
    }
    if at.len() > POOL_NAME_MAX {
        errors.push(Error::too_long(at.path(), POOL_NAME_MAX));
    }
    for segment in at.str().split('/') {
        let wrong = names::dns1123_subdomain(segment);
        errors.extend(wrong.into_iter().map(|wrong| Error::invalid(at.path(), segment, wrong)));
    }
}

/// Validates a name with an optional domain: `model`, `example.com/model`.
pub(super) fn qualified_name(name: &str, at: &At<'_>, errors: &mut Errors) {
    let parts: Vec<_> = name.split('/').collect();
    match parts[..] {
        [own] => identifier(own, at, errors),
        [domain, own] => {
            if domain.is_empty() {
                errors.push(Error::invalid(at.path(), "", "the domain must not be empty"));
            } else {
                let value = apimachinery::Value::from(domain);
                driver_name(&At::new(&value, *at.path()), errors);
            }
            if own.is_empty() {
                errors.push(Error::invalid(at.path(), "", "the name must not be empty"));
            } else {
                identifier(own, at, errors);
            }
        }
        _ => errors.push(Error::invalid(at.path(), name, "must not contain more than one slash")),
    }
}

/// Validates a name with a required domain.
pub(super) fn fully_qualified_name(at: &At<'_>, errors: &mut Errors) {
    qualified_name(at.str(), at, errors);
    if !at.str().contains('/') {
        errors.push(at.invalid("a fully qualified name must be a domain and a name separated by a slash"));
    }
}

/// Validates a device taint.
pub(super) fn taint(taint: &At<'_>, errors: &mut Errors) {
    looks(&taint.get("key"), names::qualified_name, errors);
    if !taint.get("value").is_empty() {
        looks(&taint.get("value"), names::label_value, errors);
    }
    let effect = taint.get("effect");
    if effect.is_empty() {
        errors.push(effect.required(""));
    } else if !EFFECTS.contains(&effect.str()) {
        errors.push(effect.not_supported(EFFECTS));
    }
}

/// Validates tolerations of device taints.
pub(super) fn tolerations(list: &At<'_>, errors: &mut Errors) {
    for toleration in list.items() {
        if !toleration.get("key").is_empty() {
            looks(&toleration.get("key"), names::qualified_name, errors);
        }
        let (operator, value, effect) = (toleration.get("operator"), toleration.get("value"), toleration.get("effect"));
        match operator.str() {
            "Exists" if !value.is_empty() => errors.push(value.invalid("must be empty for operator `Exists`")),
            "Exists" => {}
            "Equal" => looks(&value, names::label_value, errors),
            "" => errors.push(operator.required("")),
            _ => errors.push(operator.not_supported(&["Equal", "Exists"])),
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect.str()) {
            errors.push(effect.not_supported(EFFECTS));
        }
    }
}

/// Validates the binding conditions and binding failure conditions of a device.
pub(super) fn binding_conditions(owner: &At<'_>, errors: &mut Errors) {
    const CONDITIONS_MAX: usize = 4;
    let (ready, failed) = (owner.get("bindingConditions"), owner.get("bindingFailureConditions"));
    for list in [&ready, &failed] {
        items(list, CONDITIONS_MAX, errors, |name, errors| looks(name, names::qualified_name, errors));
    }
    for list in [&ready, &failed] {
        let mut seen = BTreeSet::new();
        for name in list.items() {
            if !seen.insert(name.str().to_owned()) {
                errors.push(name.duplicate());
            }
            if std::ptr::eq(list, &failed) && ready.items().any(|other| other.str() == name.str()) {
                errors.push(name.invalid("bindingFailureConditions must not overlap with bindingConditions"));
            }
        }
    }
    if ready.is_empty() && !failed.is_empty() {
        errors.push(ready.invalid("bindingConditions are required to use bindingFailureConditions"));
    }
    if failed.is_empty() && !ready.is_empty() {
        errors.push(failed.invalid("bindingFailureConditions are required to use bindingConditions"));
    }
}

fn identifier(name: &str, at: &At<'_>, errors: &mut Errors) {
    if name.len() > IDENTIFIER_MAX {
        errors.push(Error::too_long(at.path(), IDENTIFIER_MAX));
    }
    let wrong = names::c_identifier(name);
    errors.extend(wrong.into_iter().map(|wrong| Error::invalid(at.path(), name, wrong)));
}

/// Requires a boolean CEL expression on `device` within length and cost limits.
fn expression(at: &At<'_>, errors: &mut Errors) {
    if at.len() > SELECTOR_LENGTH {
        errors.push(Error::too_long(at.path(), SELECTOR_LENGTH));
        return;
    }
    match ExpressionContext::DeviceSelector.env_set().new.compile(at.str()) {
        Err(findings) => errors.push(Error::invalid(at.path(), at.str(), format!("compilation failed: {findings}"))),
        Ok(compiled) => {
            let found = compiled.program.result_type();
            if !found.is_dyn() && *found != Type::Bool {
                errors.push(at.invalid(format!("must evaluate to bool or the unknown type, not {found}")));
            } else if compiled.estimate.max > SELECTOR {
                errors.push(at.forbidden("too complex, exceeds cost limit"));
            }
        }
    }
}
