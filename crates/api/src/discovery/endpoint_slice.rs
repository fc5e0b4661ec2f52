//! EndpointSlice: a part of the endpoints of a Service.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::names::{dns1123_label, dns1123_subdomain, label_value, parse_ip, qualified_name};
use apimachinery::time::Time;
use apimachinery::{At, Errors, Value};

use crate::core::object_meta;
use crate::field_rules::{
    IMMUTABLE, column, default_to, drop_field, items_mut, looks, required, same, start_generation,
};
use crate::formats::{endpoint_ip, ip_warnings, legacy_ip};
use crate::kind::{Context, Kind, Rules, UpdateChecks, age_column, name_column};
use crate::networking::shortened;

const ENDPOINTS_MAX: usize = 1000;
const ADDRESSES_MAX: usize = 100;
const PORTS_MAX: usize = 20_000;
const TOPOLOGY_MAX: usize = 16;
const HINTS_MAX: usize = 8;
/// Maximum number of ports and of addresses in a table row.
const PER_ROW_MAX: usize = 3;

pub fn kind() -> Kind {
    Kind {
        update_checks: UpdateChecks { whole: 1, change: 0 },
        rules: Arc::new(EndpointSlice),
        ..Kind::stored("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
    }
    .with_columns(&[
        name_column(),
        column("AddressType", "string", "Type of the addresses.", |object, _| object.text_at(&["addressType"]).into()),
        column("Ports", "string", "Ports of the endpoints.", ports),
        column("Endpoints", "string", "Addresses and ports of the endpoints.", endpoints),
        age_column(),
    ])
}

#[derive(Debug)]
struct EndpointSlice;

impl Rules for EndpointSlice {
    fn default(&self, object: &mut Value, _version: &str) {
        for port in items_mut(object, "ports") {
            default_to(port, "name", "");
            default_to(port, "protocol", "TCP");
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        start_generation(object);
        items_mut(object, "endpoints").for_each(|endpoint| drop_field(endpoint, "deprecatedTopology"));
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, _context: &Context<'_>) {
        let content = |of: &Value| {
            let labels = of.at(&["metadata", "labels"]).cloned().unwrap_or_default();
            let mut content = of.clone();
            drop_field(&mut content, "metadata");
            (content, labels)
        };
        let (new, before) = (content(object), content(old));
        if !same(&new.0, &before.0) || !same(&new.1, &before.1) {
            let generation = Meta::of(old).generation() + 1;
            if let Some(mut meta) = MetaMut::of(object) {
                meta.set("generation", generation);
            }
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        validate_slice(&At::root(object), None, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, _context: &Context<'_>, errors: &mut Errors) {
        object_meta::created(object, errors);
        let (root, before) = (At::root(object), At::root(old));
        validate_slice(&root, Some(&before), errors);
        let ty = root.get("addressType");
        if ty.str() != before.get("addressType").str() {
            errors.push(Error::invalid(ty.path(), ty.str(), IMMUTABLE));
        }
    }

    fn warnings(&self, object: &Value, _old: Option<&Value>, _context: &Context<'_>) -> Vec<String> {
        let root = At::root(object);
        if root.get("addressType").str() == "FQDN" {
            return vec!["addressType: FQDN endpoints are deprecated".to_owned()];
        }
        let manager = Meta::of(object).label("endpointslice.kubernetes.io/managed-by").unwrap_or_default();
        if matches!(manager, "endpointslice-controller.k8s.io" | "endpointslicemirroring-controller.k8s.io") {
            return Vec::new();
        }
        let mut warnings = Vec::new();
        for endpoint in root.get("endpoints").items() {
            let addresses = endpoint.get("addresses");
            warnings.extend(addresses.items().filter_map(|address| ip_warnings(address.path(), address.str())));
        }
        warnings
    }
}

fn validate_slice(root: &At<'_>, old: Option<&At<'_>>, errors: &mut Errors) {
    let ty = root.get("addressType");
    if ty.is_empty() {
        errors.push(ty.required(""));
    } else if !matches!(ty.str(), "FQDN" | "IPv4" | "IPv6") {
        errors.push(ty.not_supported(&["FQDN", "IPv4", "IPv6"]));
    }
    validate_ports(&root.get("ports"), errors);
    let endpoints = root.get("endpoints");
    // Unchanged endpoints are not validated: older rules may have accepted them.
    if old.is_some_and(|old| old.get("endpoints").value() == endpoints.value()) {
        return;
    }
    if endpoints.len() > ENDPOINTS_MAX {
        errors.push(Error::too_many(endpoints.path(), endpoints.len(), ENDPOINTS_MAX));
        return;
    }
    endpoints.items().for_each(|endpoint| validate_endpoint(&endpoint, ty.str(), errors));
}

fn validate_endpoint(endpoint: &At<'_>, ty: &str, errors: &mut Errors) {
    let addresses = endpoint.get("addresses");
    if addresses.is_empty() {
        errors.push(addresses.required("must contain at least 1 address"));
    } else if addresses.len() > ADDRESSES_MAX {
        errors.push(Error::too_many(addresses.path(), addresses.len(), ADDRESSES_MAX));
    }
    addresses.items().for_each(|address| validate_address(&address, ty, errors));
    let node = endpoint.get("nodeName");
    if node.is_present() {
        looks(&node, dns1123_subdomain, errors);
    }
    let topology = endpoint.get("deprecatedTopology");
    if topology.len() > TOPOLOGY_MAX {
        errors.push(Error::too_many(topology.path(), topology.len(), TOPOLOGY_MAX));
    }
    if let Some(labels) = topology.value().as_object() {
        apimachinery::meta::validate_labels(labels, topology.path(), errors);
    }
    let host = endpoint.get("hostname");
    if host.is_present() {
        looks(&host, dns1123_label, errors);
    }
    let hints = endpoint.get("hints");
    validate_hints(&hints.get("forZones"), label_value, errors);
    validate_hints(&hints.get("forNodes"), dns1123_subdomain, errors);
}

fn validate_address(address: &At<'_>, ty: &str, errors: &mut Errors) {
    let before = errors.len();
    match ty {
        "IPv4" | "IPv6" => {
            legacy_ip(address, &[], errors);
            if errors.len() > before {
                return;
            }
            if parse_ip(address.str()).is_some_and(|ip| ip.is_ipv4() != (ty == "IPv4")) {
                errors.push(address.invalid(format!("must be an {ty} address")));
            }
            endpoint_ip(address, errors);
        }
        "FQDN" => validate_domain(address, errors),
        _ => {}
    }
}

/// Requires a domain name of at least two labels; a trailing dot is allowed.
fn validate_domain(address: &At<'_>, errors: &mut Errors) {
    if address.is_empty() {
        errors.push(address.required(""));
        return;
    }
    let name = address.str().strip_suffix('.').unwrap_or(address.str());
    let wrong = dns1123_subdomain(name);
    if !wrong.is_empty() {
        errors.push(address.invalid(wrong.join(",")));
    } else if !name.contains('.') {
        errors.push(address.invalid("should be a domain with at least two segments separated by dots"));
    }
}

fn validate_hints(hints: &At<'_>, rule: fn(&str) -> Vec<String>, errors: &mut Errors) {
    if hints.len() > HINTS_MAX {
        errors.push(Error::too_many(hints.path(), hints.len(), HINTS_MAX));
        return;
    }
    let mut seen = BTreeSet::new();
    for hint in hints.items() {
        let name = hint.get("name");
        if !seen.insert(name.str().to_owned()) {
            errors.push(name.duplicate());
        }
        looks(&name, rule, errors);
    }
}

fn validate_ports(ports: &At<'_>, errors: &mut Errors) {
    if ports.len() > PORTS_MAX {
        errors.push(Error::too_many(ports.path(), ports.len(), PORTS_MAX));
        return;
    }
    let mut seen = BTreeSet::new();
    for port in ports.items() {
        let (name, protocol, app) = (port.get("name"), port.get("protocol"), port.get("appProtocol"));
        if !name.is_empty() {
            looks(&name, dns1123_label, errors);
        }
        if !seen.insert(name.str().to_owned()) {
            errors.push(Error::duplicate(name.path(), name.str()));
        }
        if protocol.is_absent() {
            required(&protocol, errors);
        } else if !matches!(protocol.str(), "SCTP" | "TCP" | "UDP") {
            errors.push(protocol.not_supported(&["SCTP", "TCP", "UDP"]));
        }
        if app.is_present() {
            looks(&app, qualified_name, errors);
        }
    }
}

fn ports(object: &Value, _now: Time) -> Value {
    let ports = object.list_at(&["ports"]);
    let numbers: Vec<_> = ports
        .iter()
        .map(|port| port.get("port").and_then(Value::as_int).map_or_else(|| "*".to_owned(), |port| port.to_string()))
        .collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    if numbers.is_empty() { "<unset>".into() } else { shortened(&numbers, PER_ROW_MAX).into() }
}

fn endpoints(object: &Value, _now: Time) -> Value {
    let endpoints = object.list_at(&["endpoints"]);
    let addresses: Vec<&str> =
        endpoints.iter().flat_map(|endpoint| endpoint.list_at(&["addresses"])).filter_map(Value::as_str).collect();
    if addresses.is_empty() { "<unset>".into() } else { shortened(&addresses, PER_ROW_MAX).into() }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn addresses_must_match_the_address_type() {
        let check = |ty: &str, address: &str, expect: Option<&str>| {
            let mut errors = Errors::new();
            validate_address(&At::root(&value!(address)), ty, &mut errors);
            assert_eq!(errors.first().map(|error| error.detail.as_str()), expect, "{address}");
        };
        check("IPv4", "10.0.0.1", None);
        check("IPv4", "fd00::1", Some("must be an IPv4 address"));
        check("IPv6", "10.0.0.1", Some("must be an IPv6 address"));
        check("IPv4", "127.0.0.1", Some("may not be in the loopback range (127.0.0.0/8, ::1/128)"));
        check("FQDN", "a.example.com.", None);
        check("FQDN", "a", Some("should be a domain with at least two segments separated by dots"));
    }

    #[test]
    fn table_row_contains_the_first_ports_and_addresses() {
        let slice =
            value!({"ports": [{"port": 80}, {}], "endpoints": [{"addresses": ["a", "b"]}, {"addresses": ["c", "d"]}]});
        assert_eq!(ports(&slice, Time::from_unix(0, 0)), value!("80,*"));
        assert_eq!(endpoints(&slice, Time::from_unix(0, 0)), value!("a,b,c + 1 more..."));
        assert_eq!(ports(&value!({}), Time::from_unix(0, 0)), value!("<unset>"));
    }
}
