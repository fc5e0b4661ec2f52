//! Ingresses and their classes, network policies, service CIDRs and IP addresses.

use std::collections::BTreeSet;

use apimachinery::Value;

use super::common::{self, describe_selector};
use super::query::{Query, SERVICES, Tolerate};
use super::read::{Read, int_or_string, name, namespace};
use super::service::{endpoints_of, slices_of};
use super::writer::{Writer, line};
use super::{RelatedObjects, WriteResult};

/// Returns queries for the Services of all backends, and for their endpoints.
pub(super) fn ingress_queries(ingress: &Value) -> Result<Vec<Query>, String> {
    let paths = ingress.list("spec.rules").iter().flat_map(|rule| rule.list("http.paths"));
    let backends = std::iter::once(ingress.sub("spec.defaultBackend")).chain(paths.map(|path| path.sub("backend")));
    let services: BTreeSet<&str> =
        backends.filter(|backend| backend.has("service")).map(|backend| backend.text("service.name")).collect();
    let queries = services.into_iter().flat_map(|service| backend_queries(namespace(ingress), service));
    Ok(queries.collect())
}

fn backend_queries(namespace: &str, service: &str) -> [Query; 2] {
    let get = Query::get(&SERVICES, namespace, service).tolerating(Tolerate::All);
    [slices_of(namespace, service), get]
}

pub(super) fn ingress(w: &mut Writer<'_>, ingress: &Value, related: &RelatedObjects) -> WriteResult {
    let spec = ingress.sub("spec");
    let describe = |backend: &Value| backend_text(namespace(ingress), backend, related);
    line!(w, 0, "Name:\t{}", name(ingress));
    common::labels(w, "Labels", ingress.map("metadata.labels"));
    line!(w, 0, "Namespace:\t{}", namespace(ingress));
    line!(w, 0, "Address:\t{}", addresses(ingress.list("status.loadBalancer.ingress")));
    line!(w, 0, "Ingress Class:\t{}", spec.text_or("ingressClassName", "<none>"));
    let default = match spec.sub("defaultBackend") {
        Value::Null => "<default>".to_owned(),
        backend => describe(backend),
    };
    line!(w, 0, "Default backend:\t{default}");
    if !spec.list("tls").is_empty() {
        line!(w, 0, "TLS:");
    }
    for tls in spec.list("tls") {
        let hosts = tls.texts("hosts").join(",");
        match tls.text("secretName") {
            "" => line!(w, 1, "SNI routes {hosts}"),
            secret => line!(w, 1, "{secret} terminates {hosts}"),
        }
    }
    line!(w, 0, "Rules:\n  Host\tPath\tBackends");
    line!(w, 1, "----\t----\t--------");
    let rules: Vec<&Value> = spec.list("rules").iter().filter(|rule| rule.has("http")).collect();
    for rule in &rules {
        let host = rule.text("host");
        line!(w, 1, "{}\t", if host.is_empty() { "*" } else { host });
        for path in rule.list("http.paths") {
            line!(w, 2, "\t{} \t{}", path.text("path"), describe(path.sub("backend")));
        }
    }
    if rules.is_empty() {
        line!(w, 1, "*\t*\t{default}");
    }
    common::annotations(w, "Annotations", ingress.map("metadata.annotations"));
    Ok(())
}

/// Formats the addresses of a load balancer, sorted and without duplicates.
fn addresses(ingress: &[Value]) -> String {
    let address = |point: &'_ Value| match point.text("ip") {
        "" => point.text("hostname").to_owned(),
        ip => ip.to_owned(),
    };
    let addresses: BTreeSet<String> = ingress.iter().map(address).filter(|address| !address.is_empty()).collect();
    addresses.into_iter().collect::<Vec<_>>().join(",")
}

/// Formats a backend: a Service with its endpoints, or a resource.
fn backend_text(namespace: &str, backend: &Value, related: &RelatedObjects) -> String {
    let service = backend.sub("service");
    if !service.is_null() {
        let (number, port_name) = (service.int("port.number"), service.text("port.name"));
        let port = if number == 0 { port_name.to_owned() } else { number.to_string() };
        let name_and_port = format!("{}:{port}", service.text("name"));
        let [slices, get] = backend_queries(namespace, service.text("name"));
        let found = related.response(&slices).and_then(|slices| Ok((slices, related.response(&get)?)));
        return match found {
            Ok((slices, found)) => {
                let ports = found.first().map(|service| service.list("spec.ports")).unwrap_or_default();
                let is_port = |port: &&Value| {
                    (number != 0 && port.int("port") == number)
                        || (!port_name.is_empty() && port.text("name") == port_name)
                };
                let port_name = ports.iter().rfind(is_port).map(|port| port.text("name")).unwrap_or_default();
                format!("{name_and_port} ({})", endpoints_of(slices, port_name))
            }
            Err(error) => format!("{name_and_port} (<error: {error}>)"),
        };
    }
    let resource = backend.sub("resource");
    if resource.is_null() {
        return String::new();
    }
    let group = resource.text_or("apiGroup", "<none>");
    format!("APIGroup: {group}, Kind: {}, Name: {}", resource.text("kind"), resource.text("name"))
}

pub(super) fn ingress_class(w: &mut Writer<'_>, class: &Value, _: &RelatedObjects) -> WriteResult {
    line!(w, 0, "Name:\t{}", name(class));
    common::metadata(w, class);
    line!(w, 0, "Controller:\t{}", class.text("spec.controller"));
    let parameters = class.sub("spec.parameters");
    if !parameters.is_null() {
        line!(w, 0, "Parameters:");
        if parameters.has("apiGroup") {
            line!(w, 1, "APIGroup:\t{}", parameters.text("apiGroup"));
        }
        line!(w, 1, "Kind:\t{}", parameters.text("kind"));
        line!(w, 1, "Name:\t{}", parameters.text("name"));
    }
    Ok(())
}

pub(super) fn service_cidr(w: &mut Writer<'_>, cidr: &Value, _: &RelatedObjects) -> WriteResult {
    line!(w, 0, "Name:\t{}", name(cidr));
    common::metadata(w, cidr);
    line!(w, 0, "CIDRs:\t{}", cidr.texts("spec.cidrs").join(", "));
    let conditions = cidr.list("status.conditions");
    if !conditions.is_empty() {
        line!(w, 0, "Status:");
        common::dated_conditions(w, conditions);
    }
    Ok(())
}

pub(super) fn ip_address(w: &mut Writer<'_>, address: &Value, _: &RelatedObjects) -> WriteResult {
    line!(w, 0, "Name:\t{}", name(address));
    common::metadata(w, address);
    let parent = address.sub("spec.parentRef");
    if !parent.is_null() {
        line!(w, 0, "Parent Reference:");
        let fields = [("Group", "group"), ("Resource", "resource"), ("Namespace", "namespace"), ("Name", "name")];
        for (title, field) in fields {
            line!(w, 1, "{title}:\t{}", parent.text(field));
        }
    }
    Ok(())
}

/// The wording of one direction of a network policy.
struct Direction {
    /// The policy type.
    policy: &'static str,
    name: &'static str,
    rules: &'static str,
    peers: &'static str,
    peer: &'static str,
    any: &'static str,
}

const DIRECTIONS: [Direction; 2] = [
    Direction { policy: "Ingress", name: "ingress", rules: "ingress", peers: "from", peer: "From", any: "source" },
    Direction { policy: "Egress", name: "egress", rules: "egress", peers: "to", peer: "To", any: "destination" },
];

pub(super) fn network_policy(w: &mut Writer<'_>, policy: &Value, _: &RelatedObjects) -> WriteResult {
    let spec = policy.sub("spec");
    common::identity(w, policy);
    let created = w.clock.long(policy.text("metadata.creationTimestamp"));
    line!(w, 0, "Created on:\t{created}");
    common::metadata(w, policy);
    line!(w, 0, "Spec:");
    let selector = spec.sub("podSelector");
    w.write(1, "PodSelector: ");
    if selector.map("matchLabels").is_empty() && selector.list("matchExpressions").is_empty() {
        line!(w, 2, "<none> (Allowing the specific traffic to all pods in this namespace)");
    } else {
        line!(w, 2, "{}", describe_selector(selector));
    }
    let types = spec.texts("policyTypes");
    for direction in &DIRECTIONS {
        if types.contains(&direction.policy) {
            line!(w, 1, "Allowing {} traffic:", direction.name);
            write_rules(w, direction, spec.list(direction.rules));
        } else {
            line!(w, 1, "Not affecting {} traffic", direction.name);
        }
    }
    line!(w, 1, "Policy Types: {}", if types.is_empty() { "<none>".to_owned() } else { types.join(", ") });
    Ok(())
}

fn write_rules(w: &mut Writer<'_>, direction: &Direction, rules: &[Value]) {
    if rules.is_empty() {
        line!(w, 2, "<none> (Selected pods are isolated for {} connectivity)", direction.name);
    }
    for (index, rule) in rules.iter().enumerate() {
        let ports = rule.list("ports");
        if ports.is_empty() {
            line!(w, 2, "To Port: <any> (traffic allowed to all ports)");
        }
        for port in ports {
            let (number, protocol) = (int_or_string(port.sub("port")), port.text_or("protocol", "TCP"));
            match port.sub("endPort").as_int() {
                None => line!(w, 2, "To Port: {number}/{protocol}"),
                Some(end) => line!(w, 2, "To Port Range: {number}-{end}/{protocol}"),
            }
        }
        let peers = rule.list(direction.peers);
        if peers.is_empty() {
            line!(w, 2, "{}: <any> (traffic not restricted by {})", direction.peer, direction.any);
        }
        for peer in peers {
            line!(w, 2, "{}:", direction.peer);
            write_peer(w, peer);
        }
        if index + 1 < rules.len() {
            line!(w, 2, "----------");
        }
    }
}

fn write_peer(w: &mut Writer<'_>, peer: &Value) {
    let (namespaces, pods) = (peer.sub("namespaceSelector"), peer.sub("podSelector"));
    if !namespaces.is_null() {
        line!(w, 3, "NamespaceSelector: {}", describe_selector(namespaces));
    }
    if !pods.is_null() {
        line!(w, 3, "PodSelector: {}", describe_selector(pods));
    }
    let block = peer.sub("ipBlock");
    if namespaces.is_null() && pods.is_null() && !block.is_null() {
        line!(w, 3, "IPBlock:");
        line!(w, 4, "CIDR: {}", block.text("cidr"));
        line!(w, 4, "Except: {}", block.texts("except").join(", "));
    }
}
