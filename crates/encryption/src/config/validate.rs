//! EncryptionConfiguration validation, with upstream's messages.

use std::collections::BTreeSet;

use apimachinery::field::{BadValue, Error, Errors};
use apimachinery::time::Duration;
use apimachinery::{Path, Value};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::GroupResource;

const PROVIDERS: [&str; 5] = ["kms", "aesgcm", "aescbc", "secretbox", "identity"];
const AES_KEY_BYTES: &[usize] = &[16, 24, 32];
const SECRETBOX_KEY_BYTES: &[usize] = &[32];

/// Whether the server reloads the file when it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    Automatic,
    Never,
}

/// Returns all validation errors. `timeouts` are those of the KMS plugins, in order.
pub(super) fn configuration(object: &Value, timeouts: &[Duration], reload: Reload) -> Errors {
    let root = Path::of("resources");
    let mut pass = Pass { findings: Vec::new(), names: BTreeSet::new(), timeouts: timeouts.iter(), reload };
    let rules = object.list_at(&["resources"]);
    if rules.is_empty() {
        pass.findings.push(Error::required(&root, "at least one resources is required"));
    }
    for (at, rule) in rules.iter().enumerate() {
        let path = root.index(at);
        pass.resources(rule, &path.field("resources"));
        pass.providers(rule, &path.field("providers"));
    }
    pass.findings
}

struct Pass<'a> {
    findings: Errors,
    /// The KMS plugin names so far.
    names: BTreeSet<&'a str>,
    timeouts: std::slice::Iter<'a, Duration>,
    reload: Reload,
}

impl<'a> Pass<'a> {
    fn resources(&mut self, rule: &Value, path: &Path<'_>) {
        let list = rule.list_at(&["resources"]);
        let names: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
        if names.is_empty() {
            self.findings.push(Error::required(path, format!("at least one {path} is required")));
        }
        self.overlap(&names, list, path);
        for (at, name) in names.iter().enumerate() {
            if let Some(problem) = resource_problem(name) {
                self.findings.push(Error::invalid(&path.index(at), *name, problem));
            }
        }
    }

    fn overlap(&mut self, names: &[&str], list: &[Value], path: &Path<'_>) {
        let parsed: Vec<GroupResource> = names.iter().map(|name| GroupResource::parse(name)).collect();
        let pairs = || {
            let others = |(at, one): (usize, _)| {
                parsed.iter().enumerate().filter(move |(other, _)| *other != at).map(move |(_, two)| (one, two))
            };
            parsed.iter().enumerate().flat_map(others)
        };
        let covers = |(one, two): (&GroupResource, &GroupResource)| {
            let all = one.group == "*" && one.resource == "*";
            let group = one.group == two.group && (one.resource == "*" || two.resource == "*");
            all || group
        };
        let bad_value = || BadValue::Value(Value::Array(list.to_vec()));
        if pairs().any(|(one, two)| one == two) {
            let detail = "the same resource cannot be specified multiple times";
            self.findings.push(Error::invalid(path, bad_value(), detail));
        }
        if pairs().any(covers) {
            let detail = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked";
            self.findings.push(Error::invalid(path, bad_value(), detail));
        }
    }

    fn providers(&mut self, rule: &'a Value, path: &Path<'_>) {
        let providers = rule.list_at(&["providers"]);
        if providers.is_empty() {
            self.findings.push(Error::required(path, format!("at least one {path} is required")));
        }
        for (at, provider) in providers.iter().enumerate() {
            self.provider(provider, &path.index(at));
        }
    }

    fn provider(&mut self, provider: &'a Value, path: &Path<'_>) {
        let configured: Vec<&str> = PROVIDERS.iter().filter(|name| provider.get(name).is_some()).copied().collect();
        let problem = match configured.len() {
            0 => "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity",
            1 => "",
            _ => "more than one provider specified in a single element, should split into different list elements",
        };
        if !problem.is_empty() {
            // DEVIATION: upstream prints the provider with its keys; secrets must not appear in messages.
            self.findings.push(Error::invalid(path, BadValue::Omitted, problem));
        }
        // Of several providers in one entry, upstream validates the first in this order.
        match configured.first().copied() {
            Some("kms") => self.kms(&provider["kms"], &path.field("kms")),
            Some(name @ ("aesgcm" | "aescbc")) => self.keys(&provider[name], &path.field(name), AES_KEY_BYTES),
            Some(name @ "secretbox") => self.keys(&provider[name], &path.field(name), SECRETBOX_KEY_BYTES),
            _ => {}
        }
    }

    fn keys(&mut self, provider: &Value, path: &Path<'_>, lengths: &[usize]) {
        let path = path.field("keys");
        let keys = provider.list_at(&["keys"]);
        if keys.is_empty() {
            self.findings.push(Error::required(&path, "at least one keys is required"));
        }
        for (at, key) in keys.iter().enumerate() {
            self.key(key, &path.index(at), lengths);
        }
    }

    fn key(&mut self, key: &Value, path: &Path<'_>, lengths: &[usize]) {
        let text = |field: &str| key.text_at(&[field]);
        if text("name").is_empty() {
            self.findings.push(Error::required(&path.field("name"), "name is a mandatory field for a key"));
        }
        let path = path.field("secret");
        if text("secret").is_empty() {
            self.findings.push(Error::required(&path, "secret is a mandatory field for a key"));
            return;
        }
        let detail = match STANDARD.decode(text("secret")) {
            Err(_) => "secrets must be base64 encoded".to_owned(),
            Ok(secret) if lengths.contains(&secret.len()) => return,
            Ok(secret) => {
                let lengths: Vec<String> = lengths.iter().map(ToString::to_string).collect();
                let (length, expected) = (secret.len(), lengths.join(" "));
                format!("secret is not of the expected length, got {length}, expected one of [{expected}]")
            }
        };
        self.findings.push(Error::invalid(&path, "REDACTED", detail));
    }

    fn kms(&mut self, kms: &'a Value, path: &Path<'_>) {
        let text = |field: &str| kms.text_at(&[field]);
        let (name, version) = (text("name"), text("apiVersion"));
        self.kms_name(name, version, &path.field("name"));
        if self.timeouts.next().is_some_and(|timeout| timeout.nanos() <= 0) {
            let detail = "timeout should be a positive value";
            self.findings.push(Error::invalid(&path.field("timeout"), text("timeout"), detail));
        }
        self.kms_endpoint(text("endpoint"), &path.field("endpoint"));
        let cache = kms.get("cachesize").and_then(Value::as_int);
        match (version, cache) {
            ("v1", Some(0)) => {
                let detail = "cachesize should be a positive value, or negative to disable";
                self.findings.push(Error::invalid(&path.field("cachesize"), 0, detail));
            }
            ("v1", _) | (_, None) => {}
            (_, Some(size)) => {
                let detail = "cachesize is not supported in v2";
                self.findings.push(Error::invalid(&path.field("cachesize"), size, detail));
            }
        }
        if !matches!(version, "v1" | "v2") {
            let detail = "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported";
            self.findings.push(Error::invalid(&path.field("apiVersion"), version, detail));
        }
    }

    fn kms_name(&mut self, name: &'a str, version: &str, path: &Path<'_>) {
        if name.is_empty() {
            self.findings.push(Error::required(path, "name is a mandatory field for a provider"));
        }
        if version != "v1" && name.contains(':') {
            let detail = format!("invalid KMS provider name {name}, must not contain ':'");
            self.findings.push(Error::invalid(path, name, detail));
        }
        let is_known = !self.names.insert(name);
        if is_known && (self.reload == Reload::Automatic || version != "v1") {
            let detail = format!("duplicate KMS provider name {name}, names must be unique");
            self.findings.push(Error::invalid(path, name, detail));
        }
    }

    fn kms_endpoint(&mut self, endpoint: &str, path: &Path<'_>) {
        let detail = if endpoint.is_empty() {
            "endpoint is a mandatory field for a kms".to_owned()
        } else {
            let scheme = endpoint.split_once(':').map_or("", |(scheme, _)| scheme);
            let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
            let scheme = if scheme.chars().all(is_scheme) { scheme } else { "" };
            if scheme.eq_ignore_ascii_case("unix") {
                return;
            }
            let scheme = apimachinery::go::quote(scheme);
            format!("unsupported scheme {scheme} for KMS provider, only unix is supported")
        };
        self.findings.push(Error::invalid(path, endpoint, detail));
    }
}

fn resource_problem(name: &str) -> Option<&'static str> {
    if name.to_lowercase() != name {
        return Some("resource name should not contain capital letters");
    }
    let parsed = GroupResource::parse(name);
    match (name, &*parsed.group, &*parsed.resource) {
        ("*", ..) => Some("use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"),
        ("apiserveripinfo" | "serviceipallocations" | "servicenodeportallocations", ..) => {
            Some("resources which do not have REST API/s cannot be encrypted")
        }
        (_, "events.k8s.io", _) => Some(
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file",
        ),
        (_, "extensions", _) => Some("'extensions' group has been removed and cannot be used for encryption"),
        (_, "*", resource) if resource != "*" => Some("encrypting the same resource across groups is not supported"),
        _ => None,
    }
}
