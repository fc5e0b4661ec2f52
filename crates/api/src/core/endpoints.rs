//! Endpoints: all backend addresses of a Service in one object.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::Meta;
use apimachinery::names::{dns1123_label, dns1123_subdomain, qualified_name};
use apimachinery::time::Time;
use apimachinery::{At, Errors, GroupVersion, Value, names as rules_of_names};

use crate::core::object_meta;
use crate::field_rules::{column, default_empty_to, items_mut, looks, same};
use crate::formats::{endpoint_ip, ip_warnings, legacy_ip};
use crate::kind::{Context, Kind, Persistence, Rules, UpdateChecks, age_column, name_column, names};
use crate::networking::shortened;

/// Maximum number of addresses in a table row.
const ADDRESSES_MAX: usize = 3;
const LISTS: [&str; 2] = ["addresses", "notReadyAddresses"];

pub fn kind() -> Kind {
    let mut kind = Kind {
        short_names: names(&["ep"]),
        persistence: Persistence::Stored {
            prefix: "services/endpoints".into(),
            version: GroupVersion { group: "".into(), version: "v1".into() },
            expires: false,
        },
        create_on_update: true,
        update_checks: UpdateChecks { whole: 1, change: 1 },
        rules: Arc::new(Endpoints),
        ..Kind::stored("", "v1", "Endpoints", "endpoints")
    }
    .with_columns(&[
        name_column(),
        column("Endpoints", "string", "Addresses and ports of the endpoints.", addresses),
        age_column(),
    ]);
    let deprecation = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";
    kind.versions[0].deprecation = Some(deprecation.into());
    kind
}

#[derive(Debug)]
struct Endpoints;

impl Rules for Endpoints {
    fn default(&self, object: &mut Value, _version: &str) {
        for subset in items_mut(object, "subsets") {
            items_mut(subset, "ports").for_each(|port| default_empty_to(port, "protocol", "TCP"));
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        root.get("subsets").items().for_each(|subset| validate_subset(&subset, errors));
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        object_meta::created(object, errors);
        // Unchanged subsets are not validated: older rules may have accepted them.
        if !same(At::root(object).get("subsets").value(), At::root(old).get("subsets").value()) {
            self.validate(object, context, errors);
        }
    }

    fn warnings(&self, object: &Value, _old: Option<&Value>, _context: &Context<'_>) -> Vec<String> {
        if Meta::of(object).label("endpoints.kubernetes.io/managed-by") == Some("endpoint-controller") {
            return Vec::new();
        }
        let root = At::root(object);
        let mut warnings = Vec::new();
        for subset in root.get("subsets").items() {
            for list in LISTS {
                for address in subset.get(list).items() {
                    let ip = address.get("ip");
                    warnings.extend(ip_warnings(ip.path(), ip.str()));
                }
            }
        }
        warnings
    }
}

fn validate_subset(subset: &At<'_>, errors: &mut Errors) {
    if LISTS.iter().all(|list| subset.get(list).is_empty()) {
        errors.push(subset.required("must specify `addresses` or `notReadyAddresses`"));
    }
    for list in LISTS {
        subset.get(list).items().for_each(|address| validate_address(&address, errors));
    }
    let ports = subset.get("ports");
    let named = ports.len() > 1;
    ports.items().for_each(|port| validate_port(&port, named, errors));
}

fn validate_address(address: &At<'_>, errors: &mut Errors) {
    let (ip, host, node) = (address.get("ip"), address.get("hostname"), address.get("nodeName"));
    legacy_ip(&ip, &[], errors);
    if !host.is_empty() {
        looks(&host, dns1123_label, errors);
    }
    if node.is_present() {
        looks(&node, dns1123_subdomain, errors);
    }
    endpoint_ip(&ip, errors);
}

fn validate_port(port: &At<'_>, named: bool, errors: &mut Errors) {
    let (name, number) = (port.get("name"), port.get("port"));
    if !name.is_empty() {
        looks(&name, dns1123_label, errors);
    } else if named {
        errors.push(name.required(""));
    }
    let wrong = rules_of_names::port_number(number.int());
    errors.extend(wrong.into_iter().map(|wrong| Error::invalid(number.path(), number.int(), wrong)));
    let (protocol, app) = (port.get("protocol"), port.get("appProtocol"));
    match protocol.str() {
        "" => errors.push(protocol.required("")),
        "SCTP" | "TCP" | "UDP" => {}
        _ => errors.push(protocol.not_supported(&["SCTP", "TCP", "UDP"])),
    }
    if app.is_present() {
        looks(&app, qualified_name, errors);
    }
}

fn addresses(object: &Value, _now: Time) -> Value {
    let list = |of: &Value, field: &str| of.get(field).and_then(Value::as_array).unwrap_or_default().to_vec();
    let subsets = list(object, "subsets");
    if subsets.is_empty() {
        return "<none>".into();
    }
    let mut found = Vec::new();
    for subset in &subsets {
        let ips = list(subset, "addresses");
        let ips: Vec<&str> = ips.iter().filter_map(|address| address.str_at(&["ip"])).collect();
        let ports = list(subset, "ports");
        if ports.is_empty() {
            found.extend(ips.iter().map(|ip| (*ip).to_owned()));
        }
        for port in ports {
            let port = port.get("port").and_then(Value::as_int).unwrap_or_default();
            let joined = |ip: &&str| if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") };
            found.extend(ips.iter().map(joined));
        }
    }
    shortened(&found.iter().map(String::as_str).collect::<Vec<_>>(), ADDRESSES_MAX).into()
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn multiple_ports_require_names() {
        let check = |ports: Value, expect: &[&str]| {
            let subset = value!({"addresses": [{"ip": "10.0.0.1"}], "ports": (ports)});
            let mut errors = Errors::new();
            validate_subset(&At::root(&subset), &mut errors);
            assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), expect);
        };
        check(value!([{"port": 1, "protocol": "TCP"}]), &[]);
        check(
            value!([{"port": 1, "protocol": "TCP"}, {"name": "a", "port": 0, "protocol": "X"}]),
            &["ports[0].name", "ports[1].port", "ports[1].protocol"],
        );
    }

    #[test]
    fn table_row_contains_the_first_addresses_with_ports() {
        let object = value!({"subsets": [{
            "addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "ports": [{"port": 80}, {"port": 81}]
        }]});
        let expect = "10.0.0.1:80,[fd00::1]:80,10.0.0.1:81 + 1 more...";
        assert_eq!(addresses(&object, Time::from_unix(0, 0)), value!(expect));
        assert_eq!(addresses(&value!({}), Time::from_unix(0, 0)), value!("<none>"));
    }
}
