//! Tables of the planner: objects in YAML, the routing table and the statuses in a short notation.

mod attachment;
mod backends;
mod gateways;
mod routing;

use std::fmt::Write as _;
use std::net::IpAddr;

use apimachinery::time::Time;
use apimachinery::{Value, yaml};

use super::super::objects::{Service, Slice, TlsSecret};
use super::super::{Objects, Plan, Settings, Subject, plan, slices_by_service};
use super::*;
use crate::kinds::Kind;
use crate::routing::{
    Action, BackendProtocol, BackendTarget, Filter, HostPattern, PathMatch, Route as TableRoute, ValueMatch,
};

const NOW: Time = Time::from_unix(1_800_000_000, 0);

const BASE: &str = "
kind: GatewayClass
metadata: {name: knarr, generation: 1}
spec: {controllerName: knarr.io/gateway-controller}
---
kind: GatewayClass
metadata: {name: other}
spec: {controllerName: example.com/other}
---
kind: Namespace
metadata: {name: default, labels: {team: a}}
---
kind: Namespace
metadata: {name: apps, labels: {team: b}}
---
kind: Service
metadata: {name: web, namespace: default}
spec: {ports: [{name: http, port: 80}, {name: h2c, port: 90, appProtocol: kubernetes.io/h2c}, {name: tls, port: 443, appProtocol: HTTPS}]}
---
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
endpoints: [{addresses: [10.0.0.1]}]
ports: [{name: http, port: 8080}, {name: h2c, port: 9090}, {name: tls, port: 8443}]
---
kind: Service
metadata: {name: app, namespace: apps}
spec: {ports: [{port: 80}]}
---
kind: EndpointSlice
metadata: {name: app-1, namespace: apps, labels: {kubernetes.io/service-name: app}}
endpoints: [{addresses: [10.0.0.2]}]
ports: [{port: 80}]
";

fn settings() -> Settings {
    Settings {
        http_port: 80,
        https_port: 443,
        addresses: vec![IpAddr::from([192, 0, 2, 1])],
        gateway_addresses: Vec::new(),
        default_certificate: None,
        acme: true,
        proxy_protocol: false,
    }
}

/// Reads objects from YAML documents. The creation time of an object is the order of the documents.
fn observe(documents: &str) -> Objects {
    let mut objects = Objects {
        ingresses: Collection::new(Vec::new()),
        classes: Collection::new(Vec::new()),
        services: Collection::new(Vec::new()),
        slices: Collection::new(slices_by_service()),
        secrets: Collection::new(Vec::new()),
        gateway: super::Objects::default(),
        unavailable: BTreeMap::new(),
        acme: super::super::acme::Progress::default(),
    };
    let all = format!("{BASE}{documents}");
    for (number, text) in all.split("\n---\n").filter(|text| !text.trim().is_empty()).enumerate() {
        let object = yaml::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        add(&mut objects, &object, u32::try_from(number).unwrap());
    }
    objects
}

fn add(objects: &mut Objects, object: &Value, number: u32) {
    let (key, revision) = (Key::of(object), u64::from(number));
    let created = Time::parse(&format!("2026-01-01T00:00:{number:02}Z")).unwrap();
    macro_rules! insert {
        ($collection:expr, $value:expr) => {
            drop($collection.insert(Entry { key, revision, observed_at: Time::from_unix(0, 0), value: $value }))
        };
    }
    let aged = |identity: objects::Identity| objects::Identity { created: Some(created), ..identity };
    let gateway = &mut objects.gateway;
    match object.str_at(&["kind"]).unwrap() {
        "GatewayClass" => insert!(gateway.classes, GatewayClass::read(object)),
        "Gateway" => {
            let read = Gateway::read(object);
            insert!(gateway.gateways, Gateway { identity: aged(read.identity.clone()), ..read });
        }
        "HTTPRoute" => {
            let read = Route::read_http(object);
            insert!(gateway.http_routes, Route { identity: aged(read.identity.clone()), ..read });
        }
        "GRPCRoute" => {
            let read = Route::read_grpc(object);
            insert!(gateway.grpc_routes, Route { identity: aged(read.identity.clone()), ..read });
        }
        "BackendTLSPolicy" => {
            let read = BackendTlsPolicy::read(object);
            insert!(gateway.policies, BackendTlsPolicy { identity: aged(read.identity.clone()), ..read });
        }
        "ReferenceGrant" => insert!(gateway.grants, ReferenceGrant::read(object)),
        "ConfigMap" => insert!(gateway.ca_bundles, CaBundle::read(object)),
        "Namespace" => insert!(gateway.namespaces, Namespace::read(object)),
        "Service" => insert!(objects.services, Service::read(object)),
        "EndpointSlice" => insert!(objects.slices, Slice::read(object)),
        "Secret" => insert!(objects.secrets, TlsSecret::read(object)),
        "Ingress" => insert!(objects.ingresses, super::super::objects::Ingress::read(object)),
        "IngressClass" => insert!(objects.classes, super::super::objects::IngressClass::read(object)),
        kind => panic!("{kind} is not observed"),
    }
}

/// A Gateway of class knarr: `name port protocol hostname rest` per listener, where `rest` is YAML.
fn gateway(name: &str, listeners: &[&str], rest: &str) -> String {
    let listener = |text: &&str| {
        let mut parts = text.splitn(5, ' ');
        let mut part = || parts.next().unwrap_or_default();
        let (name, port, protocol, hostname, rest) = (part(), part(), part(), part(), part());
        let hostname = match hostname {
            "" | "-" => String::new(),
            hostname => format!(", hostname: \"{hostname}\""),
        };
        let rest = if rest.is_empty() { String::new() } else { format!(", {rest}") };
        format!("{{name: {name}, port: {port}, protocol: {protocol}{hostname}{rest}}}")
    };
    let listeners: Vec<String> = listeners.iter().map(listener).collect();
    format!(
        "---\nkind: Gateway\nmetadata: {{name: {name}, namespace: default, generation: 1}}\n\
         spec: {{gatewayClassName: knarr, listeners: [{}]{rest}}}\n",
        listeners.join(", ")
    )
}

/// An HTTPRoute `namespace/name` with a parent and rules in YAML.
fn http_route(name: &str, parent: &str, hostnames: &[&str], rules: &str) -> String {
    route_object("HTTPRoute", name, parent, hostnames, rules)
}

fn route_object(kind: &str, name: &str, parent: &str, hostnames: &[&str], rules: &str) -> String {
    let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
    let hostnames: Vec<String> = hostnames.iter().map(|name| format!("\"{name}\"")).collect();
    format!(
        "---\nkind: {kind}\nmetadata: {{name: {name}, namespace: {namespace}, generation: 1}}\n\
         spec: {{parentRefs: [{parent}], hostnames: [{}], rules: [{rules}]}}\n",
        hostnames.join(", ")
    )
}

/// A rule that forwards a prefix to a Service.
fn to(prefix: &str, service: &str) -> String {
    let (name, port) = service.split_once(':').unwrap();
    format!(
        "{{matches: [{{path: {{type: PathPrefix, value: {prefix}}}}}], backendRefs: [{{name: {name}, port: {port}}}]}}"
    )
}

fn host(pattern: &HostPattern) -> String {
    match pattern {
        HostPattern::Exact(name) => name.clone(),
        HostPattern::Wildcard { suffix, .. } => format!("*.{suffix}"),
        HostPattern::Any => "*".to_owned(),
    }
}

fn target(target: &BackendTarget) -> String {
    match target {
        BackendTarget::Status(status) => status.as_u16().to_string(),
        BackendTarget::Endpoints(backend) => {
            let protocol = match &backend.protocol {
                BackendProtocol::Http1 => String::new(),
                BackendProtocol::Http2 => "h2c ".to_owned(),
                BackendProtocol::Https(tls) => format!("https {} ", tls.server_name),
            };
            let endpoints: Vec<String> = backend.endpoints.iter().map(ToString::to_string).collect();
            format!("{protocol}{}", endpoints.join(","))
        }
    }
}

fn line(route: &TableRoute) -> String {
    let mut line = match &route.matches.path {
        PathMatch::Exact(path) => format!("={path}"),
        PathMatch::Prefix(path) => path.clone(),
        PathMatch::GrpcMethod(method) => format!("*/{method}"),
    };
    if let Some(method) = &route.matches.method {
        write!(line, " {method}").unwrap();
    }
    for (name, ValueMatch::Exact(value)) in &route.matches.headers {
        write!(line, " {name}:{value}").unwrap();
    }
    for (name, ValueMatch::Exact(value)) in &route.matches.query {
        write!(line, " ?{name}={value}").unwrap();
    }
    let action = match &route.action {
        Action::Forward(backends) if backends.len() == 1 => target(&backends[0].target),
        Action::Forward(backends) => {
            let parts = backends.iter().map(|one| format!("{}x{}", one.weight, target(&one.target)));
            parts.collect::<Vec<_>>().join(" ")
        }
        Action::Redirect(redirect) => format!("redirect {}", redirect.status.as_u16()),
        Action::Respond(status) => status.as_u16().to_string(),
        Action::Answer(text) => format!("{text:?}"),
    };
    let filters: String = route
        .filters
        .iter()
        .map(|filter| match filter {
            Filter::ModifyRequestHeaders(_) => " +request",
            Filter::ModifyResponseHeaders(_) => " +response",
            Filter::RewriteUrl { .. } => " +rewrite",
            Filter::Mirror(_) => " +mirror",
        })
        .collect();
    format!("{line} -> {action}{filters}")
}

/// Returns the hosts of all listeners with their routes.
fn routes(plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    for (address, listener) in &plan.table.listeners {
        let ip = address.ip.map_or_else(String::new, |ip| format!("{ip}:"));
        for (pattern, virtual_host) in &listener.hosts {
            let routes: Vec<String> = virtual_host.routes.iter().map(|route| line(route)).collect();
            let scheme = if listener.tls.is_some() { "s" } else { "" };
            lines.push(format!("{ip}{}{scheme} {}: {}", address.port, host(pattern), routes.join("; ")));
        }
    }
    lines
}

/// Formats conditions: `+Type` is true; `-Type=Reason` is false, or has an unusual reason.
fn conditions(conditions: &Value) -> String {
    let one = |condition: &Value| {
        let text = |name: &str| condition.str_at(&[name]).unwrap().to_owned();
        match (text("type"), text("status").as_str(), text("reason")) {
            (kind, "True", reason) if kind == reason => format!("+{kind}"),
            (kind, "True", reason) => format!("+{kind}={reason}"),
            (kind, "False", reason) if kind == "Conflicted" && reason == "NoConflicts" => String::new(),
            (kind, _, reason) => format!("-{kind}={reason}"),
        }
    };
    let all: Vec<String> = conditions.as_array().unwrap().iter().map(one).filter(|text| !text.is_empty()).collect();
    all.join(" ")
}

fn write_of<'a>(plan: &'a Plan, kind: Kind, name: &str) -> Option<&'a Value> {
    let is_wanted = |subject: &Subject| subject.kind == kind && subject.key.name == name;
    plan.statuses.iter().find(|write| is_wanted(&write.subject)).map(|write| &write.status)
}

/// Returns the status of a Gateway: its conditions, its addresses, then each listener.
fn gateway_status(plan: &Plan, name: &str) -> Vec<String> {
    let status = write_of(plan, Kind::Gateway, name).unwrap();
    let list = |name: &str| status.get(name).and_then(Value::as_array).unwrap();
    let addresses: Vec<&str> = list("addresses").iter().filter_map(|one| one.str_at(&["value"])).collect();
    let mut lines = vec![format!("{} [{}]", conditions(status.get("conditions").unwrap()), addresses.join(" "))];
    for listener in list("listeners") {
        let kinds = listener.get("supportedKinds").and_then(Value::as_array).unwrap();
        let kinds: Vec<&str> = kinds.iter().filter_map(|kind| kind.str_at(&["kind"])).collect();
        lines.push(format!(
            "{} {} {} {}",
            listener.str_at(&["name"]).unwrap(),
            listener.get("attachedRoutes").unwrap(),
            kinds.join(","),
            conditions(listener.get("conditions").unwrap())
        ));
    }
    lines
}

/// Returns the conditions of an HTTPRoute for each parent.
fn route_status(plan: &Plan, name: &str) -> Vec<String> {
    parents(write_of(plan, Kind::HttpRoute, name).unwrap())
}

fn parents(status: &Value) -> Vec<String> {
    let parents = status.get("parents").and_then(Value::as_array).unwrap();
    parents.iter().map(|parent| conditions(parent.get("conditions").unwrap())).collect()
}

fn planned(documents: &[String]) -> Plan {
    plan(&settings(), &observe(&documents.concat()), NOW)
}

/// Plans the objects and compares the routes.
fn check(documents: &[String], expect: &[&str]) -> Plan {
    let plan = planned(documents);
    assert_eq!(routes(&plan), expect);
    plan
}

fn tls_secret(name: &str) -> String {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let encode = |text: &str| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    format!(
        "---\nkind: Secret\nmetadata: {{name: {name}, namespace: default}}\ndata: {{tls.crt: {}, tls.key: {}}}\n",
        encode(&made.cert.pem()),
        encode(&made.signing_key.serialize_pem())
    )
}
