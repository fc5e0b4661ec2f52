//! Probes and lifecycle hooks of containers.

use apimachinery::field::Error;
use apimachinery::{At, Errors, Value, names};

use super::report::{invalid_int, invalid_text, required};
use crate::field_rules::{non_negative, one_of};

/// Handlers of probes.
const PROBE: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];
/// Handlers of postStart and preStop hooks.
const LIFECYCLE: [&str; 4] = ["exec", "httpGet", "tcpSocket", "sleep"];

/// Validates the three probes of a container.
pub(crate) fn probes(container: &At<'_>, grace_seconds: Option<i64>, errors: &mut Errors) {
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let found = container.get(name);
        if found.is_absent() {
            continue;
        }
        probe(&found, grace_seconds, errors);
        let (threshold, grace) = (found.get("successThreshold"), found.get("terminationGracePeriodSeconds"));
        if name == "readinessProbe" {
            if grace.is_present() {
                errors.push(grace.invalid("must not be set for readinessProbes"));
            }
        } else if threshold.int() != 1 {
            errors.push(invalid_int(&threshold, "must be 1"));
        }
    }
}

/// Validates postStart and preStop.
pub(crate) fn lifecycle(lifecycle: &At<'_>, grace_seconds: Option<i64>, errors: &mut Errors) {
    for hook in ["postStart", "preStop"] {
        let hook = lifecycle.get(hook);
        if hook.is_present() {
            handler(&hook, &LIFECYCLE, grace_seconds, errors);
        }
    }
}

fn probe(probe: &At<'_>, grace_seconds: Option<i64>, errors: &mut Errors) {
    handler(probe, &PROBE, grace_seconds, errors);
    for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        non_negative(&probe.get(field), errors);
    }
    let grace = probe.get("terminationGracePeriodSeconds");
    if grace.is_present() && grace.int() <= 0 {
        errors.push(grace.invalid("must be greater than 0"));
    }
}

/// Requires exactly one valid handler.
fn handler(handler: &At<'_>, ways: &[&str], grace_seconds: Option<i64>, errors: &mut Errors) {
    let mut found = 0;
    for way in ways {
        let action = handler.get(way);
        if action.is_absent() {
            continue;
        }
        found += 1;
        match *way {
            _ if found > 1 => errors.push(action.forbidden("may not specify more than 1 handler type")),
            "exec" => {
                required(&action.get("command"), errors);
            }
            "httpGet" => http_get(&action, errors),
            "sleep" => sleep(&action, grace_seconds, errors),
            _ => port(&action.get("port"), errors),
        }
    }
    if found == 0 {
        errors.push(handler.required("must specify a handler type"));
    }
}

fn http_get(get: &At<'_>, errors: &mut Errors) {
    required(&get.get("path"), errors);
    port(&get.get("port"), errors);
    one_of(&get.get("scheme"), &["HTTP", "HTTPS"], errors);
    let headers = get.get("httpHeaders");
    for header in headers.list() {
        let name = header.text_at(&["name"]);
        let wrong = names::http_header_name(name).into_iter();
        errors.extend(wrong.map(|detail| Error::invalid(headers.path(), name, detail)));
    }
}

fn port(port: &At<'_>, errors: &mut Errors) {
    match port.value() {
        Value::String(name) => {
            errors.extend(names::port_name(name).into_iter().map(|detail| invalid_text(port, detail)));
        }
        _ => errors.extend(names::port_number(port.int()).into_iter().map(|detail| invalid_int(port, detail))),
    }
}

fn sleep(sleep: &At<'_>, grace_seconds: Option<i64>, errors: &mut Errors) {
    let seconds = sleep.get("seconds").int();
    let Some(grace) = grace_seconds else { return };
    if seconds < 0 || seconds > grace {
        let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.push(Error::invalid(sleep.path(), seconds, detail));
    }
}
