//! Environment variables of a container: from services, `envFrom` and `env`, with references expanded.

mod file;

use std::collections::BTreeMap;

use api::amounts::{self, Amounts};
use api::field_rules::quantity;
use apimachinery::quantity::{Format, Quantity};
use apimachinery::{Object, Value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::pod::{Container, Pod};

/// File contents by volume and path; `None` for a missing file.
pub type Files = BTreeMap<(String, String), Option<String>>;

/// The objects and values that environment variables can refer to.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// ConfigMaps of the pod's namespace by name.
    pub config_maps: &'a BTreeMap<String, Option<Value>>,
    /// Secrets of the pod's namespace by name.
    pub secrets: &'a BTreeMap<String, Option<Value>>,
    /// ClusterTrustBundles by name, if a volume of the pod projects any.
    pub trust_bundles: &'a BTreeMap<String, Option<Value>>,
    /// The files of `fileKeyRef` environment variables.
    pub files: &'a Files,
    /// Services of the pod's namespace and the API server's service.
    pub services: &'a [Value],
    pub pod_ips: &'a [String],
    pub host_ips: &'a [String],
    /// The node's allocatable resources, the default of limits that are not set.
    pub allocatable: &'a Amounts,
}

/// The environment of a container could not be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    #[error("{kind} \"{name}\" not found")]
    Missing {
        /// `configmap` or `secret`.
        kind: &'static str,
        name: String,
    },
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    Key {
        key: String,
        /// `ConfigMap` or `Secret`.
        kind: &'static str,
        namespace: String,
        name: String,
    },
    /// The file of a `fileKeyRef` is missing, is malformed or lacks the key.
    #[error("environment variable {key} cannot be taken from file {path:?} of volume {volume:?}: {problem}")]
    File { key: String, path: String, volume: String, problem: String },
    #[error("unsupported fieldPath: {0}")]
    Field(String),
    #[error("unsupported container resource: {0}")]
    Resource(String),
}

/// Returns all environment variables of a container: those of `env` in their order, then those of `envFrom`, then those
/// of services.
pub fn environment(
    pod: Pod<'_>,
    container: Container<'_>,
    sources: &Sources<'_>,
) -> Result<Vec<(String, String)>, EnvironmentError> {
    let mut taken = BTreeMap::new();
    for from in container.spec["envFrom"].as_array().unwrap_or_default() {
        take_all(pod, from, sources, &mut taken)?;
    }
    let mut order: Vec<String> = Vec::new();
    let mut own: BTreeMap<String, String> = BTreeMap::new();
    // Service variables are available for expansion; all other variables override them.
    let services = service_variables(pod, sources.services);
    for variable in container.spec["env"].as_array().unwrap_or_default() {
        let name = variable.str_at(&["name"]).unwrap_or_default();
        let value = match variable.get("valueFrom").filter(|from| !from.is_null()) {
            Some(from) => match value_from(pod, container, from, sources)? {
                Some(value) => value,
                None => continue,
            },
            None => {
                let known =
                    |name: &str| own.get(name).or_else(|| taken.get(name)).or_else(|| services.get(name)).cloned();
                expand(variable.str_at(&["value"]).unwrap_or_default(), known)
            }
        };
        order.push(name.to_owned());
        own.insert(name.to_owned(), value);
    }
    let mut seen = std::collections::BTreeSet::new();
    let ordered = order.into_iter().filter(|name| seen.insert(name.clone())).collect::<Vec<_>>();
    let own_first = ordered.iter().map(|name| (name.clone(), own[name].clone()));
    let others = taken.iter().chain(services.iter().filter(|(name, _)| !taken.contains_key(*name)));
    let others = others.filter(|(name, _)| !own.contains_key(*name)).map(|(name, value)| (name.clone(), value.clone()));
    Ok(own_first.chain(others).collect())
}

/// Expands `$(NAME)` with known variables. Unknown references stay unchanged, and `$$` is an escaped dollar sign.
pub fn expand(text: &str, known: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match known(name) {
                Some(value) => out.push_str(&value),
                None => out.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

/// Returns the `data` entries of a ConfigMap; `binaryData` is not available to environment variables.
pub fn config_map_entries(object: &Value) -> BTreeMap<String, String> {
    let entries = object["data"].as_object().into_iter().flat_map(Object::iter);
    entries.filter_map(|(key, value)| Some((key.to_owned(), value.as_str()?.to_owned()))).collect()
}

/// Returns the decoded `data` entries of a Secret.
pub fn secret_entries(object: &Value) -> BTreeMap<String, Vec<u8>> {
    let entries = object["data"].as_object().into_iter().flat_map(Object::iter);
    entries.filter_map(|(key, value)| Some((key.to_owned(), STANDARD.decode(value.as_str()?).ok()?))).collect()
}

fn texts(kind: &str, object: &Value) -> BTreeMap<String, String> {
    if kind == "secret" {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        return secret_entries(object).into_iter().map(|(key, bytes)| (key, text(bytes))).collect();
    }
    config_map_entries(object)
}

fn take_all(
    pod: Pod<'_>,
    from: &Value,
    sources: &Sources<'_>,
    taken: &mut BTreeMap<String, String>,
) -> Result<(), EnvironmentError> {
    let prefix = from.str_at(&["prefix"]).unwrap_or_default();
    let fields = [("configMapRef", "configmap", sources.config_maps), ("secretRef", "secret", sources.secrets)];
    for (field, kind, objects) in fields {
        let Some(reference) = from.get(field).filter(|reference| !reference.is_null()) else { continue };
        let name = reference.str_at(&["name"]).unwrap_or_default();
        match objects.get(name).and_then(Option::as_ref) {
            Some(object) => {
                let entries = texts(kind, object).into_iter();
                taken.extend(entries.map(|(key, value)| (format!("{prefix}{key}"), value)));
            }
            None if reference["optional"].as_bool() == Some(true) => {}
            None => {
                tracing::debug!(pod = pod.described(), kind, name, "a source of environment variables is missing");
                return Err(EnvironmentError::Missing { kind, name: name.to_owned() });
            }
        }
    }
    Ok(())
}

fn value_from(
    pod: Pod<'_>,
    container: Container<'_>,
    from: &Value,
    sources: &Sources<'_>,
) -> Result<Option<String>, EnvironmentError> {
    if let Some(reference) = from.get("fieldRef") {
        return field(pod, reference.str_at(&["fieldPath"]).unwrap_or_default(), sources).map(Some);
    }
    if let Some(reference) = from.get("resourceFieldRef") {
        return resource(pod, container, reference, sources.allocatable).map(Some);
    }
    let kinds = [
        ("configMapKeyRef", "configmap", "ConfigMap", sources.config_maps),
        ("secretKeyRef", "secret", "Secret", sources.secrets),
    ];
    for (name_of_field, kind, kind_name, objects) in kinds {
        let Some(reference) = from.get(name_of_field) else { continue };
        let text = |field: &str| reference.str_at(&[field]).unwrap_or_default().to_owned();
        let (name, key, optional) = (text("name"), text("key"), reference["optional"].as_bool() == Some(true));
        let Some(object) = objects.get(&name).and_then(Option::as_ref) else {
            return if optional { Ok(None) } else { Err(EnvironmentError::Missing { kind, name }) };
        };
        return match texts(kind, object).remove(&key) {
            Some(value) => Ok(Some(value)),
            None if optional => Ok(None),
            None => Err(EnvironmentError::Key { key, kind: kind_name, namespace: pod.namespace().to_owned(), name }),
        };
    }
    match from.get("fileKeyRef").filter(|reference| !reference.is_null()) {
        Some(reference) => of_file(reference, sources.files),
        None => Ok(None),
    }
}

/// Returns the volume and path of a `fileKeyRef` environment variable.
pub fn file_of(variable: &Value) -> Option<(String, String)> {
    let reference = variable.at(&["valueFrom", "fileKeyRef"])?;
    Some((reference.str_at(&["volumeName"])?.to_owned(), reference.str_at(&["path"])?.to_owned()))
}

fn of_file(reference: &Value, files: &Files) -> Result<Option<String>, EnvironmentError> {
    let text = |field: &str| reference.str_at(&[field]).unwrap_or_default().to_owned();
    let (volume, path, key) = (text("volumeName"), text("path"), text("key"));
    let content = files.get(&(volume.clone(), path.clone())).and_then(Option::as_ref);
    let found = content.map(|content| file::find(content, &key)).transpose();
    let problem = match found {
        Ok(Some(Some(value))) => return Ok(Some(value)),
        Ok(_) if reference["optional"].as_bool() == Some(true) => return Ok(None),
        Ok(Some(None)) => "it has no such key".to_owned(),
        Ok(None) => "there is no such file".to_owned(),
        Err(problem) => problem,
    };
    Err(EnvironmentError::File { key, path, volume, problem })
}

/// Returns the value of a downward API field path.
pub fn field(pod: Pod<'_>, path: &str, sources: &Sources<'_>) -> Result<String, EnvironmentError> {
    let first = |ips: &[String]| ips.first().cloned().unwrap_or_default();
    Ok(match path {
        "spec.nodeName" => pod.spec().str_at(&["nodeName"]).unwrap_or_default().to_owned(),
        "spec.serviceAccountName" => pod.spec().str_at(&["serviceAccountName"]).unwrap_or_default().to_owned(),
        "status.hostIP" => first(sources.host_ips),
        "status.hostIPs" => sources.host_ips.join(","),
        "status.podIP" => first(sources.pod_ips),
        "status.podIPs" => sources.pod_ips.join(","),
        path => metadata_field(pod, path).ok_or_else(|| EnvironmentError::Field(path.to_owned()))?,
    })
}

/// Returns the value of a downward API field path below `metadata`.
pub fn metadata_field(pod: Pod<'_>, path: &str) -> Option<String> {
    let meta = pod.meta();
    Some(match path {
        "metadata.name" => meta.name().to_owned(),
        "metadata.namespace" => meta.namespace().to_owned(),
        "metadata.uid" => meta.uid().to_owned(),
        "metadata.labels" => listed(meta.labels()),
        "metadata.annotations" => listed(meta.annotations()),
        path => {
            let (map, key) = path.strip_suffix("']")?.split_once("['")?;
            match map {
                "metadata.labels" => meta.label(key).unwrap_or_default().to_owned(),
                "metadata.annotations" => meta.annotation(key).unwrap_or_default().to_owned(),
                _ => return None,
            }
        }
    })
}

/// Formats entries as lines of `key="value"`.
fn listed(entries: Option<&Object>) -> String {
    let lines: Vec<String> = entries
        .into_iter()
        .flat_map(Object::iter)
        .map(|(key, value)| format!("{key}={}", apimachinery::json::to_string(value)))
        .collect();
    lines.join("\n")
}

/// Returns the value of a `resourceFieldRef` in units of its divisor, rounded up.
pub fn resource(
    pod: Pod<'_>,
    container: Container<'_>,
    reference: &Value,
    allocatable: &Amounts,
) -> Result<String, EnvironmentError> {
    let name = reference.str_at(&["resource"]).unwrap_or_default();
    let container = match reference.str_at(&["containerName"]).filter(|name| !name.is_empty()) {
        Some(other) => pod.container(other).unwrap_or(container),
        None => container,
    };
    let unsupported = || EnvironmentError::Resource(name.to_owned());
    let (of, what) = name.split_once('.').ok_or_else(unsupported)?;
    if !matches!(of, "limits" | "requests") {
        return Err(unsupported());
    }
    let set = amounts::read(container.spec.at(&["resources", of])).get(what).copied();
    // A limit that is not set defaults to the node's allocatable amount.
    let amount = match (set, of) {
        (Some(amount), _) => amount,
        (None, "limits") => allocatable.get(what).copied().unwrap_or(Quantity::ZERO),
        (None, _) => Quantity::ZERO,
    };
    let divisor = reference.get("divisor").map_or(Quantity::ZERO, quantity);
    let divisor = if divisor.is_zero() { Quantity::new(1, Format::DecimalSI) } else { divisor };
    // CPU amounts, and amounts with a divisor below one, are divided in thousandths, all others in whole units. The
    // result is rounded up, as upstream does.
    let exact = |amount: Quantity| i128::from(amount.milli_value());
    let (amount, divisor) = if what == "cpu" || divisor.milli_value() < 1000 {
        (exact(amount), exact(divisor))
    } else {
        (i128::from(amount.value()), i128::from(divisor.value()))
    };
    Ok((amount.max(0) as u128).div_ceil(divisor.max(1) as u128).to_string())
}

/// Returns the environment variables of the services in the pod's namespace and of the API server.
fn service_variables(pod: Pod<'_>, services: &[Value]) -> BTreeMap<String, String> {
    let links = pod.spec()["enableServiceLinks"].as_bool().unwrap_or(true);
    let mut variables = BTreeMap::new();
    for service in services {
        let meta = apimachinery::meta::Meta::of(service);
        let master = meta.namespace() == "default" && meta.name() == "kubernetes";
        if master || links && meta.namespace() == pod.namespace() {
            of_service(service, &mut variables);
        }
    }
    variables
}

fn of_service(service: &Value, variables: &mut BTreeMap<String, String>) {
    let ip = service.str_at(&["spec", "clusterIP"]).unwrap_or_default();
    let ports = service["spec"]["ports"].as_array().unwrap_or_default();
    let Some(first) = ports.first().filter(|_| !ip.is_empty() && ip != "None") else { return };
    let name = apimachinery::meta::Meta::of(service).name().to_ascii_uppercase().replace('-', "_");
    let number = |port: &Value| port["port"].as_int().unwrap_or(0);
    let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
    variables.insert(format!("{name}_SERVICE_HOST"), ip.to_owned());
    variables.insert(format!("{name}_SERVICE_PORT"), number(first).to_string());
    for port in ports {
        if let Some(called) = port.str_at(&["name"]).filter(|called| !called.is_empty()) {
            let called = called.to_ascii_uppercase().replace('-', "_");
            variables.insert(format!("{name}_SERVICE_PORT_{called}"), number(port).to_string());
        }
    }
    for (n, port) in ports.iter().enumerate() {
        let protocol = port.str_at(&["protocol"]).unwrap_or("TCP");
        let url = format!("{}://{host}:{}", protocol.to_ascii_lowercase(), number(port));
        if n == 0 {
            variables.insert(format!("{name}_PORT"), url.clone());
        }
        let prefix = format!("{name}_PORT_{}_{protocol}", number(port));
        variables.insert(format!("{prefix}_PROTO"), protocol.to_ascii_lowercase());
        variables.insert(format!("{prefix}_PORT"), number(port).to_string());
        variables.insert(format!("{prefix}_ADDR"), ip.to_owned());
        variables.insert(prefix, url);
    }
}

#[cfg(test)]
mod tests;
