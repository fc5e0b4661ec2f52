//! `create ingress`, with the rule syntax `host/path=service:port[,tls[=secret]]`.

use std::sync::LazyLock;

use apimachinery::{Object, Value, value};
use regex::Regex;

use super::{Error, Name, int_or_string, put, texts, typed};

/// Options of `create ingress`.
#[derive(Clone, Copy, Debug)]
pub struct Ingress<'a> {
    pub name: Name<'a>,
    pub class: &'a str,
    pub rules: &'a [String],
    /// `key=value`, the value may be empty.
    pub annotations: &'a [String],
    /// `service:port`
    pub default_backend: &'a str,
}

/// The required start of a rule; the TLS part after it is optional and not checked.
static RULE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^[0-9A-Za-z_*.-]*/.*=[0-9A-Za-z_-]+:[0-9A-Za-z_-]+").expect("the expression is valid")
});

/// Returns an ingress.
pub fn ingress(options: Ingress<'_>) -> Result<Value, Error> {
    validate(options)?;
    let mut ingress = options.name.object("networking.k8s.io/v1", "Ingress");
    let annotations: Object = options.annotations.iter().filter_map(|annotation| annotation.split_once('=')).collect();
    put(&mut ingress, &["metadata", "annotations"], annotations);
    put(&mut ingress, &["spec"], Value::object());
    if !options.class.is_empty() {
        put(&mut ingress, &["spec", "ingressClassName"], options.class);
    }
    if !options.default_backend.is_empty() {
        put(&mut ingress, &["spec", "defaultBackend"], backend(options.default_backend)?);
    }
    put(&mut ingress, &["spec", "tls"], tls(options.rules));
    put(&mut ingress, &["spec", "rules"], rules(options.rules)?);
    Ok(typed(ingress))
}

fn validate(options: Ingress<'_>) -> Result<(), Error> {
    if options.default_backend.is_empty() && options.rules.is_empty() {
        return Err(Error::new(
            "not enough information provided: every ingress has to either specify a default-backend (which catches \
             all traffic) or a list of rules (which catch specific paths)",
        ));
    }
    if let Some(rule) = options.rules.iter().find(|rule| !RULE.is_match(rule)) {
        return Err(invalid(rule));
    }
    if let Some(annotation) = options.annotations.iter().find(|annotation| !annotation.contains('=')) {
        return Err(Error::new(format!("annotation {annotation} is invalid and should be in format key=[value]")));
    }
    if !options.default_backend.is_empty() && options.default_backend.split(':').count() != 2 {
        return Err(Error::new("default-backend should be in format servicename:serviceport"));
    }
    Ok(())
}

fn invalid(rule: &str) -> Error {
    Error::new(format!("rule {rule} is invalid and should be in format host/path=svcname:svcport[,tls[=secret]]"))
}

/// Returns the TLS entries: one per secret, and each host once.
fn tls(rules: &[String]) -> Vec<Value> {
    let mut entries: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut seen = Vec::new();
    for rule in rules {
        let [_, tls] = rule.split(',').collect::<Vec<_>>()[..] else { continue };
        let host = rule.split('/').next().unwrap_or_default();
        let secret = tls.split('=').nth(1).unwrap_or_default();
        if seen.contains(&host) {
            continue;
        }
        seen.push(host);
        match entries.iter_mut().find(|(have, _)| *have == secret) {
            Some((_, hosts)) => hosts.push(host),
            None if host.is_empty() && secret.is_empty() => {}
            None => entries.push((secret, Vec::from_iter((!host.is_empty()).then_some(host)))),
        }
    }
    let entry = |(secret, hosts): (&str, Vec<&str>)| value!({"secretName": secret, "hosts": (texts(hosts))});
    entries.into_iter().map(entry).collect()
}

/// Returns the rules: one per host, with all of its paths.
fn rules(rules: &[String]) -> Result<Vec<Value>, Error> {
    let mut hosts: Vec<(&str, Vec<Value>)> = Vec::new();
    for rule in rules {
        let without_tls = rule.split(',').next().unwrap_or_default();
        // DEVIATION: kubectl panics if a comma precedes the service or if the path contains `=`.
        let (host, rest) = without_tls.split_once('/').ok_or_else(|| invalid(rule))?;
        let [path, service] = rest.split('=').collect::<Vec<_>>()[..] else { return Err(invalid(rule)) };
        let path = http_path(path, service).map_err(|_| invalid(rule))?;
        match hosts.iter_mut().find(|(have, _)| *have == host) {
            Some((_, paths)) => paths.push(path),
            None => hosts.push((host, vec![path])),
        }
    }
    Ok(hosts.into_iter().map(|(host, paths)| value!({"host": host, "http": {"paths": paths}})).collect())
}

fn http_path(path: &str, service: &str) -> Result<Value, Error> {
    let (path, path_type) = path.strip_suffix('*').map_or((path, "Exact"), |prefix| (prefix, "Prefix"));
    Ok(value!({"path": (format!("/{path}")), "pathType": path_type, "backend": (backend(service)?)}))
}

/// Parses `service:port`.
fn backend(text: &str) -> Result<Value, Error> {
    let mut parts = text.split(':');
    let (Some(name), Some(port)) = (parts.next(), parts.next()) else { return Err(invalid(text)) };
    let port = match int_or_string(port) {
        number @ Value::Int(_) => value!({"number": number}),
        name => value!({"name": name}),
    };
    Ok(value!({"service": {"name": name, "port": port}}))
}
