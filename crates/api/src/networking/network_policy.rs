//! NetworkPolicy: allowed traffic from and to pods.

use std::sync::Arc;

use apimachinery::names::parse_cidr;
use apimachinery::{At, Errors, Path, Value, labels, names as rules_of_names, value};

use crate::core::object_meta;
use crate::field_rules::{
    column, default_to, items_mut, label_selector, one_of_if_present, raise_generation, start_generation,
};
use crate::formats::{cidr_warnings, contains, legacy_cidr, port_or_name};
use crate::kind::{Context, Kind, Rules, age_column, name_column, names};

pub fn kind() -> Kind {
    Kind {
        short_names: names(&["netpol"]),
        rules: Arc::new(NetworkPolicy),
        ..Kind::stored("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
    }
    .with_columns(&[
        name_column(),
        column("Pod-Selector", "string", "Label selector of the pods.", |object, _| {
            labels::format_selector(object.at(&["spec", "podSelector"])).into()
        }),
        age_column(),
    ])
}

/// Directions: the field of the rules and the field of their peers.
const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

#[derive(Debug)]
struct NetworkPolicy;

impl Rules for NetworkPolicy {
    fn default(&self, object: &mut Value, _version: &str) {
        let Some(spec) = object.get_mut("spec") else { return };
        let is_empty =
            |spec: &Value, field: &str| spec.get(field).and_then(Value::as_array).is_none_or(<[Value]>::is_empty);
        if is_empty(spec, "policyTypes") {
            let types = if is_empty(spec, "egress") { value!(["Ingress"]) } else { value!(["Ingress", "Egress"]) };
            if let Some(spec) = spec.as_object_mut() {
                spec.insert("policyTypes", types);
            }
        }
        for (direction, _) in DIRECTIONS {
            for rule in items_mut(spec, direction) {
                items_mut(rule, "ports").for_each(|port| {
                    default_to(port, "protocol", "TCP");
                });
            }
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        start_generation(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, _context: &Context<'_>) {
        raise_generation(object, old, &["spec"]);
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        validate_spec(&At::root(object).get("spec"), &[], errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, _context: &Context<'_>, errors: &mut Errors) {
        object_meta::created(object, errors);
        let before = At::root(old);
        let known = prefixes(&before.get("spec")).into_iter().map(|(_, prefix)| prefix).collect::<Vec<_>>();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        validate_spec(&At::root(object).get("spec"), &known, errors);
    }

    fn warnings(&self, object: &Value, _old: Option<&Value>, _context: &Context<'_>) -> Vec<String> {
        let root = At::root(object);
        let prefixes = prefixes(&root.get("spec"));
        prefixes.iter().flat_map(|(path, prefix)| cidr_warnings(&Path::of(path), prefix)).collect()
    }
}

fn validate_spec(spec: &At<'_>, known: &[&str], errors: &mut Errors) {
    label_selector(&spec.get("podSelector"), errors);
    for (direction, peers) in DIRECTIONS {
        let rules = spec.get(direction);
        for rule in rules.items() {
            rule.get("ports").items().for_each(|port| validate_port(&port, errors));
            rule.get(peers).items().for_each(|peer| validate_peer(&peer, known, errors));
        }
    }
    let types = spec.get("policyTypes");
    if types.len() > 2 {
        errors.push(types.invalid("may not specify more than two policyTypes"));
        return;
    }
    for ty in types.items() {
        crate::field_rules::one_of(&ty, &["Ingress", "Egress"], errors);
    }
}

fn validate_port(port: &At<'_>, errors: &mut Errors) {
    one_of_if_present(&port.get("protocol"), &["TCP", "UDP", "SCTP"], errors);
    let (number, end) = (port.get("port"), port.get("endPort"));
    match number.value() {
        Value::Null if end.is_present() => {
            errors.push(end.invalid("may not be specified when `port` is not specified"));
        }
        Value::Null => {}
        Value::String(_) => {
            if end.is_present() {
                errors.push(end.invalid("may not be specified when `port` is non-numeric"));
            }
            port_or_name(&number, errors);
        }
        _ => {
            port_or_name(&number, errors);
            if end.is_present() {
                if end.int() < number.int() {
                    errors.push(end.invalid("must be greater than or equal to `port`"));
                }
                let wrong = rules_of_names::port_number(end.int());
                errors.extend(wrong.into_iter().map(|wrong| end.invalid(wrong)));
            }
        }
    }
}

fn validate_peer(peer: &At<'_>, known: &[&str], errors: &mut Errors) {
    let block = peer.get("ipBlock");
    let mut others = 0;
    for field in ["podSelector", "namespaceSelector"] {
        let selector = peer.get(field);
        if selector.is_present() {
            others += 1;
            label_selector(&selector, errors);
        }
    }
    if block.is_present() {
        validate_block(&block, known, errors);
    }
    match (others, block.is_present()) {
        (0, false) => errors.push(peer.required("must specify a peer")),
        (1.., true) => errors.push(peer.forbidden("may not specify both ipBlock and another peer")),
        _ => {}
    }
}

fn validate_block(block: &At<'_>, known: &[&str], errors: &mut Errors) {
    let cidr = block.get("cidr");
    if cidr.is_empty() {
        errors.push(cidr.required(""));
        return;
    }
    legacy_cidr(cidr.str(), cidr.path(), known, errors);
    let Some(outer) = parse_cidr(cidr.str()) else { return };
    for except in block.get("except").items() {
        legacy_cidr(except.str(), except.path(), known, errors);
        let Some(inner) = parse_cidr(except.str()) else { continue };
        if !contains(outer, inner.0) || outer.1 >= inner.1 {
            let detail = "must be a strict subset of `cidr`";
            errors.push(apimachinery::field::Error::invalid(except.path(), except.str(), detail));
        }
    }
}

/// Returns every CIDR of a policy with its path.
fn prefixes(spec: &At<'_>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (direction, peers) in DIRECTIONS {
        for rule in spec.get(direction).items() {
            for peer in rule.get(peers).items() {
                let block = peer.get("ipBlock");
                if block.is_present() {
                    let cidr = block.get("cidr");
                    found.push((cidr.path().to_string(), cidr.str().to_owned()));
                }
                for except in block.get("except").items() {
                    found.push((except.path().to_string(), except.str().to_owned()));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn except_must_be_within_the_cidr() {
        let check = |except: &str, expect: Option<&str>| {
            let block = value!({"cidr": "10.0.0.0/8", "except": [except]});
            let mut errors = Errors::new();
            validate_block(&At::root(&block), &[], &mut errors);
            assert_eq!(errors.first().map(|error| error.detail.as_str()), expect, "{except}");
        };
        check("10.1.0.0/16", None);
        check("10.0.0.0/8", Some("must be a strict subset of `cidr`"));
        check("11.0.0.0/16", Some("must be a strict subset of `cidr`"));
        check("x", Some("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"));
    }

    #[test]
    fn end_port_requires_a_numeric_port() {
        let check = |port: Value, expect: Option<&str>| {
            let mut errors = Errors::new();
            validate_port(&At::root(&port), &mut errors);
            assert_eq!(errors.first().map(|error| error.detail.as_str()), expect, "{port:?}");
        };
        check(value!({"port": 1, "endPort": 2}), None);
        check(value!({"port": 3, "endPort": 2}), Some("must be greater than or equal to `port`"));
        check(value!({"port": "a", "endPort": 2}), Some("may not be specified when `port` is non-numeric"));
        check(value!({"endPort": 2}), Some("may not be specified when `port` is not specified"));
    }
}
