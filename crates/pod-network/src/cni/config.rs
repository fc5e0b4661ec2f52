//! CNI network configuration lists and the input of each plugin.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::network::{Attachment, NetworkError};

/// Supported versions of the CNI specification, newest first.
const VERSIONS: [&str; 6] = ["1.1.0", "1.0.0", "0.4.0", "0.3.1", "0.3.0", "0.2.0"];

/// A CNI network configuration list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct NetworkList {
    pub name: String,
    /// Negotiated version of the specification.
    pub version: String,
    /// Configuration of each plugin.
    pub plugins: Vec<Value>,
    #[serde(default)]
    disable_check: bool,
    #[serde(default)]
    disable_gc: bool,
}

impl NetworkList {
    /// Loads the first configuration of a directory, by file name.
    pub(super) fn load(directory: &Path) -> Result<Self, NetworkError> {
        let none = || NetworkError::NotConfigured(directory.to_owned());
        let path = files(directory).into_iter().next().ok_or_else(none)?;
        let value = read(&path)?;
        let wrong = |what: &str| {
            let source = std::io::Error::new(std::io::ErrorKind::InvalidData, what.to_owned());
            NetworkError::Configuration { path: path.clone(), source }
        };
        let name = value["name"].as_str().filter(|name| !name.is_empty()).ok_or_else(|| wrong("name: required"))?;
        let mut plugins = match &value["plugins"] {
            Value::Array(plugins) => plugins.clone(),
            // A single plugin configuration is a list of one.
            Value::Null if value.get("type").is_some() => vec![value.clone()],
            _ => return Err(wrong("plugins: must be a list")),
        };
        if value["loadOnlyInlinedPlugins"] != json!(true) && value.get("plugins").is_some() {
            for file in files(&directory.join(name)) {
                plugins.push(read(&file)?);
            }
        }
        if plugins.is_empty() {
            return Err(wrong("plugins: required"));
        }
        let version = version(&value).ok_or_else(|| wrong("cniVersion: no supported version"))?;
        let flag = |name: &str| value[name] == json!(true) || value[name] == json!("true");
        Ok(Self {
            name: name.to_owned(),
            version: version.to_owned(),
            plugins,
            disable_check: flag("disableCheck"),
            disable_gc: flag("disableGC"),
        })
    }

    /// Whether CHECK may be called.
    pub(super) fn can_check(&self) -> bool {
        !self.disable_check && self.is_at_least("0.4.0")
    }

    /// Whether the version has STATUS and GC.
    pub(super) fn has_status_and_gc(&self) -> bool {
        self.is_at_least("1.1.0")
    }

    /// Whether GC may be called.
    pub(super) fn may_collect(&self) -> bool {
        !self.disable_gc && self.has_status_and_gc()
    }

    /// Returns a plugin's input: its configuration, name and version of the list, previous result, and runtimeConfig.
    pub(super) fn input(&self, plugin: &Value, previous: Option<&Value>, sandbox: &Attachment) -> Value {
        let mut input = plugin.as_object().cloned().unwrap_or_default();
        let capabilities = input.remove("capabilities").unwrap_or_default();
        input.insert("name".to_owned(), json!(self.name));
        input.insert("cniVersion".to_owned(), json!(self.version));
        if let Some(previous) = previous {
            input.insert("prevResult".to_owned(), previous.clone());
        }
        let runtime_config = runtime_config(&capabilities, sandbox);
        if !runtime_config.is_empty() {
            input.insert("runtimeConfig".to_owned(), Value::Object(runtime_config));
        }
        Value::Object(input)
    }

    fn is_at_least(&self, version: &str) -> bool {
        let rank = |version: &str| VERSIONS.iter().position(|known| *known == version).unwrap_or(VERSIONS.len());
        rank(&self.version) <= rank(version)
    }
}

/// Returns the newest supported version that the configuration offers.
fn version(value: &Value) -> Option<&'static str> {
    let offered: Vec<&str> = match &value["cniVersions"] {
        Value::Array(versions) => versions.iter().chain([&value["cniVersion"]]).filter_map(Value::as_str).collect(),
        _ => vec![value["cniVersion"].as_str().unwrap_or("1.0.0")],
    };
    VERSIONS.into_iter().find(|known| offered.contains(known))
}

/// Returns the runtimeConfig for the plugin's capabilities: port mappings, bandwidth, annotations.
fn runtime_config(capabilities: &Value, sandbox: &Attachment) -> Map<String, Value> {
    let can = |name: &str| capabilities[name] == json!(true);
    let mut config = Map::new();
    if can("portMappings") && !sandbox.id.is_empty() {
        let ports = sandbox.ports.iter().filter(|port| port.host_port > 0);
        config.insert("portMappings".to_owned(), ports.map(|port| json!(port)).collect());
    }
    let bandwidth = bandwidth(sandbox);
    if can("bandwidth") && !bandwidth.is_empty() {
        config.insert("bandwidth".to_owned(), Value::Object(bandwidth));
    }
    if can("io.kubernetes.cri.pod-annotations") {
        config.insert("io.kubernetes.cri.pod-annotations".to_owned(), json!(sandbox.annotations));
    }
    config
}

/// Returns the bandwidth limits of a pod's annotations, in bits per second.
fn bandwidth(sandbox: &Attachment) -> Map<String, Value> {
    /// Default burst: the maximum that the bandwidth plugin accepts.
    const BURST: u32 = i32::MAX.cast_unsigned();
    let mut limits = Map::new();
    for side in ["ingress", "egress"] {
        let annotation = sandbox.annotations.get(&format!("kubernetes.io/{side}-bandwidth"));
        if let Some(rate) = annotation.and_then(|text| bits(text)) {
            limits.insert(format!("{side}Rate"), json!(rate));
            limits.insert(format!("{side}Burst"), json!(BURST));
        }
    }
    limits
}

/// Parses a quantity of bits: `10M`, `1Gi`, `500k`.
fn bits(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 8] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
    ];
    let (digits, unit) =
        UNITS.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit))).unwrap_or((text, 1));
    digits.parse::<u64>().ok()?.checked_mul(unit).filter(|bits| *bits > 0)
}

/// Returns the configuration files of a directory, sorted by name.
fn files(directory: &Path) -> Vec<PathBuf> {
    let known = |path: &PathBuf| {
        path.extension().and_then(|end| end.to_str()).is_some_and(|end| ["conflist", "conf", "json"].contains(&end))
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(known).collect();
    files.sort();
    files
}

fn read(path: &Path) -> Result<Value, NetworkError> {
    let failed = |source| NetworkError::Configuration { path: path.to_owned(), source };
    serde_json::from_slice(&fs::read(path).map_err(failed)?).map_err(|error| failed(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port_mapping::PortMapping;
    use netlink::Protocol;

    fn load(files: &[(&str, &str)]) -> Result<NetworkList, NetworkError> {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        NetworkList::load(directory.path())
    }

    #[test]
    fn plugin_input_has_configuration_previous_result_and_port_mappings() {
        let text = r#"{"name": "net", "cniVersion": "1.0.0", "plugins": [
            {"type": "portmap", "capabilities": {"portMappings": true, "bandwidth": true}, "x": 1}]}"#;
        let list = load(&[("1.conflist", text)]).unwrap();
        let port = PortMapping { protocol: Protocol::Udp, host_port: 80, container_port: 8080, host_ip: None };
        let annotations = [("kubernetes.io/ingress-bandwidth".to_owned(), "10M".to_owned())].into();
        let sandbox = Attachment { id: "a".into(), ports: vec![port], annotations, ..Attachment::default() };
        let input = list.input(&list.plugins[0], Some(&json!({"ips": []})), &sandbox);
        let expect = json!({
            "name": "net", "cniVersion": "1.0.0", "type": "portmap", "x": 1, "prevResult": {"ips": []},
            "runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 8080, "protocol": "udp"}],
                              "bandwidth": {"ingressRate": 10_000_000, "ingressBurst": 2_147_483_647}},
        });
        assert_eq!(input, expect);
    }

    #[test]
    fn first_configuration_is_used_with_plugins_from_its_directory() {
        let list = load(&[
            ("20-b.conf", r#"{"name": "b", "type": "x"}"#),
            (
                "10-a.conflist",
                r#"{"name": "a", "cniVersions": ["0.4.0", "1.1.0", "9.9.9"], "plugins": [{"type": "one"}]}"#,
            ),
            ("a/two.conf", r#"{"type": "two"}"#),
            ("05-not.txt", "nonsense"),
        ])
        .unwrap();
        assert_eq!((list.name.as_str(), list.version.as_str()), ("a", "1.1.0"));
        assert_eq!(list.plugins, [json!({"type": "one"}), json!({"type": "two"})]);
        assert!(list.can_check() && list.may_collect());
        let single = load(&[("20-b.conf", r#"{"name": "b", "type": "x", "cniVersion": "0.3.1"}"#)]).unwrap();
        assert!(!single.can_check() && !single.has_status_and_gc());
    }

    #[test]
    fn invalid_configuration_is_rejected_with_a_message() {
        let check = |text: &str, expect: &str| {
            let error = load(&[("1.conflist", text)]).unwrap_err();
            let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            assert!(source.contains(expect), "{text}: {source}");
        };
        check("{}", "name: required");
        check(r#"{"name": "a"}"#, "plugins: must be a list");
        check(r#"{"name": "a", "plugins": []}"#, "plugins: required");
        check(r#"{"name": "a", "cniVersion": "7", "plugins": [{"type": "x"}]}"#, "cniVersion");
        check("[", "EOF");
    }
}
