//! Tables of the planner: objects in YAML, the routing table in a short notation.

mod acme;

use std::fmt::Write as _;

use apimachinery::yaml;

use super::*;
use crate::routing::{Action, BackendProtocol, BackendTarget, PathMatch, Route, ValueMatch};

const WEB: &str = "
kind: Service
metadata: {name: web, namespace: default}
spec: {ports: [{name: http, port: 80}, {name: grpc, port: 90, appProtocol: kubernetes.io/h2c}]}
---
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
endpoints: [{addresses: [10.0.0.2]}, {addresses: [10.0.0.1]}, {addresses: [10.0.0.3], conditions: {ready: false}}]
ports: [{name: http, port: 8080}, {name: grpc, port: 9090}]
---
kind: Service
metadata: {name: other, namespace: default}
spec: {clusterIP: None, ports: [{port: 80}]}
---
kind: EndpointSlice
metadata: {name: other-1, namespace: default, labels: {kubernetes.io/service-name: other}}
endpoints: [{addresses: [10.0.0.9]}]
ports: [{port: 80}]
";

const NOW: Time = Time::from_unix(1_800_000_000, 0);

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

/// Reads objects from YAML documents. The creation time of an Ingress is the order of the documents.
fn observe(documents: &str) -> Objects {
    let mut objects = Objects {
        ingresses: Collection::new(Vec::new()),
        classes: Collection::new(Vec::new()),
        services: Collection::new(Vec::new()),
        slices: Collection::new(slices_by_service()),
        secrets: Collection::new(Vec::new()),
        gateway: gateway::Objects::default(),
        unavailable: BTreeMap::new(),
        acme: super::acme::Progress::default(),
    };
    let class = "kind: IngressClass\nmetadata: {name: knarr}\nspec: {controller: knarr.io/ingress-controller}\n";
    let all = format!("{class}---\n{WEB}---\n{documents}");
    for (number, text) in all.split("---\n").filter(|text| !text.trim().is_empty()).enumerate() {
        let object = yaml::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let (key, revision, observed_at) = (Key::of(&object), number as u64, Time::from_unix(0, 0));
        let created = Time::parse(&format!("2026-01-01T00:00:{number:02}Z")).unwrap();
        match object.str_at(&["kind"]).unwrap() {
            "Ingress" => {
                let value = Ingress { created: Some(created), ..Ingress::read(&object) };
                drop(objects.ingresses.insert(Entry { key, revision, observed_at, value }));
            }
            "IngressClass" => {
                drop(objects.classes.insert(Entry { key, revision, observed_at, value: IngressClass::read(&object) }));
            }
            "Service" => {
                drop(objects.services.insert(Entry { key, revision, observed_at, value: Service::read(&object) }));
            }
            "EndpointSlice" => {
                drop(objects.slices.insert(Entry { key, revision, observed_at, value: Slice::read(&object) }));
            }
            "Secret" => {
                drop(objects.secrets.insert(Entry { key, revision, observed_at, value: TlsSecret::read(&object) }));
            }
            "Gateway" => {
                let mut value = gateway::objects::Gateway::read(&object);
                value.identity.created = Some(created);
                drop(objects.gateway.gateways.insert(Entry { key, revision, observed_at, value }));
            }
            "HTTPRoute" => {
                let mut value = gateway::routes::Route::read_http(&object);
                value.identity.created = Some(created);
                drop(objects.gateway.http_routes.insert(Entry { key, revision, observed_at, value }));
            }
            kind => panic!("{kind} is not observed"),
        }
    }
    objects
}

/// An Ingress of class knarr: `host/path=service:port` per rule, where `=/path` is exact.
fn ingress(name: &str, rules: &[&str], rest: &str) -> String {
    let rules = rules.iter().map(|rule| {
        let (from, to) = rule.rsplit_once('=').unwrap();
        let (host, path) = from.split_at(from.find('/').unwrap());
        let (kind, host) = host.strip_suffix('=').map_or(("Prefix", host), |host| ("Exact", host));
        let (service, port) = to.split_once(':').unwrap();
        let port = if port.parse::<u16>().is_ok() { format!("number: {port}") } else { format!("name: {port}") };
        let host = if host.is_empty() { String::new() } else { format!("host: \"{host}\", ") };
        format!(
            "{{{host}http: {{paths: [{{path: {path}, pathType: {kind}, \
             backend: {{service: {{name: {service}, port: {{{port}}}}}}}}}]}}}}"
        )
    });
    let rules: Vec<String> = rules.collect();
    let (annotations, spec) = rest.split_once('|').unwrap_or((rest, ""));
    format!(
        "---\nkind: Ingress\nmetadata: {{name: {name}, namespace: default, annotations: {{{annotations}}}}}\n\
         spec: {{ingressClassName: knarr, rules: [{}]{spec}}}\n",
        rules.join(", ")
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
                BackendProtocol::Http1 => "",
                BackendProtocol::Http2 => "h2c ",
                BackendProtocol::Https(_) => "https ",
            };
            let endpoints: Vec<String> = backend.endpoints.iter().map(ToString::to_string).collect();
            format!("{protocol}{}", endpoints.join(","))
        }
    }
}

fn line(port: u16, pattern: &HostPattern, route: &Route) -> String {
    let mut line = format!("{port} {}", host(pattern));
    match &route.matches.path {
        PathMatch::Exact(path) => write!(line, " ={path}"),
        PathMatch::Prefix(path) => write!(line, " {path}"),
        PathMatch::GrpcMethod(method) => write!(line, " */{method}"),
    }
    .unwrap();
    for (name, ValueMatch::Exact(value)) in &route.matches.headers {
        write!(line, " {name}:{value}").unwrap();
    }
    let action = match &route.action {
        Action::Forward(backends) if backends.len() == 1 => target(&backends[0].target),
        Action::Forward(backends) => {
            let parts = backends.iter().map(|one| format!("{}% {}", one.weight, target(&one.target)));
            parts.collect::<Vec<_>>().join(" ")
        }
        Action::Redirect(redirect) => format!("redirect {}", redirect.status.as_u16()),
        Action::Respond(status) => status.as_u16().to_string(),
        Action::Answer(text) => format!("{text:?}"),
    };
    format!("{line} -> {action}")
}

/// Returns the routes of one port, or of both if they differ.
fn routes(plan: &Plan, port: u16) -> Vec<String> {
    let Some(listener) = plan.table.listeners.get(&port.into()) else { return Vec::new() };
    let all = listener
        .hosts
        .iter()
        .flat_map(|(pattern, virtual_host)| virtual_host.routes.iter().map(move |route| line(port, pattern, route)));
    all.collect()
}

fn events(plan: &Plan) -> Vec<String> {
    plan.events.iter().map(|event| format!("{} {}: {}", event.subject.key, event.reason, event.message)).collect()
}

/// Plans the Ingresses and compares the routes of port 80 and the Events.
fn check(ingresses: &[String], expect_routes: &[&str], expect_events: &[&str]) -> Plan {
    let plan = plan(&settings(), &observe(&ingresses.concat()), NOW);
    assert_eq!(routes(&plan, 80), expect_routes);
    assert_eq!(events(&plan), expect_events);
    plan
}

const BOTH: &str = "10.0.0.1:8080,10.0.0.2:8080";

#[test]
fn ports_are_closed_without_an_ingress_of_this_class() {
    let other = "---\nkind: Ingress\nmetadata: {name: a, namespace: default}\nspec: {ingressClassName: nginx}\n";
    let absent = "---\nkind: Ingress\nmetadata: {name: b, namespace: default}\nspec: {}\n";
    assert_eq!(plan(&settings(), &observe(&format!("{other}{absent}")), NOW), Plan::default());
}

#[test]
fn class_annotation_claims_an_ingress() {
    let annotated = "---\nkind: Ingress\nmetadata: {name: a, namespace: default, \
         annotations: {kubernetes.io/ingress.class: knarr}}\n\
         spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}\n";
    check(&[annotated.to_owned()], &[&format!("80 * / -> {BOTH}")], &[]);
}

#[test]
fn exact_paths_precede_the_longest_prefix() {
    let rules = ["a.test/=web:80", "a.test/api/=other:80", "a.test/api/v1=web:http", "a.test=/api=other:80"];
    check(
        &[ingress("a", &rules, "")],
        &[
            "80 a.test =/api -> 10.0.0.9:80",
            &format!("80 a.test /api/v1 -> {BOTH}"),
            "80 a.test /api -> 10.0.0.9:80",
            &format!("80 a.test / -> {BOTH}"),
        ],
        &[],
    );
}

#[test]
fn ingresses_of_one_host_merge_and_the_oldest_wins() {
    check(
        &[ingress("b", &["a.test/x=web:80"], ""), ingress("a", &["a.test/x=other:80", "A.test/y=other:80"], "")],
        &[&format!("80 a.test /x -> {BOTH}"), "80 a.test /y -> 10.0.0.9:80"],
        &["default/a PathConflict: a.test/x is served by the older Ingress default/b"],
    );
}

#[test]
fn wildcard_and_empty_hosts_are_separate_hosts() {
    check(
        &[ingress("a", &["*.a.test/=web:80", "/=other:80"], "")],
        &[&format!("80 *.a.test / -> {BOTH}"), "80 * / -> 10.0.0.9:80"],
        &[],
    );
}

#[test]
fn default_backend_serves_other_paths_and_unknown_hosts() {
    let backend = "|, defaultBackend: {service: {name: other, port: {number: 80}}}";
    check(
        &[ingress("a", &["a.test/x=web:80"], backend), ingress("b", &["b.test/x=web:80"], "")],
        &[
            &format!("80 a.test /x -> {BOTH}"),
            "80 a.test / -> 10.0.0.9:80",
            &format!("80 b.test /x -> {BOTH}"),
            "80 * / -> 10.0.0.9:80",
        ],
        &[],
    );
}

#[test]
fn backends_that_cannot_be_used_are_refused_with_the_reason() {
    let external = "---\nkind: Service\nmetadata: {name: ext, namespace: default}\nspec: {type: ExternalName}\n";
    let resource = "|, defaultBackend: {resource: {kind: Bucket, name: assets}}";
    check(
        &[
            external.to_owned(),
            ingress("a", &["a.test/1=none:80", "a.test/2=web:81", "a.test/3=ext:80"], ""),
            ingress("b", &[], resource),
        ],
        &["80 a.test /1 -> 503", "80 a.test /2 -> 503", "80 a.test /3 -> 500", "80 * / -> 500"],
        &[
            "default/a BackendNotFound: Service none does not exist",
            "default/a BackendNotFound: Service web has no TCP port 81",
            "default/a UnsupportedBackend: Service ext has type ExternalName, to which this controller does not forward",
            "default/b UnsupportedBackend: backend Bucket assets is not supported: only Services are",
        ],
    );
}

#[test]
fn terminating_endpoints_serve_if_no_endpoint_is_ready() {
    let service = "---\nkind: Service\nmetadata: {name: old, namespace: default}\nspec: {ports: [{port: 80}]}\n\
         ---\nkind: EndpointSlice\nmetadata: {name: old-1, namespace: default, \
         labels: {kubernetes.io/service-name: old}}\nports: [{port: 8080}]\nendpoints: \
         [{addresses: [10.0.0.5], conditions: {ready: false, serving: true, terminating: true}}, \
         {addresses: [10.0.0.6], conditions: {ready: false, serving: false, terminating: true}}]\n";
    check(&[service.to_owned(), ingress("a", &["a.test/=old:80"], "")], &["80 a.test / -> 10.0.0.5:8080"], &[]);
}

#[test]
fn backend_protocol_comes_from_the_annotation_or_the_port() {
    let https = "knarr.io/backend-protocol: HTTPS";
    check(
        &[ingress("a", &["a.test/=web:grpc"], ""), ingress("b", &["b.test/=other:80"], https)],
        &["80 a.test / -> h2c 10.0.0.1:9090,10.0.0.2:9090", "80 b.test / -> https 10.0.0.9:80"],
        &[],
    );
}

#[test]
fn canaries_receive_requests_by_header_and_by_weight() {
    let canary = "knarr.io/canary-weight: \"20\", knarr.io/canary-header: X-Canary";
    check(
        &[ingress("canary", &["a.test/=other:80", "b.test/=other:80"], canary), ingress("a", &["a.test/=web:80"], "")],
        &[
            "80 a.test / x-canary:always -> 10.0.0.9:80",
            &format!("80 a.test / x-canary:never -> {BOTH}"),
            &format!("80 a.test / -> 80% {BOTH} 20% 10.0.0.9:80"),
        ],
        &["default/canary CanaryWithoutIngress: no other Ingress of this namespace serves b.test/"],
    );
}

#[test]
fn hosts_with_tls_redirect_to_https_unless_the_annotation_disables_it() {
    let tls = ", tls: [{hosts: [\"*.test\"]}]";
    let plan = check(
        &[
            ingress("a", &["a.test/=web:80", "a.b.test/=web:80"], &format!("|{tls}")),
            ingress("b", &["b.test/=web:80"], &format!("knarr.io/https-redirect: \"false\"|{tls}")),
        ],
        &[&format!("80 a.b.test / -> {BOTH}"), "80 a.test / -> redirect 308", &format!("80 b.test / -> {BOTH}")],
        &[],
    );
    assert_eq!(
        routes(&plan, 443),
        [format!("443 a.b.test / -> {BOTH}"), format!("443 a.test / -> {BOTH}"), format!("443 b.test / -> {BOTH}")]
    );
}

fn secret(name: &str, certificate: &str, key: &str) -> String {
    let encode = |text: &str| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    format!(
        "---\nkind: Secret\nmetadata: {{name: {name}, namespace: default}}\n\
         data: {{tls.crt: {}, tls.key: {}}}\n",
        encode(certificate),
        encode(key)
    )
}

#[test]
fn certificates_of_valid_secrets_are_served_by_host() {
    let made = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["b.test".to_owned()]).unwrap();
    let tls = "|, tls: [{hosts: [a.test], secretName: good}, {hosts: [b.test], secretName: mixed}, {hosts: [c.test], \
         secretName: none}]";
    let plan = plan(
        &settings(),
        &observe(&format!(
            "{}{}{}",
            secret("good", &made.cert.pem(), &made.signing_key.serialize_pem()),
            secret("mixed", &made.cert.pem(), &other.signing_key.serialize_pem()),
            ingress("a", &[], tls)
        )),
        NOW,
    );
    let served = plan.table.listeners[&443.into()].tls.as_ref().unwrap();
    assert_eq!(served.certificates.keys().map(host).collect::<Vec<_>>(), ["a.test"]);
    assert_eq!(
        events(&plan),
        [
            "default/a InvalidCertificate: Secret mixed: tls.crt and tls.key cannot be used together: keys may not be \
             consistent: KeyMismatch",
            "default/a CertificateNotFound: Secret none of type kubernetes.io/tls does not exist",
        ]
    );
}

#[test]
fn status_is_written_only_if_different() {
    let published = ingress("b", &["b.test/=web:80"], "") + "status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}\n";
    let plan = plan(&settings(), &observe(&(ingress("a", &["a.test/=web:80"], "") + &published)), NOW);
    let writes: Vec<String> =
        plan.statuses.iter().map(|write| format!("{} {}", write.subject.key, write.status)).collect();
    assert_eq!(writes, [r#"default/a {"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}"#]);
}

#[test]
fn load_balancer_service_on_the_same_port_is_reported() {
    let service = "---\nkind: Service\nmetadata: {name: lb, namespace: default}\nspec: {ports: [{port: 80}]}\n\
         status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}\n";
    check(
        &[service.to_owned(), ingress("a", &["a.test/=web:80"], "")],
        &[&format!("80 a.test / -> {BOTH}")],
        &[
            "default/a PortInUse: the LoadBalancer Service default/lb receives the connections to port 80 of the ingress \
           controller",
        ],
    );
}

#[test]
fn proxy_protocol_is_required_on_all_listeners() {
    let required = Settings { proxy_protocol: true, ..settings() };
    for (settings, expect) in [(required, true), (settings(), false)] {
        let plan = plan(&settings, &observe(&ingress("web", &["a.test/=web:80"], "")), NOW);
        assert!(plan.table.listeners.values().all(|listener| listener.proxy_protocol == expect));
    }
}
