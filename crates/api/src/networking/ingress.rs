//! Ingress: routes HTTP traffic from outside the cluster to Services.

use std::sync::Arc;

use apimachinery::field::Error;
use apimachinery::meta::Meta;
use apimachinery::names::{dns1123_label, dns1123_subdomain, parse_ip, wildcard_dns1123_subdomain};
use apimachinery::time::Time;
use apimachinery::{At, Errors, GroupVersion, Path, Value, go, names as rules_of_names};

use crate::core::object_meta;
use crate::field_rules::{column, looks, raise_generation, required_and_looks, start_generation};
use crate::formats::legacy_ip;
use crate::kind::{Context, Kind, Persistence, Rules, Subresource, UpdateChecks, age_column, name_column, names};
use crate::{networking, status};

/// Deprecated annotation for the class.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// Maximum number of hosts in a table row.
const HOSTS_MAX: usize = 3;

pub fn kind() -> Kind {
    Kind {
        short_names: names(&["ing"]),
        persistence: Persistence::Stored {
            prefix: "ingress".into(),
            version: GroupVersion { group: "networking.k8s.io".into(), version: "v1".into() },
            expires: false,
        },
        subresources: vec![Subresource::status()],
        rules: Arc::new(Ingress),
        update_checks: UpdateChecks { whole: 1, change: 1 },
        ..Kind::stored("networking.k8s.io", "v1", "Ingress", "ingresses")
    }
    .with_columns(&[
        name_column(),
        column("Class", "string", "Component that serves the object.", |object, _| {
            object.str_at(&["spec", "ingressClassName"]).unwrap_or("<none>").into()
        }),
        column("Hosts", "string", "Hosts of the rules.", hosts),
        column("Address", "string", "Addresses of the Ingress.", |object, _| networking::balancer_cell(object)),
        column("Ports", "string", "Ports that serve the Ingress.", ports),
        age_column(),
    ])
}

#[derive(Debug)]
struct Ingress;

impl Rules for Ingress {
    fn prepare_create(&self, object: &mut Value, _context: &Context<'_>) {
        status::reset(object);
        start_generation(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        if status::separate(object, old, context) {
            raise_generation(object, old, &["spec"]);
        }
    }

    fn validate(&self, object: &Value, _context: &Context<'_>, errors: &mut Errors) {
        let root = At::root(object);
        let spec = root.get("spec");
        validate_spec(&spec, &Lenient::default(), errors);
        let class = spec.get("ingressClassName");
        if let Some(annotation) = Meta::of(object).annotation(CLASS_ANNOTATION)
            && class.is_present()
            && class.str() != annotation
        {
            let annotations = Path::of("annotations");
            let detail = "must match `ingressClassName` when both are specified";
            errors.push(Error::invalid(&annotations.field(CLASS_ANNOTATION), annotation, detail));
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
        object_meta::created(object, errors);
        let (root, before) = (At::root(object), At::root(old));
        if context.subresource.is_empty() {
            return validate_spec(&root.get("spec"), &Lenient::towards(&before.get("spec")), errors);
        }
        validate_status(&root.get("status"), &before.get("status"), errors);
    }

    fn warnings(&self, object: &Value, old: Option<&Value>, _context: &Context<'_>) -> Vec<String> {
        let has_annotation = Meta::of(object).annotation(CLASS_ANNOTATION).is_some();
        let warn = old.is_none() && has_annotation && object.at(&["spec", "ingressClassName"]).is_none();
        let annotation = go::quote(CLASS_ANNOTATION);
        let text = format!("annotation {annotation} is deprecated, please use 'spec.ingressClassName' instead");
        warn.then_some(text).into_iter().collect()
    }
}

/// Checks that are skipped because the old object already violated them.
#[derive(Default)]
struct Lenient {
    secret_names: bool,
    wildcard_rules: bool,
}

impl Lenient {
    fn towards(old: &At<'_>) -> Self {
        let secret_names = old.get("tls").items().any(|tls| {
            let name = tls.get("secretName");
            !name.is_empty() && !dns1123_subdomain(name.str()).is_empty()
        });
        let wildcard_rules = old.get("rules").items().any(|rule| {
            let mut errors = Errors::new();
            validate_paths(&rule.get("http"), &mut errors);
            rule.get("host").str().contains('*') && !errors.is_empty()
        });
        Self { secret_names, wildcard_rules }
    }
}

fn validate_spec(spec: &At<'_>, lenient: &Lenient, errors: &mut Errors) {
    let (rules, backend) = (spec.get("rules"), spec.get("defaultBackend"));
    if rules.is_empty() && backend.is_absent() {
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.push(Error::invalid(spec.path(), rules.value(), detail));
    }
    if backend.is_present() {
        validate_backend(&backend, errors);
    }
    rules.items().for_each(|rule| validate_rule(&rule, lenient, errors));
    for tls in spec.get("tls").items() {
        tls.get("hosts").items().for_each(|host| validate_host(&host, errors));
        let secret = tls.get("secretName");
        if !lenient.secret_names && !secret.is_empty() {
            looks(&secret, dns1123_subdomain, errors);
        }
    }
    let class = spec.get("ingressClassName");
    if class.is_present() {
        looks(&class, dns1123_subdomain, errors);
    }
}

fn validate_rule(rule: &At<'_>, lenient: &Lenient, errors: &mut Errors) {
    let host = rule.get("host");
    if !host.is_empty() {
        if parse_ip(host.str()).is_some() {
            errors.push(host.invalid("must be a DNS name, not an IP address"));
        }
        validate_host(&host, errors);
    }
    if !(host.str().contains('*') && lenient.wildcard_rules) {
        validate_paths(&rule.get("http"), errors);
    }
}

fn validate_host(host: &At<'_>, errors: &mut Errors) {
    looks(host, if host.str().contains('*') { wildcard_dns1123_subdomain } else { dns1123_subdomain }, errors);
}

fn validate_paths(http: &At<'_>, errors: &mut Errors) {
    if http.is_absent() {
        return;
    }
    let paths = http.get("paths");
    if paths.is_empty() {
        errors.push(paths.required(""));
    }
    paths.items().for_each(|path| validate_path(&path, errors));
}

fn validate_path(at: &At<'_>, errors: &mut Errors) {
    let (ty, path) = (at.get("pathType"), at.get("path"));
    let invalid = |detail: String| Error::invalid(path.path(), path.str(), detail);
    let absolute = path.str().starts_with('/');
    match ty.str() {
        "" if ty.is_absent() => {
            errors.push(ty.required("pathType must be specified"));
            return;
        }
        "Exact" | "Prefix" => {
            if !absolute {
                errors.push(invalid("must be an absolute path".to_owned()));
            }
            for sequence in ["//", "/./", "/../", "%2f", "%2F"] {
                if path.str().contains(sequence) {
                    errors.push(invalid(format!("must not contain '{sequence}'")));
                }
            }
            for end in ["/..", "/."] {
                if path.str().ends_with(end) {
                    errors.push(invalid(format!("cannot end with '{end}'")));
                }
            }
        }
        "ImplementationSpecific" => {
            if !path.is_empty() && !absolute {
                errors.push(invalid("must be an absolute path".to_owned()));
            }
        }
        _ => errors.push(ty.not_supported(&["Exact", "ImplementationSpecific", "Prefix"])),
    }
    validate_backend(&at.get("backend"), errors);
}

fn validate_backend(backend: &At<'_>, errors: &mut Errors) {
    let (resource, service) = (backend.get("resource"), backend.get("service"));
    let invalid = |detail: &str| Error::invalid(backend.path(), "", detail);
    match (resource.is_present(), service.is_present()) {
        (true, true) => errors.push(invalid("cannot set both resource and service backends")),
        (true, false) => networking::validate_reference(&resource, errors),
        (false, false) => errors.push(invalid("resource or service backend is required")),
        (false, true) => {
            required_and_looks(&service.get("name"), dns1123_label, errors);
            let port = service.get("port");
            let (name, number) = (port.get("name"), port.get("number"));
            match (!name.is_empty(), number.int() != 0) {
                (true, true) => errors.push(invalid("cannot set both port name & port number")),
                (true, false) => looks(&name, rules_of_names::port_name, errors),
                (false, true) => {
                    let wrong = rules_of_names::port_number(number.int());
                    errors.extend(wrong.into_iter().map(|wrong| number.invalid(wrong)));
                }
                (false, false) => errors.push(backend.required("port name or number is required")),
            }
        }
    }
}

fn validate_status(status: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    let balancer = status.get("loadBalancer");
    let before = old.value().list_at(&["loadBalancer", "ingress"]);
    let known: Vec<&str> = before.iter().filter_map(|ingress| ingress.str_at(&["ip"])).collect();
    for ingress in balancer.get("ingress").items() {
        let ip = ingress.get("ip");
        if !ip.is_empty() {
            legacy_ip(&ip, &known, errors);
        }
        networking::validate_balancer_host(&ingress.get("hostname"), errors);
    }
}

fn hosts(object: &Value, _now: Time) -> Value {
    let rules = object.list_at(&["spec", "rules"]);
    let hosts: Vec<_> =
        rules.iter().filter_map(|rule| rule.str_at(&["host"])).filter(|host| !host.is_empty()).collect();
    if hosts.is_empty() { "*".into() } else { networking::shortened(&hosts, HOSTS_MAX).into() }
}

fn ports(object: &Value, _now: Time) -> Value {
    let tls = object.list_at(&["spec", "tls"]);
    if tls.is_empty() { "80".into() } else { "80, 443".into() }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn paths_are_absolute_and_contain_no_traversal() {
        let check = |ty: &str, path: &str, expect: &[&str]| {
            let at =
                value!({"pathType": ty, "path": path, "backend": {"service": {"name": "s", "port": {"number": 1}}}});
            let mut errors = Errors::new();
            validate_path(&At::root(&at), &mut errors);
            assert_eq!(errors.iter().map(|error| error.detail.as_str()).collect::<Vec<_>>(), expect, "{path}");
        };
        check("Prefix", "/a", &[]);
        check("Exact", "a", &["must be an absolute path"]);
        check("Prefix", "/a//b/..", &["must not contain '//'", "cannot end with '/..'"]);
        check("ImplementationSpecific", "", &[]);
        check("ImplementationSpecific", "a", &["must be an absolute path"]);
    }

    #[test]
    fn table_row_contains_at_most_three_hosts() {
        let object = value!({"spec": {"rules": [{"host": "a"}, {"host": "b"}, {"host": "c"}, {"host": "d"}]}});
        assert_eq!(hosts(&object, Time::from_unix(0, 0)), value!("a,b,c + 1 more..."));
        assert_eq!(hosts(&value!({}), Time::from_unix(0, 0)), value!("*"));
    }
}
