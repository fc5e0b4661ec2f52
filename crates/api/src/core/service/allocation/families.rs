//! IP families of a Service, from the request, the configured ranges and the old service.

use apimachinery::field::Error;
use apimachinery::{At, Errors, Value};

use super::{AllocationError, Config};
use crate::core::service::addresses::{self, FAMILIES, family};
use crate::core::service::{HEADLESS, spec_mut, text, texts};

const SINGLE: &str = "SingleStack";
const PREFER: &str = "PreferDualStack";
const REQUIRE: &str = "RequireDualStack";

/// Sets `ipFamilyPolicy` and `ipFamilies`, or fails if the request cannot be satisfied.
pub(super) fn set_families(service: &mut Value, old: Option<&Value>, config: &Config) -> Result<(), AllocationError> {
    if text(service, "type") == "ExternalName" || old.is_some_and(|old| keeps_families(service, old)) {
        return Ok(());
    }
    let has_no_selector = text(service, "clusterIP") == HEADLESS && selector_is_empty(service);
    if text(service, "ipFamilyPolicy").is_empty() {
        let before = old.map(|old| text(old, "ipFamilyPolicy")).filter(|policy| !policy.is_empty());
        let policy = before.unwrap_or(if has_no_selector { REQUIRE } else { SINGLE }).to_owned();
        set(service, "ipFamilyPolicy", policy.into());
    }
    let mut errors = Errors::new();
    addresses::validate(service, old, &mut errors);
    check_errors(errors)?;
    let mut errors = Errors::new();
    if let Some(old) = old {
        apply_policy_change(service, old, &mut errors);
    }
    derive_families(service, config, &mut errors);
    check_errors(errors)?;
    if has_no_selector {
        // A headless service without selector gets no address, so it may list any families.
        if texts(service, "ipFamilies").is_empty() {
            add_family(service, default_family(config));
        }
        complete(service);
        return Ok(());
    }
    check_errors(unconfigured(service, config))?;
    if texts(service, "ipFamilies").is_empty() {
        add_family(service, default_family(config));
    }
    if FAMILIES.iter().all(|family| is_configured(config, family)) {
        complete(service);
    }
    Ok(())
}

/// Whether the families of a PreferDualStack service are kept. A change of the cluster's ranges alone must not add or
/// remove an address.
pub(super) fn keeps_families(service: &Value, old: &Value) -> bool {
    let policy = text(old, "ipFamilyPolicy");
    text(service, "type") == text(old, "type")
        && text(service, "type") != "ExternalName"
        && text(service, "ipFamilyPolicy") == PREFER
        && (policy.is_empty() || policy == PREFER)
        && texts(service, "clusterIPs") == texts(old, "clusterIPs")
        && texts(service, "ipFamilies") == texts(old, "ipFamilies")
}

/// Downgrades to a single family if the client sets only the policy.
fn apply_policy_change(service: &mut Value, old: &Value, errors: &mut Errors) {
    if text(service, "ipFamilyPolicy") == SINGLE {
        for field in ["clusterIPs", "ipFamilies"] {
            let now = texts(service, field);
            if now.len() > 1 && now == texts(old, field) {
                let first = Value::from(now[0]);
                set(service, field, vec![first].into());
            }
        }
        return;
    }
    for (field, called) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
        let now = texts(service, field).len();
        if now > 0 && now < texts(old, field).len() {
            errors.push(wrong_policy(service, &format!("must be 'SingleStack' to release the secondary {called}")));
        }
    }
}

/// Derives families from the given addresses.
fn derive_families(service: &mut Value, config: &Config, errors: &mut Errors) {
    if text(service, "ipFamilyPolicy") == SINGLE {
        for (field, called) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
            if texts(service, field).len() == 2 {
                let detail =
                    format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {called} are specified");
                errors.push(wrong_policy(service, &detail));
            }
        }
    }
    let addresses: Vec<String> = texts(service, "clusterIPs").into_iter().map(str::to_owned).collect();
    for (at, ip) in addresses.iter().enumerate() {
        let Some(family) = family(ip) else { break };
        if at < texts(service, "ipFamilies").len() {
            continue;
        }
        if is_configured(config, family) {
            add_family(service, family);
        } else {
            let root = At::root(service);
            let spec = root.get("spec");
            let list = spec.get("clusterIPs");
            let detail = format!("{family} is not configured on this cluster");
            errors.push(Error::invalid(&list.path().index(at), list.value(), detail));
        }
    }
}

fn unconfigured(service: &Value, config: &Config) -> Errors {
    let mut errors = Errors::new();
    if text(service, "ipFamilyPolicy") == REQUIRE && !FAMILIES.iter().all(|family| is_configured(config, family)) {
        errors.push(wrong_policy(service, "this cluster is not configured for dual-stack services"));
    }
    let root = At::root(service);
    let spec = root.get("spec");
    for family in spec.get("ipFamilies").items() {
        if !is_configured(config, family.str()) {
            errors.push(family.invalid("not configured on this cluster"));
        }
    }
    errors
}

/// Adds the second family to a dual-stack service that has one.
fn complete(service: &mut Value) {
    if text(service, "ipFamilyPolicy") == SINGLE {
        return;
    }
    let other = match texts(service, "ipFamilies").as_slice() {
        ["IPv4"] => FAMILIES[1],
        ["IPv6"] => FAMILIES[0],
        _ => return,
    };
    add_family(service, other);
}

fn is_configured(config: &Config, family: &str) -> bool {
    config.ranges.iter().any(|(ip, _)| ip.is_ipv4() == (family == FAMILIES[0]))
}

fn default_family(config: &Config) -> &'static str {
    FAMILIES[usize::from(config.ranges.first().is_some_and(|(ip, _)| ip.is_ipv6()))]
}

fn add_family(service: &mut Value, family: &str) {
    let mut families: Vec<Value> = texts(service, "ipFamilies").into_iter().map(Value::from).collect();
    families.push(family.into());
    set(service, "ipFamilies", families.into());
}

fn set(service: &mut Value, field: &str, value: Value) {
    if let Some(spec) = spec_mut(service) {
        spec.insert(field, value);
    }
}

fn selector_is_empty(service: &Value) -> bool {
    service.at(&["spec", "selector"]).and_then(Value::as_object).is_none_or(apimachinery::Object::is_empty)
}

fn wrong_policy(service: &Value, detail: &str) -> Error {
    At::root(service).get("spec").get("ipFamilyPolicy").invalid(detail)
}

fn check_errors(errors: Errors) -> Result<(), AllocationError> {
    if errors.is_empty() { Ok(()) } else { Err(AllocationError::Invalid(errors)) }
}
