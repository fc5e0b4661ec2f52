//! Devices of a ResourceSlice: attributes, capacity, counters and node selection.

use std::collections::BTreeSet;

use apimachinery::field::Error;
use apimachinery::{At, Errors, Object, Value, names};

use super::{common, request_policy};
use crate::core::node_selector;
use crate::field_rules::{looks, same};

const FACTS_MAX: usize = 32;
const ATTRIBUTE_VALUES_MAX: usize = 48;
const TEXT_MAX: usize = 64;
const TAINTS_MAX: usize = 16;
const COUNTER_SETS_MAX: usize = 2;
const COUNTERS_MAX: usize = 32;
/// Maximum length of a key: a domain, a slash and an identifier.
const KEY_MAX: usize = 63 + 1 + 32;
const NODES_REQUIRED: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";

/// Validates a device. `old` is its previous state; `own_nodes` is the slice's `perDeviceNodeSelection`.
pub(super) fn validate(device: &At<'_>, old: Option<&Value>, own_nodes: bool, errors: &mut Errors) {
    looks(&device.get("name"), names::dns1123_label, errors);
    let (attributes, capacity) = (device.get("attributes"), device.get("capacity"));
    let facts = attributes.len() + capacity.len();
    if facts > FACTS_MAX {
        let detail = format!("the total number of attributes and capacities must not exceed {FACTS_MAX}");
        errors.push(Error::invalid(device.path(), count(facts), detail));
    }
    let values: usize = attributes.entries().map(|(_, attribute)| value_count(&attribute)).sum();
    if values > ATTRIBUTE_VALUES_MAX {
        let detail = format!("the total number of attribute values must not exceed {ATTRIBUTE_VALUES_MAX}");
        errors.push(Error::invalid(device.path(), count(values), detail));
    }
    keyed(&attributes, errors, validate_attribute);
    let unchanged =
        |field: &str| old.is_some_and(|old| same(old.get(field).unwrap_or(&Value::Null), device.get(field).value()));
    if !unchanged("capacity") {
        let shared = device.get("allowMultipleAllocations").bool();
        keyed(&capacity, errors, |capacity, errors| {
            if shared {
                request_policy::validate(capacity, errors);
            } else if capacity.get("requestPolicy").is_present() {
                errors.push(capacity.get("requestPolicy").forbidden("allowMultipleAllocations must be true"));
            }
        });
    }
    if !unchanged("taints") {
        common::items(&device.get("taints"), TAINTS_MAX, errors, common::taint);
    }
    let by_set = |at: &At<'_>| at.get("counterSet").str().to_owned();
    common::set(&device.get("consumesCounters"), COUNTER_SETS_MAX, by_set, errors, |consumed, errors| {
        counter_set(consumed, "counterSet", errors);
    });
    validate_nodes(device, own_nodes, errors);
    common::binding_conditions(device, errors);
}

/// Validates a counter set; `field` contains its name.
pub(super) fn counter_set(set: &At<'_>, field: &str, errors: &mut Errors) {
    let name = set.get(field);
    if name.is_empty() {
        errors.push(name.required(""));
    } else {
        looks(&name, names::dns1123_label, errors);
    }
    let counters = set.get("counters");
    if counters.is_empty() {
        errors.push(counters.required(""));
    } else if counters.len() > COUNTERS_MAX {
        errors.push(Error::too_many(counters.path(), counters.len(), COUNTERS_MAX));
    } else {
        for key in keys(&counters) {
            let wrong = names::dns1123_label(key);
            errors.extend(wrong.into_iter().map(|wrong| Error::invalid(counters.path(), key, wrong)));
        }
    }
}

/// Whether the device uses features that lower the maximum number of devices per slice.
pub(super) fn is_heavy(device: &Value) -> bool {
    let some = |field: &str| device.get(field).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    let attributes = device.get("attributes").and_then(Value::as_object).into_iter().flat_map(Object::values);
    some("taints")
        || some("consumesCounters")
        || attributes.into_iter().any(|attribute| LISTS.iter().any(|list| attribute.get(list).is_some()))
}

const SCALARS: [&str; 4] = ["bool", "int", "string", "version"];
const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];

fn validate_attribute(attribute: &At<'_>, errors: &mut Errors) {
    let text = |at: &At<'_>, errors: &mut Errors| {
        if at.len() > TEXT_MAX {
            errors.push(Error::too_long(at.path(), TEXT_MAX));
        }
    };
    let version = |at: &At<'_>, errors: &mut Errors| {
        if !is_semantic_version(at.str()) {
            errors.push(at.invalid("must be a string compatible with semver.org spec 2.0.0"));
        }
        text(at, errors);
    };
    if attribute.get("string").is_present() {
        text(&attribute.get("string"), errors);
    }
    if attribute.get("version").is_present() {
        version(&attribute.get("version"), errors);
    }
    let (texts, versions) = (attribute.get("strings"), attribute.get("versions"));
    texts.items().for_each(|at| text(&at, errors));
    versions.items().for_each(|at| version(&at, errors));
    match SCALARS.iter().chain(&LISTS).filter(|field| attribute.get(field).is_present()).count() {
        1 => {}
        0 => errors.push(Error::invalid(attribute.path(), "", "exactly one value must be specified")),
        _ => errors.push(attribute.invalid("exactly one value must be specified")),
    }
}

fn validate_nodes(device: &At<'_>, own_nodes: bool, errors: &mut Errors) {
    let (name, selector, all) = (device.get("nodeName"), device.get("nodeSelector"), device.get("allNodes"));
    if !own_nodes {
        if [&name, &selector, &all].iter().any(|field| field.is_present()) {
            let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            errors.push(Error::invalid(device.path(), Value::Null, detail));
        }
        return;
    }
    let mut set = Vec::new();
    if name.is_present() {
        if name.is_empty() {
            errors.push(name.invalid("must not be empty"));
        } else {
            set.push("`nodeName`");
            looks(&name, names::dns1123_subdomain, errors);
        }
    }
    if selector.is_present() {
        set.push("`nodeSelector`");
        node_selector::validate(&selector, errors);
    }
    if all.is_present() {
        if all.bool() {
            set.push("`allNodes`");
        } else {
            errors.push(all.invalid("must be either unset or set to true"));
        }
    }
    match set.len() {
        0 => errors.push(device.required(NODES_REQUIRED)),
        1 => {}
        _ => errors.push(Error::invalid(device.path(), format!("{{{}}}", set.join(", ")), NODES_REQUIRED)),
    }
}

/// Validates keys and values of a map. An invalid key is reported at the map.
fn keyed(map: &At<'_>, errors: &mut Errors, one: impl Fn(&At<'_>, &mut Errors)) {
    for key in keys(map) {
        common::qualified_name(key, map, errors);
        let short_key = shortened(key);
        let value = map.value().get(key).unwrap_or(&Value::Null);
        one(&At::new(value, map.path().key(&short_key)), errors);
    }
}

fn keys<'a>(map: &At<'a>) -> BTreeSet<&'a str> {
    map.value().as_object().into_iter().flat_map(Object::keys).collect()
}

/// Shortens a key that is too long by removing its middle.
fn shortened(key: &str) -> String {
    let characters: Vec<char> = key.chars().collect();
    if characters.len() <= KEY_MAX {
        return key.to_owned();
    }
    let left = KEY_MAX - "...".len();
    let (head, tail) = (&characters[..left.div_ceil(2)], &characters[characters.len() - left / 2..]);
    format!("{}...{}", head.iter().collect::<String>(), tail.iter().collect::<String>())
}

fn value_count(attribute: &At<'_>) -> usize {
    match LISTS.iter().map(|list| attribute.get(list).len()).sum() {
        0 => 1,
        values => values,
    }
}

fn count(number: usize) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

/// Whether the text is a semantic version such as `1.2.3-rc.1+build`.
fn is_semantic_version(text: &str) -> bool {
    let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (core, pre) = rest.split_once('-').map_or((rest, None), |(core, pre)| (core, Some(pre)));
    let is_word = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
    let is_number = |part: &str| part.bytes().all(|c| c.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
    let numbers: Vec<_> = core.split('.').collect();
    numbers.len() == 3
        && numbers.iter().all(|part| !part.is_empty() && is_number(part))
        && pre.is_none_or(|pre| {
            pre.split('.').all(|part| is_word(part) && (!part.bytes().all(|c| c.is_ascii_digit()) || is_number(part)))
        })
        && build.is_none_or(|build| build.split('.').all(is_word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_follow_semver() {
        for right in ["0.0.0", "1.20.3", "1.0.0-alpha.1", "1.0.0-0a+b.01", "1.0.0+001"] {
            assert!(is_semantic_version(right), "{right}");
        }
        for wrong in ["", "1", "1.2", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "v1.2.3", "1.2.3.4"] {
            assert!(!is_semantic_version(wrong), "{wrong}");
        }
    }

    #[test]
    fn long_key_is_shortened_in_the_middle() {
        assert_eq!(shortened("short"), "short");
        let long = format!("{}{}", "a".repeat(60), "b".repeat(60));
        let short_key = shortened(&long);
        assert_eq!((short_key.len(), short_key.contains("a...b")), (KEY_MAX, true));
    }
}
