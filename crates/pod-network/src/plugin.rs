//! The built-in network as a CNI plugin: decodes environment variables and standard input, and builds the result.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use netlink::bandwidth::Bandwidth;
use netlink::cidr::Cidr;
use netlink::link::hardware_of;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::ipam::{Lease, gateway};
use crate::network::NetworkError;
use crate::port_mapping::PortMapping;
use crate::routed::{Config, RoutedNetwork};

/// Supported versions of the CNI specification.
const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// An error with a code of the CNI specification.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct PluginError {
    /// Error code of the specification.
    pub code: u32,
    pub message: String,
    /// `cniVersion` of the result.
    version: String,
}

/// The network configuration on standard input.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    #[serde(default = "oldest")]
    cni_version: String,
    #[serde(default, rename = "podCIDRs")]
    pod_cidrs: Vec<String>,
    #[serde(default, rename = "clusterCIDRs")]
    cluster_cidrs: Vec<String>,
    #[serde(default)]
    mtu: Option<u32>,
    #[serde(default)]
    ip_masq: Option<bool>,
    #[serde(default)]
    data_dir: Option<PathBuf>,
    #[serde(default)]
    runtime_config: RuntimeConfig,
    #[serde(default)]
    prev_result: Value,
    #[serde(default, rename = "cni.dev/valid-attachments")]
    valid_attachments: Vec<ValidAttachment>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RuntimeConfig {
    #[serde(default)]
    port_mappings: Vec<PortMapping>,
    #[serde(default)]
    bandwidth: Rates,
}

/// Rates in bits per second; absent or 0 is unlimited. Bursts are derived from the rates.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rates {
    ingress_rate: u64,
    egress_rate: u64,
}

#[derive(Debug, Deserialize)]
struct ValidAttachment {
    #[serde(rename = "containerID")]
    container_id: String,
}

/// Handles one call. Returns the JSON result to print; `None` if the command has no result.
pub fn handle_call(environment: &BTreeMap<String, String>, input: &[u8]) -> Result<Option<Value>, PluginError> {
    let verb = environment.get("CNI_COMMAND").map_or("", String::as_str);
    if verb == "VERSION" {
        let requested_version =
            serde_json::from_slice::<Value>(input).ok().and_then(|it| it["cniVersion"].as_str().map(str::to_owned));
        return Ok(Some(
            json!({"cniVersion": requested_version.unwrap_or_else(oldest), "supportedVersions": VERSIONS}),
        ));
    }
    let fail = |code, message: String, version: &str| PluginError { code, message, version: version.to_owned() };
    let input: Input = serde_json::from_slice(input)
        .map_err(|error| fail(6, format!("failed to decode the configuration: {error}"), "1.0.0"))?;
    let version = input.cni_version.clone();
    if !VERSIONS.contains(&version.as_str()) {
        return Err(fail(1, format!("cniVersion {version:?} is not one of {VERSIONS:?}"), "1.0.0"));
    }
    let called = Invocation { verb, environment, version: &version };
    let network = RoutedNetwork::new(config(&input).map_err(|message| fail(7, message, &version))?);
    let failed = |error: &NetworkError| {
        fail(if matches!(error, NetworkError::NoAddresses) { 7 } else { 999 }, chain(error), &version)
    };
    match verb {
        "ADD" => {
            let (id, interface) = (called.variable("CNI_CONTAINERID")?, called.variable("CNI_IFNAME")?);
            let netns = called.variable("CNI_NETNS")?;
            let runtime_config = &input.runtime_config;
            let lease = network.add(Path::new(netns), id, interface, &runtime_config.port_mappings);
            let lease = lease.map_err(|error| failed(&error))?;
            if let Err(error) = network.limit(id, interface, runtime_config.bandwidth.into()) {
                network.remove(id, interface).map_err(|error| failed(&error))?;
                return Err(failed(&error));
            }
            Ok(Some(result(&input, &network, &lease, netns, interface)))
        }
        "DEL" => {
            let (id, interface) = (called.variable("CNI_CONTAINERID")?, called.variable("CNI_IFNAME")?);
            network.remove(id, interface).map_err(|error| failed(&error))?;
            Ok(None)
        }
        "CHECK" => {
            let (id, interface) = (called.variable("CNI_CONTAINERID")?, called.variable("CNI_IFNAME")?);
            let netns = Path::new(called.variable("CNI_NETNS")?);
            network.inspect(netns, id, interface).map_err(|error| failed(&error))?;
            Ok(None)
        }
        "STATUS" if network.pod_cidrs().is_empty() => Err(fail(50, chain(&NetworkError::NoAddresses), &version)),
        "STATUS" => Ok(None),
        "GC" => {
            let alive = |id: &str| input.valid_attachments.iter().any(|valid| valid.container_id == id);
            network.retain(alive).map_err(|error| failed(&error))?;
            Ok(None)
        }
        other => Err(fail(4, format!("unknown CNI_COMMAND {other:?}"), &version)),
    }
}

impl PluginError {
    /// Returns the error result in the specification's format.
    pub fn to_json(&self) -> Value {
        json!({"cniVersion": self.version, "code": self.code, "msg": self.message})
    }
}

struct Invocation<'a> {
    verb: &'a str,
    environment: &'a BTreeMap<String, String>,
    version: &'a str,
}

impl<'a> Invocation<'a> {
    fn variable(&self, name: &str) -> Result<&'a str, PluginError> {
        let value = self.environment.get(name).map(String::as_str).filter(|value| !value.is_empty());
        value.ok_or_else(|| PluginError {
            code: 4,
            message: format!("environment variable {name} is required for {}", self.verb),
            version: self.version.to_owned(),
        })
    }
}

impl From<Rates> for Bandwidth {
    fn from(rates: Rates) -> Self {
        let some = |rate: u64| Some(rate).filter(|rate| *rate > 0);
        Self { ingress: some(rates.ingress_rate), egress: some(rates.egress_rate) }
    }
}

fn oldest() -> String {
    "0.3.0".to_owned()
}

fn config(input: &Input) -> Result<Config, String> {
    let blocks = |texts: &[String]| -> Result<Vec<Cidr>, String> {
        texts.iter().map(|text| text.parse().map_err(|error: netlink::cidr::CidrError| error.to_string())).collect()
    };
    let state = input.data_dir.clone().unwrap_or_else(|| PathBuf::from("/var/lib/cni/knarr"));
    let usual = Config::new(&state);
    Ok(Config {
        pod_cidrs: blocks(&input.pod_cidrs).map_err(|error| format!("podCIDRs: {error}"))?,
        cluster_cidrs: blocks(&input.cluster_cidrs).map_err(|error| format!("clusterCIDRs: {error}"))?,
        mtu: input.mtu.filter(|mtu| *mtu > 0),
        masquerade: input.ip_masq.unwrap_or(true),
        ..usual
    })
}

fn result(input: &Input, network: &RoutedNetwork, lease: &Lease, netns: &str, interface: &str) -> Value {
    let hardware = hardware_of(lease.ips[0]).map(|byte| format!("{byte:02x}")).join(":");
    let gateways: Vec<IpAddr> = network.pod_cidrs().iter().filter_map(gateway).collect();
    let new_form = input.cni_version.starts_with('1');
    let address = |ip: &IpAddr| {
        let prefix = if ip.is_ipv4() { 32 } else { 128 };
        let via = gateways.iter().find(|gateway| gateway.is_ipv4() == ip.is_ipv4());
        let mut one = json!({"address": format!("{ip}/{prefix}"), "gateway": via, "interface": 0});
        if !new_form {
            one["version"] = json!(if ip.is_ipv4() { "4" } else { "6" });
        }
        one
    };
    let route = |via: &IpAddr| json!({"dst": Cidr::around(*via, 0).to_string(), "gw": via});
    json!({
        "cniVersion": input.cni_version,
        "interfaces": [{"name": interface, "mac": hardware, "sandbox": netns}],
        "ips": lease.ips.iter().map(address).collect::<Vec<_>>(),
        "routes": gateways.iter().map(route).collect::<Vec<_>>(),
        "dns": input.prev_result.get("dns").cloned().unwrap_or_else(|| json!({})),
    })
}

/// Formats an error with all its causes.
fn chain(error: &NetworkError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(environment: &[(&str, &str)], input: &str) -> Result<Option<Value>, (u32, String)> {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        handle_call(&environment, input.as_bytes()).map_err(|error| (error.code, error.message))
    }

    #[test]
    fn supported_versions_are_reported() {
        let response = call(&[("CNI_COMMAND", "VERSION")], r#"{"cniVersion": "1.1.0"}"#).unwrap().unwrap();
        assert_eq!(response, json!({"cniVersion": "1.1.0", "supportedVersions": VERSIONS}));
    }

    #[test]
    fn invalid_calls_are_rejected_with_specification_codes() {
        let check = |environment: &[(&str, &str)], input: &str, expect: u32| {
            assert_eq!(call(environment, input).unwrap_err().0, expect, "{environment:?} {input}");
        };
        let directory = tempfile::tempdir().unwrap();
        let with = |rest: &str| format!(r#"{{"cniVersion": "1.1.0", "dataDir": {:?}{rest}}}"#, directory.path());
        check(&[("CNI_COMMAND", "ADD")], "{", 6);
        check(&[("CNI_COMMAND", "ADD")], r#"{"cniVersion": "7"}"#, 1);
        check(&[("CNI_COMMAND", "ADD")], &with(""), 4);
        check(&[("CNI_COMMAND", "DANCE")], &with(""), 4);
        check(&[("CNI_COMMAND", "STATUS")], &with(""), 50);
        check(&[("CNI_COMMAND", "ADD")], &with(r#", "podCIDRs": ["x"]"#), 7);
    }
}
