//! Service: a stable name and address for a set of pods.
//!
//! Upstream allocates addresses and ports before validation: [`allocation::plan`] runs first, then the rules of this
//! kind.

mod addresses;
pub mod allocation;
mod columns;
mod validation;

use std::sync::Arc;

use apimachinery::meta::name_is_dns_label;
use apimachinery::{Errors, GroupVersion, Object, Path, Value, value};

use crate::core::object_meta;
use crate::field_rules::{default_empty_to, default_to, drop_field, items_mut};
use crate::formats::{cidr_warnings, ip_warnings};
use crate::kind::{Allocates, Connect, Context, Kind, Persistence, Rules, Selectable, Subresource, Verb, names};
use crate::status;

/// `clusterIP` of a headless service.
pub const HEADLESS: &str = "None";

/// Default session affinity timeout: three hours.
const AFFINITY_SECONDS: i64 = 3 * 60 * 60;

pub fn kind() -> Kind {
    Kind {
        short_names: names(&["svc"]),
        categories: names(&["all"]),
        persistence: Persistence::Stored {
            prefix: "services/specs".into(),
            version: GroupVersion { group: "".into(), version: "v1".into() },
            expires: false,
        },
        subresources: vec![
            Subresource::connect(
                "proxy",
                "ServiceProxyOptions",
                &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update],
                Connect::Proxy,
            ),
            Subresource::status(),
        ],
        create_on_update: true,
        returns_deleted: true,
        name_rule: name_is_dns_label,
        selectable: vec![
            Selectable::new("spec.clusterIP", |service| text(service, "clusterIP").into()),
            Selectable::new("spec.type", |service| text(service, "type").into()),
        ],
        allocates: Some(Allocates { plan: allocation::plan, allocated_claims: allocation::allocated_claims }),
        rules: Arc::new(Service),
        ..Kind::stored("", "v1", "Service", "services")
    }
    .with_columns(&columns::columns())
}

#[derive(Debug)]
struct Service;

impl Rules for Service {
    fn default(&self, object: &mut Value, _version: &str) {
        let reachable = is_reachable_from_outside(object);
        let Some(spec) = object.get_mut("spec") else { return };
        default_affinity(spec);
        default_empty_to(spec, "type", "ClusterIP");
        for port in items_mut(spec, "ports") {
            default_empty_to(port, "protocol", "TCP");
            let unset = matches!(port.get("targetPort"), None | Some(Value::Null | Value::Int(0)))
                || port.str_at(&["targetPort"]) == Some("");
            let number = port.get("port").cloned().unwrap_or(Value::Int(0));
            if let Some(port) = port.as_object_mut().filter(|_| unset) {
                port.insert("targetPort", number);
            }
        }
        if reachable {
            default_empty_to(spec, "externalTrafficPolicy", "Cluster");
        }
        let ty = spec.text_at(&["type"]).to_owned();
        if matches!(ty.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
            default_to(spec, "internalTrafficPolicy", "Cluster");
        }
        if ty == "LoadBalancer" {
            default_to(spec, "allocateLoadBalancerNodePorts", true);
            let balancer = object.get_mut("status").and_then(|status| status.get_mut("loadBalancer"));
            for ingress in balancer.into_iter().flat_map(|balancer| items_mut(balancer, "ingress")) {
                if ingress.str_at(&["ip"]).is_some_and(|ip| !ip.is_empty()) {
                    default_to(ingress, "ipMode", "VIP");
                }
            }
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        status::reset(object);
        addresses::normalize(object, None);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        if status::separate(object, old, context) {
            allocation::keep_allocated(object, old);
            addresses::normalize(object, Some(old));
            drop_what_the_type_lacks(object, old);
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        validation::validate(object, None, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        object_meta::created(object, errors);
        if context.subresource.is_empty() {
            addresses::validate_change(object, old, errors);
            validation::validate_change(object, old, errors);
            validation::validate(object, Some(old), errors);
        } else {
            validation::validate_status(object, old, errors);
        }
    }

    fn warnings(&self, object: &Value, _old: Option<&Value>, context: &Context<'_>) -> Vec<String> {
        if context.subresource.is_empty() { warnings(object) } else { Vec::new() }
    }
}

/// Returns a string of the spec, empty if absent.
fn text<'a>(service: &'a Value, field: &str) -> &'a str {
    service.text_at(&["spec", field])
}

/// Returns the strings of a list in the spec.
fn texts<'a>(service: &'a Value, field: &str) -> Vec<&'a str> {
    let list = service.list_at(&["spec", field]);
    list.iter().map(|text| text.as_str().unwrap_or_default()).collect()
}

fn is_headless(service: &Value) -> bool {
    texts(service, "clusterIPs") == [HEADLESS]
}

fn needs_address(service: &Value) -> bool {
    text(service, "type") != "ExternalName"
}

fn needs_node_ports(service: &Value) -> bool {
    matches!(text(service, "type"), "NodePort" | "LoadBalancer")
}

/// Whether the service needs a health check node port.
fn needs_health_check(service: &Value) -> bool {
    text(service, "type") == "LoadBalancer" && text(service, "externalTrafficPolicy") == "Local"
}

fn is_reachable_from_outside(service: &Value) -> bool {
    match text(service, "type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" | "" => !texts(service, "externalIPs").is_empty(),
        _ => false,
    }
}

/// Returns the allocated node ports in the order of the ports.
fn node_ports(service: &Value) -> Vec<i64> {
    let ports = service.list_at(&["spec", "ports"]);
    ports.iter().filter_map(|port| port.get("nodePort")?.as_int()).filter(|port| *port != 0).collect()
}

fn spec_mut(service: &mut Value) -> Option<&mut Object> {
    service.get_mut("spec")?.as_object_mut()
}

fn default_affinity(spec: &mut Value) {
    default_empty_to(spec, "sessionAffinity", "None");
    match spec.str_at(&["sessionAffinity"]) {
        Some("None") => drop_field(spec, "sessionAffinityConfig"),
        Some("ClientIP") => {
            let seconds = spec.at(&["sessionAffinityConfig", "clientIP", "timeoutSeconds"]);
            let seconds = seconds.cloned().filter(|seconds| !seconds.is_null()).unwrap_or(Value::Int(AFFINITY_SECONDS));
            if let Some(spec) = spec.as_object_mut() {
                spec.insert("sessionAffinityConfig", value!({"clientIP": {"timeoutSeconds": seconds}}));
            }
        }
        _ => {}
    }
}

/// Drops fields that the new type does not support and the old type did, unless the client changed them: validation
/// rejects those.
fn drop_what_the_type_lacks(new: &mut Value, old: &Value) {
    let same = |new: &Value, field: &str| new.at(&["spec", field]) == old.at(&["spec", field]);
    if needs_address(old) && !needs_address(new) {
        let addresses = same(new, "clusterIP") && texts(new, "clusterIPs") == texts(old, "clusterIPs");
        let dropped_fields = [
            ("clusterIP", addresses),
            ("clusterIPs", addresses),
            ("ipFamilies", same(new, "ipFamilies")),
            ("ipFamilyPolicy", text(new, "ipFamilyPolicy") == text(old, "ipFamilyPolicy")),
        ];
        drop_fields(new, &dropped_fields);
    }
    let known = node_ports(old);
    if needs_node_ports(old) && !needs_node_ports(new) && node_ports(new).iter().all(|port| known.contains(port)) {
        let ports = new.get_mut("spec").into_iter().flat_map(|spec| items_mut(spec, "ports"));
        ports.for_each(|port| drop_field(port, "nodePort"));
    }
    let was_balancer = text(old, "type") == "LoadBalancer" && text(new, "type") != "LoadBalancer";
    let dropped_fields = [
        (
            "healthCheckNodePort",
            needs_health_check(old) && !needs_health_check(new) && same(new, "healthCheckNodePort"),
        ),
        ("allocateLoadBalancerNodePorts", was_balancer && same(new, "allocateLoadBalancerNodePorts")),
        ("loadBalancerClass", was_balancer && same(new, "loadBalancerClass")),
        ("internalTrafficPolicy", needs_address(old) && !needs_address(new) && same(new, "internalTrafficPolicy")),
        (
            "externalTrafficPolicy",
            is_reachable_from_outside(old) && !is_reachable_from_outside(new) && same(new, "externalTrafficPolicy"),
        ),
    ];
    drop_fields(new, &dropped_fields);
    if text(new, "type") != "LoadBalancer"
        && let Some(status) = new.get_mut("status").and_then(Value::as_object_mut)
    {
        status.insert("loadBalancer", Value::object());
    }
}

fn drop_fields(service: &mut Value, fields: &[(&str, bool)]) {
    if let Some(spec) = spec_mut(service) {
        for (field, is_dropped) in fields {
            if *is_dropped {
                spec.remove(field);
            }
        }
    }
}

fn warnings(service: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let annotations = apimachinery::meta::Meta::of(service);
    if annotations.annotation(validation::TOPOLOGY_HINTS).is_some() {
        let (old, new) = (validation::TOPOLOGY_HINTS, validation::TOPOLOGY_MODE);
        warnings.push(format!("annotation {old} is deprecated, please use {new} instead"));
    }
    let spec = Path::of("spec");
    let ips = |field: &str| -> Vec<String> {
        let path = spec.field(field);
        let ips = texts(service, field).into_iter().enumerate();
        ips.filter_map(|(at, ip)| ip_warnings(&path.index(at), ip)).collect()
    };
    warnings.extend(ips("clusterIPs"));
    if text(service, "type") == "ClusterIP" && text(service, "clusterIP") == HEADLESS {
        let ignored = [
            ("loadBalancerIP", !text(service, "loadBalancerIP").is_empty()),
            ("externalIPs", !texts(service, "externalIPs").is_empty()),
            ("SessionAffinity", text(service, "sessionAffinity") != "None"),
        ];
        let ignored = ignored.iter().filter(|(_, given)| *given);
        warnings.extend(ignored.map(|(field, _)| format!("spec.{field} is ignored for headless services")));
    }
    warnings.extend(ips("externalIPs"));
    warnings.extend(ip_warnings(&spec.field("loadBalancerIP"), text(service, "loadBalancerIP")));
    let path = spec.field("loadBalancerSourceRanges");
    for (at, range) in texts(service, "loadBalancerSourceRanges").into_iter().enumerate() {
        warnings.extend(cidr_warnings(&path.index(at), range));
    }
    let external = text(service, "type") == "ExternalName";
    if external && !texts(service, "externalIPs").is_empty() {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !external && !text(service, "externalName").is_empty() {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if text(service, "trafficDistribution") == "PreferClose" {
        let advice = "\"PreferClose\" is deprecated; use \"PreferSameZone\"";
        warnings.push(format!("spec.trafficDistribution: {advice}"));
    }
    warnings
}

#[cfg(test)]
mod tests;
