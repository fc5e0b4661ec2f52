//! ResourceClaim spec: device requests, constraints and configuration.

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::field::Error;
use apimachinery::{At, Errors, Value, names};

use super::common::{self, Age, ITEMS_MAX};
use crate::field_rules::{items_mut, looks};

const ALTERNATIVES_MAX: usize = 8;
const ONE_OF: &str = "exactly one of `exactly` or `firstAvailable` is required";
const UNKNOWN_REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

/// Request names, each with the names of its subrequests.
pub(super) type RequestNames = BTreeMap<String, BTreeSet<String>>;

/// Defaults a claim spec. In v1beta1 the fields of `exactly` are in the request itself.
pub(super) fn default(spec: &mut Value, version: &str) {
    let Some(devices) = spec.get_mut("devices") else { return };
    for request in items_mut(devices, "requests") {
        if version == "v1beta1" && !request.text_at(&["deviceClassName"]).is_empty() {
            default_request(request);
        }
        if let Some(exactly) = request.get_mut("exactly").filter(|exactly| !exactly.is_null()) {
            default_request(exactly);
        }
        items_mut(request, "firstAvailable").for_each(default_request);
    }
}

pub(super) fn request_names(spec: &At<'_>) -> RequestNames {
    let devices = spec.get("devices");
    let requests = devices.get("requests");
    let of = |request: At<'_>| {
        let alternatives = request.get("firstAvailable");
        let alternatives = alternatives.items().map(|one| one.get("name").str().to_owned()).collect();
        (request.get("name").str().to_owned(), alternatives)
    };
    requests.items().map(of).collect()
}

pub(super) fn validate(spec: &At<'_>, age: Age, errors: &mut Errors) {
    let names = request_names(spec);
    let devices = spec.get("devices");
    let name_of = |at: &At<'_>| at.get("name").str().to_owned();
    common::set(&devices.get("requests"), ITEMS_MAX, name_of, errors, |request, errors| {
        validate_request(request, age, errors);
    });
    common::items(&devices.get("constraints"), ITEMS_MAX, errors, |constraint, errors| {
        validate_references(&constraint.get("requests"), &names, errors);
        let (matching, distinct) = (constraint.get("matchAttribute"), constraint.get("distinctAttribute"));
        match (matching.is_present(), distinct.is_present()) {
            (true, _) => common::fully_qualified_name(&matching, errors),
            (false, true) => common::fully_qualified_name(&distinct, errors),
            (false, false) => errors.push(constraint.required(
                "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set",
            )),
        }
    });
    common::items(&devices.get("config"), ITEMS_MAX, errors, |config, errors| {
        validate_references(&config.get("requests"), &names, errors);
        common::configuration(config, age, errors);
    });
}

/// Validates a list of references to requests.
pub(super) fn validate_references(list: &At<'_>, names: &RequestNames, errors: &mut Errors) {
    let own = |at: &At<'_>| at.str().to_owned();
    common::set(list, ITEMS_MAX, own, errors, |name, errors| validate_reference(name, names, errors));
}

/// Validates a reference to a request or subrequest.
pub(super) fn validate_reference(at: &At<'_>, names: &RequestNames, errors: &mut Errors) {
    let parts: Vec<_> = at.str().split('/').collect();
    if parts.len() > 2 {
        errors.push(at.invalid(UNKNOWN_REQUEST));
        return;
    }
    for part in &parts {
        let wrong = names::dns1123_label(part);
        errors.extend(wrong.into_iter().map(|wrong| Error::invalid(at.path(), *part, wrong)));
    }
    let known = names.get(parts[0]).is_some_and(|inner| parts.get(1).is_none_or(|part| inner.contains(*part)));
    if !known {
        errors.push(Error::invalid(at.path(), at.str(), UNKNOWN_REQUEST));
    }
}

fn default_request(request: &mut Value) {
    let Some(request) = request.as_object_mut() else { return };
    if request.get("allocationMode").and_then(Value::as_str).unwrap_or_default().is_empty() {
        request.insert("allocationMode", "ExactCount");
    }
    let exact = request.get("allocationMode").and_then(Value::as_str) == Some("ExactCount");
    if exact && request.get("count").and_then(Value::as_int).unwrap_or_default() == 0 {
        request.insert("count", 1);
    }
}

fn validate_request(request: &At<'_>, age: Age, errors: &mut Errors) {
    looks(&request.get("name"), names::dns1123_label, errors);
    let (exactly, alternatives) = (request.get("exactly"), request.get("firstAvailable"));
    match (exactly.is_present(), !alternatives.is_empty()) {
        (false, false) => errors.push(request.required(ONE_OF)),
        (true, true) => {
            let detail = format!("{ONE_OF}, but multiple fields are set");
            errors.push(Error::invalid(request.path(), Value::Null, detail));
        }
        (true, false) => validate_device_request(&exactly, age, errors),
        (false, true) => {
            let name_of = |at: &At<'_>| at.get("name").str().to_owned();
            common::set(&alternatives, ALTERNATIVES_MAX, name_of, errors, |alternative, errors| {
                looks(&alternative.get("name"), names::dns1123_label, errors);
                validate_device_request(alternative, age, errors);
            });
        }
    }
}

fn validate_device_request(request: &At<'_>, age: Age, errors: &mut Errors) {
    let class = request.get("deviceClassName");
    if class.is_empty() {
        errors.push(class.required(""));
    } else {
        looks(&class, names::dns1123_subdomain, errors);
    }
    common::selectors(&request.get("selectors"), age, errors);
    let (mode, count) = (request.get("allocationMode"), request.get("count"));
    match mode.str() {
        "All" if count.int() != 0 => {
            errors.push(count.invalid("must not be specified when allocationMode is 'All'"));
        }
        "ExactCount" if count.int() <= 0 => {
            errors.push(Error::invalid(count.path(), count.int(), "must be greater than zero"));
        }
        "All" | "ExactCount" => {}
        other => errors.push(Error::not_supported(mode.path(), other, &["All", "ExactCount"])),
    }
    common::tolerations(&request.get("tolerations"), errors);
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;
    use crate::resource::resource_claim::kind;
    use crate::validation;

    fn check(devices: Value, expect: &[&str]) {
        let errors = validation::create(&kind(), &value!({"spec": {"devices": devices}}));
        let heads: Vec<_> = errors.iter().map(|line| line.lines().next().unwrap_or_default()).collect();
        assert_eq!(heads, expect);
    }

    #[test]
    fn request_has_either_exactly_or_first_available() {
        check(value!({"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu"}}]}), &[]);
        check(
            value!({"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu"}, "firstAvailable": [{"name": "b"}]}]}),
            &[
                "spec.devices.requests[0]: Invalid value: null: exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
            ],
        );
    }

    #[test]
    fn constraints_refer_to_existing_requests() {
        check(
            value!({"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu"}}],
                "constraints": [{"requests": ["a/x"], "matchAttribute": "model"}]}),
            &[
                "spec.devices.constraints[0].requests[0]: Invalid value: \"a/x\": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'",
                "spec.devices.constraints[0].matchAttribute: Invalid value: \"model\": a fully qualified name must be a domain and a name separated by a slash",
            ],
        );
    }

    #[test]
    fn selectors_are_cel_expressions_on_devices() {
        let request = |expression: &str| {
            value!({"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu",
                "selectors": [{"cel": {"expression": expression}}]}}]})
        };
        check(request("device.attributes['gpu.example.com'].model == 'x'"), &[]);
        check(
            request("device.driver"),
            &[
                "spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid value: \"device.driver\": must evaluate to bool or the unknown type, not string",
            ],
        );
    }
}
