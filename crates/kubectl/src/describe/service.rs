//! Services and their endpoints.

use apimachinery::Value;
use apimachinery::labels::format_labels;

use super::common;
use super::query::{ENDPOINT_SLICES, Query, Tolerate};
use super::read::{Read, int_or_string, join_host_port, name, namespace};
use super::writer::{Writer, line};
use super::{RelatedObjects, WriteResult};

/// The number of endpoints that are printed.
const ENDPOINTS_MAX: usize = 3;

/// Returns a query for the EndpointSlices of a Service.
pub(super) fn slices_of(namespace: &str, service: &str) -> Query {
    let slices = Query::list(&ENDPOINT_SLICES, namespace).with_labels(format!("kubernetes.io/service-name={service}"));
    slices.tolerating(Tolerate::All)
}

pub(super) fn queries(service: &Value) -> Result<Vec<Query>, String> {
    Ok(vec![slices_of(namespace(service), name(service))])
}

pub(super) fn service(w: &mut Writer<'_>, service: &Value, related: &RelatedObjects) -> WriteResult {
    let spec = service.sub("spec");
    common::identity(w, service);
    common::metadata(w, service);
    line!(w, 0, "Selector:\t{}", format_labels(spec.get("selector")));
    line!(w, 0, "Type:\t{}", spec.text("type"));
    if spec.has("ipFamilyPolicy") {
        line!(w, 0, "IP Family Policy:\t{}", spec.text("ipFamilyPolicy"));
    }
    line!(w, 0, "IP Families:\t{}", or_none(&spec.texts("ipFamilies").join(",")));
    line!(w, 0, "IP:\t{}", spec.text("clusterIP"));
    line!(w, 0, "IPs:\t{}", or_none(&spec.texts("clusterIPs").join(",")));
    let external = spec.texts("externalIPs").join(",");
    let ingress = ingress(service.list("status.loadBalancer.ingress"));
    let optional = [
        ("External IPs", external.as_str()),
        ("Desired LoadBalancer IP", spec.text("loadBalancerIP")),
        ("External Name", spec.text("externalName")),
    ];
    write_present(w, &optional);
    if service.has("status.loadBalancer.ingress") {
        line!(w, 0, "LoadBalancer Ingress:\t{ingress}");
    }
    let slices = related.list(&ENDPOINT_SLICES).unwrap_or_default();
    for port in spec.list("ports") {
        write_port(w, port, slices);
    }
    line!(w, 0, "Session Affinity:\t{}", spec.text("sessionAffinity"));
    let health = spec.sub("healthCheckNodePort").as_int().filter(|port| *port != 0);
    let health = health.map(|port| port.to_string()).unwrap_or_default();
    let ranges = spec.texts("loadBalancerSourceRanges").join(",");
    let optional = [
        ("External Traffic Policy", spec.text("externalTrafficPolicy")),
        ("Internal Traffic Policy", spec.text("internalTrafficPolicy")),
        ("HealthCheck NodePort", health.as_str()),
        ("LoadBalancer Source Ranges", ranges.as_str()),
        ("Traffic Distribution", spec.text("trafficDistribution")),
    ];
    write_present(w, &optional);
    Ok(())
}

fn write_present(w: &mut Writer<'_>, lines: &[(&str, &str)]) {
    for (title, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        line!(w, 0, "{title}:\t{value}");
    }
}

fn write_port(w: &mut Writer<'_>, port: &Value, slices: &[Value]) {
    let (name, protocol) = (port.text("name"), port.text("protocol"));
    let display = if name.is_empty() { "<unset>" } else { name };
    line!(w, 0, "Port:\t{display}\t{}/{protocol}", port.int("port"));
    line!(w, 0, "TargetPort:\t{}/{protocol}", int_or_string(port.sub("targetPort")));
    if port.has("appProtocol") {
        line!(w, 0, "AppProtocol:\t{}", port.text("appProtocol"));
    }
    if port.int("nodePort") != 0 {
        line!(w, 0, "NodePort:\t{display}\t{}/{protocol}", port.int("nodePort"));
    }
    line!(w, 0, "Endpoints:\t{}", endpoints_of(slices, name));
}

fn ingress(ingress: &[Value]) -> String {
    let point = |point: &Value| match (point.text("ip"), point.text("ipMode")) {
        ("", _) => point.text("hostname").to_owned(),
        (ip, "") => ip.to_owned(),
        (ip, mode) => format!("{ip} ({mode})"),
    };
    ingress.iter().map(point).collect::<Vec<_>>().join(", ")
}

/// Formats the first ready endpoints of a port, and how many more there are.
pub(super) fn endpoints_of(slices: &[Value], port_name: &str) -> String {
    if slices.is_empty() {
        return "<none>".to_owned();
    }
    let mut listed = Vec::new();
    let (mut count, mut more) = (0, false);
    for slice in slices {
        // A headless Service may have no ports.
        let ports: Vec<Option<&Value>> = match slice.list("ports") {
            [] => vec![None],
            ports => ports.iter().filter(|port| port.text("name") == port_name).map(Some).collect(),
        };
        for (port, endpoint) in ports.iter().flat_map(|port| slice.list("endpoints").iter().map(move |e| (port, e))) {
            // An endpoint that is not ready still marks the list as longer than shown.
            more |= listed.len() == ENDPOINTS_MAX;
            if endpoint.sub("conditions.ready").as_bool() == Some(false) {
                continue;
            }
            let address = endpoint.texts("addresses").first().copied().unwrap_or_default();
            if !more {
                listed.push(match port {
                    Some(port) => join_host_port(address, &port.int("port").to_string()),
                    None => address.to_owned(),
                });
            }
            count += 1;
        }
    }
    let list = listed.join(",");
    if more { format!("{list} + {} more...", count - ENDPOINTS_MAX) } else { list }
}

pub(super) fn endpoints(w: &mut Writer<'_>, endpoints: &Value, _: &RelatedObjects) -> WriteResult {
    common::identity(w, endpoints);
    common::metadata(w, endpoints);
    line!(w, 0, "Subsets:");
    for subset in endpoints.list("subsets") {
        for (title, field) in [("Addresses", "addresses"), ("NotReadyAddresses", "notReadyAddresses")] {
            let addresses: Vec<&str> = subset.list(field).iter().map(|address| address.text("ip")).collect();
            line!(w, 1, "{title}:\t{}", or_none(&addresses.join(",")));
        }
        let ports = subset.list("ports");
        if !ports.is_empty() {
            line!(w, 1, "Ports:");
            line!(w, 2, "Name\tPort\tProtocol");
            line!(w, 2, "----\t----\t--------");
        }
        for port in ports {
            line!(w, 2, "{}\t{}\t{}", or_unset(port.text("name")), port.int("port"), port.text("protocol"));
        }
        line!(w, 0, "");
    }
    Ok(())
}

pub(super) fn endpoint_slice(w: &mut Writer<'_>, slice: &Value, _: &RelatedObjects) -> WriteResult {
    common::identity(w, slice);
    common::metadata(w, slice);
    line!(w, 0, "AddressType:\t{}", slice.text("addressType"));
    let ports = slice.list("ports");
    if ports.is_empty() {
        line!(w, 0, "Ports: <unset>");
    } else {
        line!(w, 0, "Ports:");
        line!(w, 1, "Name\tPort\tProtocol");
        line!(w, 1, "----\t----\t--------");
    }
    for port in ports {
        let number = port.sub("port").as_int().map_or_else(|| "<unset>".to_owned(), |port| port.to_string());
        line!(w, 1, "{}\t{number}\t{}", or_unset(port.text("name")), port.text("protocol"));
    }
    let endpoints = slice.list("endpoints");
    line!(w, 0, "Endpoints:{}", if endpoints.is_empty() { " <none>" } else { "" });
    for endpoint in endpoints {
        line!(w, 1, "- Addresses:\t{}", or_none(&endpoint.texts("addresses").join(", ")));
        line!(w, 2, "Conditions:");
        let ready = endpoint.sub("conditions.ready").as_bool();
        line!(w, 3, "Ready:\t{}", ready.map_or_else(|| "<unset>".to_owned(), |ready| ready.to_string()));
        line!(w, 2, "Hostname:\t{}", endpoint.text_or("hostname", "<unset>"));
        let target = endpoint.sub("targetRef");
        if !target.is_null() {
            line!(w, 2, "TargetRef:\t{}/{}", target.text("kind"), target.text("name"));
        }
        line!(w, 2, "NodeName:\t{}", endpoint.text_or("nodeName", "<unset>"));
        line!(w, 2, "Zone:\t{}", endpoint.text_or("zone", "<unset>"));
    }
    Ok(())
}

const fn or_none(text: &str) -> &str {
    if text.is_empty() { "<none>" } else { text }
}

const fn or_unset(text: &str) -> &str {
    if text.is_empty() { "<unset>" } else { text }
}
