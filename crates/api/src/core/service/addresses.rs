//! Cluster IPs and IP families of a Service: consistency and allowed changes.

use std::collections::BTreeSet;

use apimachinery::field::Error;
use apimachinery::names::parse_ip;
use apimachinery::{At, Errors, Value};

use super::{HEADLESS, is_headless, spec_mut, text, texts};
use crate::formats::legacy_ip;

/// IP families by their API names.
pub(super) const FAMILIES: &[&str] = &["IPv4", "IPv6"];
const POLICIES: &[&str] = &["PreferDualStack", "RequireDualStack", "SingleStack"];

/// Returns the family of an address, or `None` if the text is not an address.
pub(super) fn family(ip: &str) -> Option<&'static str> {
    parse_ip(ip).map(|ip| if ip.is_ipv4() { FAMILIES[0] } else { FAMILIES[1] })
}

/// Synchronizes `clusterIPs` with `clusterIP` if an old client set only the latter.
pub(super) fn normalize(new: &mut Value, old: Option<&Value>) {
    let one = text(new, "clusterIP").to_owned();
    let all: Vec<String> = texts(new, "clusterIPs").into_iter().map(str::to_owned).collect();
    let cluster_ips = match old {
        None => (!one.is_empty() && all.is_empty()).then(|| vec![Value::from(one)]),
        Some(old) => {
            let (had_one, had) = (text(old, "clusterIP"), texts(old, "clusterIPs"));
            let unchanged = all == had;
            match () {
                () if had_one == one => {
                    (all.is_empty() && !had.is_empty()).then(|| had.into_iter().map(Value::from).collect())
                }
                () if !unchanged => None,
                // The client cleared `clusterIP`, which clears all addresses.
                () if one.is_empty() && !had_one.is_empty() => Some(Vec::new()),
                () => Some(vec![Value::from(one)]),
            }
        }
    };
    if let (Some(cluster_ips), Some(spec)) = (cluster_ips, spec_mut(new)) {
        if cluster_ips.is_empty() {
            spec.remove("clusterIPs");
        } else {
            spec.insert("clusterIPs", cluster_ips);
        }
    }
}

/// Validates addresses, families and policy, individually and for consistency.
pub(super) fn validate(service: &Value, old: Option<&Value>, errors: &mut Errors) {
    if text(service, "type") == "ExternalName" {
        return;
    }
    let root = At::root(service);
    let spec = root.get("spec");
    let addresses = spec.get("clusterIPs");
    match (text(service, "clusterIP"), texts(service, "clusterIPs").first()) {
        ("", None) => {}
        ("", Some(_)) => errors.push(addresses.invalid("must be empty when `clusterIP` is not specified")),
        (_, None) => errors.push(addresses.required("")),
        (one, Some(first)) if one != *first => {
            errors.push(addresses.invalid("first value must match `clusterIP`"));
        }
        _ => {}
    }
    let mut seen = BTreeSet::new();
    for family in spec.get("ipFamilies").items() {
        if !FAMILIES.contains(&family.str()) {
            errors.push(family.not_supported(FAMILIES));
        }
        if !seen.insert(family.str().to_owned()) {
            errors.push(family.duplicate());
        }
    }
    let policy = spec.get("ipFamilyPolicy");
    if policy.is_present() && !POLICIES.contains(&policy.str()) {
        errors.push(policy.not_supported(POLICIES));
    }
    if validate_each(&addresses, old, errors) {
        validate_families(service, &addresses, errors);
    }
}

/// Validates a change of addresses or families: the primary ones are immutable, a secondary one can be added or
/// removed.
pub(super) fn validate_change(new: &Value, old: &Value, errors: &mut Errors) {
    if [new, old].iter().any(|service| text(service, "type") == "ExternalName") {
        return;
    }
    let headless = (is_headless(old), is_headless(new));
    if headless != (true, true) {
        validate_list_change(new, old, "clusterIPs", errors);
    }
    if headless == (false, false) {
        validate_list_change(new, old, "ipFamilies", errors);
    }
}

/// Validates each address. Returns whether the addresses can be validated together.
fn validate_each(addresses: &At<'_>, old: Option<&Value>, errors: &mut Errors) -> bool {
    let known = old.map(|old| texts(old, "clusterIPs")).unwrap_or_default();
    let mut right = true;
    for (at, address) in addresses.items().enumerate() {
        let before = errors.len();
        if at == 0 && address.str() == HEADLESS {
            if addresses.len() > 1 {
                errors.push(addresses.invalid("'None' must be the first and only value"));
            }
        } else {
            legacy_ip(&address, &known, errors);
        }
        right &= errors.len() == before;
    }
    if addresses.len() > 2 {
        errors.push(addresses.invalid("may only hold up to 2 values"));
    }
    right
}

fn validate_families(service: &Value, addresses: &At<'_>, errors: &mut Errors) {
    let found: Vec<_> = texts(service, "clusterIPs").into_iter().map(family).collect();
    if found.len() > 1 && found.iter().collect::<BTreeSet<_>>().len() < 2 {
        errors.push(addresses.invalid("may specify no more than one IP for each IP family"));
    }
    if is_headless(service) {
        return;
    }
    for (at, (address, expected_family)) in addresses.items().zip(texts(service, "ipFamilies")).enumerate() {
        if FAMILIES.contains(&expected_family) && found[at].is_some_and(|found| found != expected_family) {
            errors.push(
                address.invalid(format!("expected an {expected_family} value as indicated by `ipFamilies[{at}]`")),
            );
        }
    }
}

fn validate_list_change(new: &Value, old: &Value, field: &str, errors: &mut Errors) {
    let root = At::root(new);
    let spec = root.get("spec");
    let list = spec.get(field);
    let called = if field == "clusterIPs" { "clusterIP" } else { "ipFamily" };
    let (now, before) = (texts(new, field), texts(old, field));
    let addresses = texts(new, "clusterIPs");
    let at = |index: usize, detail: &str| {
        // Upstream reports an empty list as null.
        let bad_value = if list.list().is_empty() { &Value::Null } else { list.value() };
        Error::invalid(&list.path().index(index), bad_value, detail)
    };
    const FIXED: &str = "may not change once set";
    if now.len() == before.len() {
        for (index, _) in now.iter().zip(&before).enumerate().filter(|(_, (now, before))| now != before) {
            errors.push(at(if field == "clusterIPs" { index } else { 0 }, FIXED));
        }
        return;
    }
    if now.len() < before.len() && addresses.is_empty() {
        errors.push(at(0, &format!("primary {called} can not be unset")));
    }
    if let (Some(now), Some(before)) = (now.first(), before.first())
        && now != before
    {
        errors.push(at(0, FIXED));
    }
    if now.len() < before.len() && now.len() == 1 && text(new, "ipFamilyPolicy") != "SingleStack" {
        let policy = spec.get("ipFamilyPolicy");
        errors.push(policy.invalid(format!("must be set to 'SingleStack' when releasing the secondary {called}")));
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn cluster_ip_from_old_clients_sets_cluster_ips() {
        let check = |new: Value, old: Option<Value>, expect: &[&str]| {
            let (mut new, old) = (value!({"spec": (new)}), old.map(|old| value!({"spec": (old)})));
            normalize(&mut new, old.as_ref());
            assert_eq!(texts(&new, "clusterIPs"), expect);
        };
        let old = || Some(value!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}));
        check(value!({"clusterIP": "10.0.0.1"}), None, &["10.0.0.1"]);
        check(value!({"clusterIP": "10.0.0.1"}), old(), &["10.0.0.1"]);
        check(value!({"clusterIP": "10.0.0.2", "clusterIPs": ["10.0.0.1"]}), old(), &["10.0.0.2"]);
        check(value!({"clusterIPs": ["10.0.0.1"]}), old(), &[]);
    }

    fn check(validate: impl Fn(&mut Errors), expect: &[&str]) {
        let mut errors = Errors::new();
        validate(&mut errors);
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn addresses_and_families_must_match() {
        let service = |ips: Value, families: Value| {
            let first = ips[0].clone();
            value!({"spec": {"clusterIP": (first), "clusterIPs": (ips), "ipFamilies": (families)}})
        };
        let one = service(value!(["10.0.0.1"]), value!(["IPv4"]));
        check(|errors| validate(&one, None, errors), &[]);
        let two = service(value!(["10.0.0.1", "10.0.0.2"]), value!([]));
        let detail = "may specify no more than one IP for each IP family";
        check(
            |errors| validate(&two, None, errors),
            &[&format!(r#"spec.clusterIPs: Invalid value: ["10.0.0.1","10.0.0.2"]: {detail}"#)],
        );
        let other = service(value!(["fd00::1"]), value!(["IPv4"]));
        check(
            |errors| validate(&other, None, errors),
            &[
                r#"spec.clusterIPs[0]: Invalid value: "fd00::1": expected an IPv4 value as indicated by `ipFamilies[0]`"#,
            ],
        );
    }

    #[test]
    fn primary_cluster_ip_is_immutable() {
        let service = |ip: &str| value!({"spec": {"clusterIPs": [ip], "ipFamilies": ["IPv4"]}});
        check(
            |errors| validate_change(&service("10.0.0.2"), &service("10.0.0.1"), errors),
            &[r#"spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set"#],
        );
        check(|errors| validate_change(&service("None"), &service("None"), errors), &[]);
    }
}
