//! API kinds of the networking.k8s.io group, and their shared validation.

pub mod ingress;
pub mod ingress_class;
pub mod ip_address;
pub mod network_policy;
pub mod service_cidr;

use apimachinery::names::{dns1123_subdomain, parse_ip, path_segment};
use apimachinery::{At, Errors, Value};

use crate::field_rules::{looks, required_and_looks};
use crate::kind::Kind;

pub const KINDS: &[fn() -> Kind] =
    &[ingress::kind, ingress_class::kind, ip_address::kind, network_policy::kind, service_cidr::kind];

/// Validates a reference by API group, kind and name.
fn validate_reference(reference: &At<'_>, errors: &mut Errors) {
    let group = reference.get("apiGroup");
    if group.is_present() {
        looks(&group, dns1123_subdomain, errors);
    }
    required_and_looks(&reference.get("kind"), path_segment, errors);
    required_and_looks(&reference.get("name"), path_segment, errors);
}

/// Validates the host name of a load balancer ingress.
pub(crate) fn validate_balancer_host(host: &At<'_>, errors: &mut Errors) {
    if host.is_empty() {
        return;
    }
    looks(host, dns1123_subdomain, errors);
    if parse_ip(host.str()).is_some() {
        errors.push(host.invalid("must be a DNS name, not an IP address"));
    }
}

/// Returns the load balancer addresses and host names as a cell.
pub(crate) fn balancer_cell(object: &Value) -> Value {
    let served = object.list_at(&["status", "loadBalancer", "ingress"]);
    let found = served.iter().filter_map(|one| {
        let text = |field: &str| one.str_at(&[field]).filter(|text| !text.is_empty());
        text("ip").or_else(|| text("hostname"))
    });
    let found: std::collections::BTreeSet<&str> = found.collect();
    found.into_iter().collect::<Vec<_>>().join(",").into()
}

/// Joins the first `limit` texts and appends the number of the others.
pub(crate) fn shortened(texts: &[&str], limit: usize) -> String {
    match texts.len().checked_sub(limit) {
        Some(more @ 1..) => format!("{} + {more} more...", texts[..limit].join(",")),
        _ => texts.join(","),
    }
}
