//! Validation of Services, except for addresses and families.

use std::collections::BTreeSet;

use apimachinery::field::{BadValue, Error};
use apimachinery::meta::{Meta, validate_labels};
use apimachinery::names::{self, dns1123_label, dns1123_subdomain, qualified_name};
use apimachinery::{At, Errors, Path, Value, go};

use super::{addresses, is_headless, is_reachable_from_outside, needs_health_check, text, texts};
use crate::field_rules::{looks, one_of_if_present};
use crate::formats::{endpoint_ip, legacy_cidr, legacy_ip, port_or_name};
use crate::networking::validate_balancer_host;

/// Deprecated annotation for topology hints.
pub(super) const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
/// Annotation that enables topology hints.
pub(super) const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// One day.
const AFFINITY_SECONDS_MAX: i64 = 86_400;

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

pub(super) fn validate(service: &Value, old: Option<&Value>, errors: &mut Errors) {
    let root = At::root(service);
    let spec = root.get("spec");
    validate_topology(service, errors);
    validate_by_type(service, &spec, errors);
    validate_ports(&spec.get("ports"), errors);
    if let Some(selector) = spec.get("selector").value().as_object() {
        validate_labels(selector, spec.get("selector").path(), errors);
    }
    validate_affinity(&spec, errors);
    addresses::validate(service, old, errors);
    validate_external_ips(&spec, old, errors);
    let ty = spec.get("type");
    match ty.str() {
        "" => errors.push(ty.required("")),
        "ClusterIP" | "ExternalName" | "LoadBalancer" | "NodePort" => {}
        _ => errors.push(ty.not_supported(&["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"])),
    }
    validate_node_ports(&spec, errors);
    validate_duplicate_ports(&spec.get("ports"), errors);
    validate_source_ranges(service, old, errors);
    validate_balancer(&spec, errors);
    validate_traffic(service, &spec, errors);
}

/// Validates an update, except for addresses and families.
pub(super) fn validate_change(new: &Value, old: &Value, errors: &mut Errors) {
    let root = At::root(new);
    let spec = root.get("spec");
    let both_balance = [new, old].iter().all(|service| text(service, "type") == "LoadBalancer");
    let class = spec.get("loadBalancerClass");
    if both_balance && new.at(&["spec", "loadBalancerClass"]) != old.at(&["spec", "loadBalancerClass"]) {
        errors.push(class.invalid("may not change once set"));
    }
    validate_class(&spec, errors);
    let health = spec.get("healthCheckNodePort");
    let before = old.int_at(&["spec", "healthCheckNodePort"]).unwrap_or_default();
    if needs_health_check(new) && needs_health_check(old) && health.int() != before {
        errors.push(health.forbidden("field is immutable"));
    }
}

/// Validates the load balancer status.
pub(super) fn validate_status(service: &Value, old: &Value, errors: &mut Errors) {
    let root = At::root(service);
    let status = root.get("status");
    let balancer = status.get("loadBalancer");
    let served = balancer.get("ingress");
    if text(service, "type") != "LoadBalancer" {
        if !served.is_empty() {
            errors.push(served.forbidden("may only be used when `spec.type` is 'LoadBalancer'"));
        }
        return;
    }
    let before = old.list_at(&["status", "loadBalancer", "ingress"]);
    let known: Vec<&str> = before.iter().filter_map(|ingress| ingress.str_at(&["ip"])).collect();
    for ingress in served.items() {
        let (ip, mode) = (ingress.get("ip"), ingress.get("ipMode"));
        if !ip.is_empty() {
            legacy_ip(&ip, &known, errors);
        }
        match (mode.is_present(), ip.is_empty()) {
            (false, false) => errors.push(mode.required("must be specified when `ip` is set")),
            (true, true) => errors.push(mode.forbidden("may not be specified when `ip` is not set")),
            _ => one_of_if_present(&mode, &["Proxy", "VIP"], errors),
        }
        validate_balancer_host(&ingress.get("hostname"), errors);
    }
}

fn validate_topology(service: &Value, errors: &mut Errors) {
    let meta = Meta::of(service);
    if let (Some(hints), Some(mode)) = (meta.annotation(TOPOLOGY_HINTS), meta.annotation(TOPOLOGY_MODE))
        && hints != mode
    {
        let metadata = Path::of("metadata");
        let annotations = metadata.field("annotations");
        let detail = format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified");
        errors.push(Error::invalid(&annotations.key(TOPOLOGY_MODE), mode, detail));
    }
}

fn validate_by_type(service: &Value, spec: &At<'_>, errors: &mut Errors) {
    let ty = text(service, "type");
    let ports = spec.get("ports");
    if ports.is_empty() && !is_headless(service) && ty != "ExternalName" {
        errors.push(ports.required(""));
    }
    match ty {
        "LoadBalancer" | "NodePort" if is_headless(service) => {
            let addresses = spec.get("clusterIPs");
            let path = addresses.path().index(0);
            let detail = format!("may not be set to 'None' for {ty} services");
            errors.push(Error::invalid(&path, super::HEADLESS, detail));
        }
        "ExternalName" => {
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                let at = spec.get(field);
                if !at.is_empty() {
                    errors.push(at.forbidden("may not be set for ExternalName services"));
                }
            }
            let name = spec.get("externalName");
            let bare = name.str().strip_suffix('.').unwrap_or(name.str());
            if bare.is_empty() {
                errors.push(name.required(""));
            } else {
                let wrong = dns1123_subdomain(bare).into_iter();
                errors.extend(wrong.map(|wrong| Error::invalid(name.path(), bare, wrong)));
            }
        }
        _ => {}
    }
}

fn validate_ports(ports: &At<'_>, errors: &mut Errors) {
    let named = ports.len() > 1;
    let mut seen = BTreeSet::new();
    for port in ports.items() {
        let (name, number) = (port.get("name"), port.get("port"));
        if !name.is_empty() {
            looks(&name, dns1123_label, errors);
            if !seen.insert(name.str().to_owned()) {
                errors.push(name.duplicate());
            }
        } else if named {
            errors.push(name.required(""));
        }
        let wrong = names::port_number(number.int()).into_iter();
        errors.extend(wrong.map(|wrong| Error::invalid(number.path(), number.int(), wrong)));
        let (protocol, app) = (port.get("protocol"), port.get("appProtocol"));
        match protocol.str() {
            "" => errors.push(protocol.required("")),
            known if PROTOCOLS.contains(&known) => {}
            _ => errors.push(protocol.not_supported(PROTOCOLS)),
        }
        port_or_name(&port.get("targetPort"), errors);
        if app.is_present() {
            looks(&app, qualified_name, errors);
        }
    }
}

fn validate_affinity(spec: &At<'_>, errors: &mut Errors) {
    let (affinity, config) = (spec.get("sessionAffinity"), spec.get("sessionAffinityConfig"));
    match affinity.str() {
        "" => errors.push(affinity.required("")),
        "None" => {
            if config.is_present() {
                errors.push(config.forbidden("must not be set when session affinity is None"));
            }
        }
        "ClientIP" => {
            const WHEN: &str = "when session affinity type is ClientIP";
            let client = config.get("clientIP");
            let seconds = client.get("timeoutSeconds");
            if let Some(absent) = [&config, &client, &seconds].into_iter().find(|at| at.is_absent()) {
                errors.push(absent.required(WHEN));
            } else if !(1..=AFFINITY_SECONDS_MAX).contains(&seconds.int()) {
                let detail = format!("must be greater than 0 and less than {AFFINITY_SECONDS_MAX}");
                errors.push(seconds.invalid(detail));
            }
        }
        _ => errors.push(affinity.not_supported(&["ClientIP", "None"])),
    }
}

fn validate_external_ips(spec: &At<'_>, old: Option<&Value>, errors: &mut Errors) {
    let known = old.map(|old| texts(old, "externalIPs")).unwrap_or_default();
    for ip in spec.get("externalIPs").items() {
        let before = errors.len();
        legacy_ip(&ip, &known, errors);
        if errors.len() == before {
            endpoint_ip(&ip, errors);
        }
    }
}

fn validate_node_ports(spec: &At<'_>, errors: &mut Errors) {
    let ports = spec.get("ports");
    if spec.get("type").str() == "ClusterIP" {
        for port in ports.items().filter(|port| port.get("nodePort").int() != 0) {
            errors.push(port.get("nodePort").forbidden("may not be used when `type` is 'ClusterIP'"));
        }
    }
    let mut seen = BTreeSet::new();
    for port in ports.items() {
        let node = port.get("nodePort");
        if node.int() != 0 && !seen.insert((port.get("protocol").str().to_owned(), node.int())) {
            errors.push(node.duplicate());
        }
    }
}

fn validate_duplicate_ports(ports: &At<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for port in ports.items() {
        let (protocol, number) = (port.get("protocol").str().to_owned(), port.get("port").int());
        if seen.contains(&(protocol.clone(), number)) {
            let quoted = go::json(&Value::from(protocol.as_str()));
            let bad_value = format!(
                r#"{{"Name":"","Protocol":{quoted},"AppProtocol":null,"Port":{number},"TargetPort":0,"NodePort":0}}"#
            );
            errors.push(Error::duplicate(port.path(), BadValue::Text(bad_value)));
        }
        seen.insert((protocol, number));
    }
}

fn validate_source_ranges(service: &Value, old: Option<&Value>, errors: &mut Errors) {
    let balances = text(service, "type") == "LoadBalancer";
    const ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
    let ranges = texts(service, "loadBalancerSourceRanges");
    if !ranges.is_empty() {
        let spec = Path::of("spec");
        // The capital letter is upstream's.
        let path = spec.field("LoadBalancerSourceRanges");
        if !balances {
            errors.push(Error::forbidden(&path, ONLY));
        }
        let known = old.map(|old| texts(old, "loadBalancerSourceRanges")).unwrap_or_default();
        let known: Vec<&str> = known.into_iter().map(str::trim).collect();
        for (at, range) in ranges.iter().enumerate() {
            legacy_cidr(range.trim(), &path.index(at), &known, errors);
        }
        return;
    }
    let Some(ranges) = Meta::of(service).annotation(SOURCE_RANGES) else { return };
    let metadata = Path::of("metadata");
    let annotations = metadata.field("annotations");
    let path = annotations.key(SOURCE_RANGES);
    if !balances {
        errors.push(Error::forbidden(&path, ONLY));
    }
    let changed = old.is_none_or(|old| Meta::of(old).annotation(SOURCE_RANGES) != Some(ranges));
    if changed && !ranges.trim().is_empty() {
        ranges.trim().split(',').for_each(|range| legacy_cidr(range.trim(), &path, &[], errors));
    }
}

fn validate_balancer(spec: &At<'_>, errors: &mut Errors) {
    let balances = spec.get("type").str() == "LoadBalancer";
    let allocate = spec.get("allocateLoadBalancerNodePorts");
    if allocate.is_present() && !balances {
        errors.push(allocate.forbidden("may only be used when `type` is 'LoadBalancer'"));
    }
    if allocate.is_absent() && balances {
        errors.push(Error::required(&Path::of("allocateLoadBalancerNodePorts"), ""));
    }
    validate_class(spec, errors);
}

fn validate_class(spec: &At<'_>, errors: &mut Errors) {
    let class = spec.get("loadBalancerClass");
    if class.is_absent() {
        return;
    }
    if spec.get("type").str() == "LoadBalancer" {
        looks(&class, qualified_name, errors);
    } else {
        errors.push(class.forbidden("may only be used when `type` is 'LoadBalancer'"));
    }
}

fn validate_traffic(service: &Value, spec: &At<'_>, errors: &mut Errors) {
    const POLICIES: &[&str] = &["Cluster", "Local"];
    let external = spec.get("externalTrafficPolicy");
    match (is_reachable_from_outside(service), external.str()) {
        (false, "") | (true, "Cluster" | "Local") => {}
        (false, _) => errors.push(external.invalid("may only be set for externally-accessible services")),
        (true, "") => errors.push(external.required("")),
        (true, _) => errors.push(external.not_supported(POLICIES)),
    }
    let health = spec.get("healthCheckNodePort");
    if !needs_health_check(service) {
        if health.int() != 0 {
            let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.push(health.invalid(detail));
        }
    } else if health.int() != 0 {
        // Allocation sets an absent port.
        let wrong = names::port_number(health.int()).into_iter();
        errors.extend(wrong.map(|wrong| health.invalid(wrong)));
    }
    let internal = spec.get("internalTrafficPolicy");
    if internal.is_absent() && matches!(spec.get("type").str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        errors.push(internal.required(""));
    }
    one_of_if_present(&internal, POLICIES, errors);
    let known = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    one_of_if_present(&spec.get("trafficDistribution"), &known, errors);
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn check(spec: Value, expect: &[&str]) {
        let mut service = value!({"spec": (spec)});
        let kind = super::super::kind();
        kind.rules.default(&mut service, "v1");
        let mut errors = Errors::new();
        validate(&service, None, &mut errors);
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn multiple_ports_require_unique_names() {
        check(value!({"ports": [{"port": 80}]}), &[]);
        check(value!({}), &["spec.ports: Required value"]);
        check(
            value!({"ports": [{"name": "a", "port": 80}, {"port": 80, "nodePort": 30000}]}),
            &[
                "spec.ports[1].name: Required value",
                "spec.ports[1].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
                r#"spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}"#,
            ],
        );
    }

    #[test]
    fn fields_must_match_the_service_type() {
        check(
            value!({"type": "ExternalName", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}),
            &[
                "spec.clusterIPs: Forbidden: may not be set for ExternalName services",
                "spec.externalName: Required value",
            ],
        );
        check(
            value!({"ports": [{"port": 1}], "loadBalancerClass": "a/b", "externalTrafficPolicy": "Local"}),
            &[
                "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
                "spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for externally-accessible services",
            ],
        );
    }

    #[test]
    fn session_affinity_timeout_is_at_most_one_day() {
        let config = value!({"clientIP": {"timeoutSeconds": 86_401}});
        check(
            value!({"ports": [{"port": 1}], "sessionAffinity": "ClientIP", "sessionAffinityConfig": (config)}),
            &[
                "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be greater than 0 and less than 86400",
            ],
        );
    }
}
