//! kube-proxy configuration: flags and `KubeProxyConfiguration`.

mod fields;

use std::net::{IpAddr, SocketAddr};

use apimachinery::Value;
use netlink::Cidr;

const API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";
const KIND: &str = "KubeProxyConfiguration";

/// Configuration of kube-proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub mode: Mode,
    pub node_name: String,
    /// Pod CIDRs of the cluster.
    pub cluster_cidrs: Vec<Cidr>,
    pub detect_local: DetectLocal,
    /// Node addresses that serve NodePorts; if empty, those of the Node object.
    pub node_port_addresses: Vec<NodePortAddresses>,
    /// Whether loopback addresses serve NodePorts; iptables only.
    pub localhost_node_ports: bool,
    /// Whether all traffic to services is masqueraded.
    pub masquerade_all: bool,
    /// Index of the packet mark bit that requests masquerading.
    pub masquerade_bit: u8,
    /// Listen address of `/healthz`; `None` disables it.
    pub healthz: Option<SocketAddr>,
    /// Listen address of `/metrics`; `None` disables it.
    pub metrics: Option<SocketAddr>,
    pub oom_score_adj: i32,
    /// Path of the kubeconfig in the configuration.
    pub kubeconfig: Option<String>,
    /// Configured fields that have no effect, each with the reason.
    pub unheeded: Vec<String>,
}

/// Proxy mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Nftables,
    Iptables,
    /// A process that accepts connections and copies the data.
    Userspace,
}

/// Method to recognize traffic from local pods (`detectLocalMode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetectLocal {
    /// The source is in the cluster's pod CIDRs.
    ClusterCidr,
    /// The source is in the pod CIDRs of this node.
    NodeCidr,
}

/// An entry of `nodePortAddresses`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePortAddresses {
    /// The primary address of the Node object, per address family.
    Primary,
    /// All node addresses in a CIDR.
    Within(Cidr),
}

/// An invalid configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ConfigError {
    pub field: String,
    pub problem: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::Nftables,
            node_name: String::new(),
            cluster_cidrs: Vec::new(),
            detect_local: DetectLocal::ClusterCidr,
            node_port_addresses: Vec::new(),
            localhost_node_ports: true,
            masquerade_all: false,
            // Upstream's default: 0x4000.
            masquerade_bit: 14,
            healthz: Some(SocketAddr::from(([0, 0, 0, 0], 10256))),
            metrics: Some(SocketAddr::from(([127, 0, 0, 1], 10249))),
            oom_score_adj: -999,
            kubeconfig: None,
            unheeded: Vec::new(),
        }
    }
}

impl Config {
    /// Decodes and validates a configuration file.
    pub fn read(object: &Value) -> Result<Self, ConfigError> {
        for (field, expect) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            let given = object.text_at(&[field]);
            if given != expect {
                return Err(error(field, format!("{given:?} is not supported; must be {expect:?}")));
            }
        }
        let text = |path: &[&str]| object.str_at(path).filter(|text| !text.is_empty());
        let mut config = Self { unheeded: fields::unheeded(object)?, ..Self::default() };
        config.set_mode(text(&["mode"]).unwrap_or_default(), "mode")?;
        config.set_detect_local(text(&["detectLocalMode"]).unwrap_or_default(), "detectLocalMode")?;
        config.node_name = text(&["hostnameOverride"]).unwrap_or_default().to_owned();
        config.set_cluster_cidrs(text(&["clusterCIDR"]).unwrap_or_default(), "clusterCIDR")?;
        config.kubeconfig = text(&["clientConnection", "kubeconfig"]).map(str::to_owned);
        let addresses = object.list_at(&["nodePortAddresses"]);
        let addresses: Vec<&str> = addresses.iter().filter_map(Value::as_str).collect();
        config.set_node_port_addresses(&addresses, "nodePortAddresses")?;
        if let Some(bind) = text(&["healthzBindAddress"]) {
            config.set_healthz(bind, "healthzBindAddress")?;
        }
        if let Some(bind) = text(&["metricsBindAddress"]) {
            config.set_metrics(bind, "metricsBindAddress")?;
        }
        if let Some(score) = object.get("oomScoreAdj").and_then(Value::as_int) {
            config.set_oom_score_adj(score, "oomScoreAdj")?;
        }
        // Both modes have the same two fields; those of the selected mode apply.
        let mode = if config.mode == Mode::Iptables { "iptables" } else { "nftables" };
        if let Some(all) = object.at(&[mode, "masqueradeAll"]).and_then(Value::as_bool) {
            config.masquerade_all = all;
        }
        if let Some(bit) = object.int_at(&[mode, "masqueradeBit"]) {
            config.set_masquerade_bit(bit, &format!("{mode}.masqueradeBit"))?;
        }
        if let Some(localhost) = object.at(&["iptables", "localhostNodePorts"]).and_then(Value::as_bool) {
            config.localhost_node_ports = localhost;
        }
        Ok(config)
    }

    /// Sets the mode by upstream's name.
    // DEVIATION: the default mode is nftables, ipvs is served by nftables, and there is a mode `userspace` for hosts
    // without netfilter, as upstream had before 1.26.
    pub fn set_mode(&mut self, name: &str, field: &str) -> Result<(), ConfigError> {
        self.mode = match name {
            "" | "nftables" | "ipvs" => Mode::Nftables,
            "iptables" => Mode::Iptables,
            "userspace" => Mode::Userspace,
            other => {
                let problem = format!("unknown mode {other:?}; must be nftables, iptables or userspace");
                return Err(error(field, problem));
            }
        };
        Ok(())
    }

    /// Sets `detectLocalMode` by upstream's name.
    pub fn set_detect_local(&mut self, name: &str, field: &str) -> Result<(), ConfigError> {
        self.detect_local = match name {
            "" | "ClusterCIDR" => DetectLocal::ClusterCidr,
            "NodeCIDR" => DetectLocal::NodeCidr,
            other => {
                return Err(error(field, format!("{other:?} is not supported; must be ClusterCIDR or NodeCIDR")));
            }
        };
        Ok(())
    }

    pub fn set_cluster_cidrs(&mut self, text: &str, field: &str) -> Result<(), ConfigError> {
        self.cluster_cidrs = Cidr::parse_list(text).map_err(|problem| error(field, problem.to_string()))?;
        Ok(())
    }

    pub fn set_node_port_addresses(&mut self, texts: &[&str], field: &str) -> Result<(), ConfigError> {
        let one = |text: &&str| match text.trim() {
            "primary" => Ok(NodePortAddresses::Primary),
            block => match block.parse() {
                Ok(block) => Ok(NodePortAddresses::Within(block)),
                Err(problem) => Err(error(field, netlink::cidr::CidrError::to_string(&problem))),
            },
        };
        self.node_port_addresses = texts.iter().map(one).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Sets the listen address of `/healthz`; the port is optional.
    pub fn set_healthz(&mut self, text: &str, field: &str) -> Result<(), ConfigError> {
        self.healthz = parse_listen_address(text, 10256, field)?;
        Ok(())
    }

    /// Sets the listen address of `/metrics`; the port is optional.
    pub fn set_metrics(&mut self, text: &str, field: &str) -> Result<(), ConfigError> {
        self.metrics = parse_listen_address(text, 10249, field)?;
        Ok(())
    }

    pub fn set_oom_score_adj(&mut self, score: i64, field: &str) -> Result<(), ConfigError> {
        self.oom_score_adj = i32::try_from(score)
            .ok()
            .filter(|score| (-1000..=1000).contains(score))
            .ok_or_else(|| error(field, format!("{score} is not between -1000 and 1000")))?;
        Ok(())
    }

    pub fn set_masquerade_bit(&mut self, bit: i64, field: &str) -> Result<(), ConfigError> {
        self.masquerade_bit = u8::try_from(bit)
            .ok()
            .filter(|bit| *bit < 32)
            .ok_or_else(|| error(field, format!("{bit} is not between 0 and 31")))?;
        Ok(())
    }
}

/// Parses a listen address; port 0 disables it.
fn parse_listen_address(text: &str, port: u16, field: &str) -> Result<Option<SocketAddr>, ConfigError> {
    let address = text.parse().or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, port)));
    let address = address.map_err(|_| error(field, format!("{text:?} is not an IP address or IP:port")))?;
    Ok(Some(address).filter(|address| address.port() != 0))
}

fn error(field: &str, problem: impl Into<String>) -> ConfigError {
    ConfigError { field: field.to_owned(), problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn read(more: Value) -> Result<Config, String> {
        let mut object = value!({"apiVersion": API_VERSION, "kind": KIND});
        if let Value::Object(more) = more {
            for (key, value) in more {
                object.as_object_mut().unwrap().insert(key, value);
            }
        }
        Config::read(&object).map_err(|error| error.to_string())
    }

    #[test]
    fn configurations_are_decoded() {
        assert_eq!(read(value!({})), Ok(Config::default()));
        assert_eq!(read(value!({"oomScoreAdj": (-7)})).unwrap().oom_score_adj, -7);
        assert_eq!(read(value!({})).unwrap().oom_score_adj, -999);
        let config =
            read(value!({"mode": "nftables", "clusterCIDR": "10.244.0.0/16,fd00::/48", "hostnameOverride": "n",
            "nodePortAddresses": ["primary", "192.0.2.0/24"], "healthzBindAddress": "127.0.0.1:0",
            "nftables": {"masqueradeBit": 3, "masqueradeAll": true}, "clientConnection": {"kubeconfig": "/k"}}))
            .unwrap();
        assert_eq!((config.cluster_cidrs.len(), config.node_port_addresses.len()), (2, 2));
        assert_eq!((config.masquerade_bit, config.masquerade_all, config.healthz), (3, true, None));
        assert_eq!((config.node_name.as_str(), config.kubeconfig.as_deref()), ("n", Some("/k")));
    }

    #[test]
    fn errors_name_the_invalid_field() {
        let check = |more: Value, expect: &str| assert_eq!(read(more).unwrap_err(), expect);
        check(value!({"kind": "Pod"}), "kind: \"Pod\" is not supported; must be \"KubeProxyConfiguration\"");
        check(value!({"mode": 7}), "mode: must be text");
        check(
            value!({"detectLocalMode": "BridgeInterface"}),
            "detectLocalMode: \"BridgeInterface\" is not supported; must be ClusterCIDR or NodeCIDR",
        );
        check(value!({"mode": "magic"}), "mode: unknown mode \"magic\"; must be nftables, iptables or userspace");
        check(value!({"clusterCIDR": "x"}), "clusterCIDR: \"x\" is not a valid CIDR such as 10.244.0.0/24");
        check(value!({"nftables": {"masqueradeBit": 32}}), "nftables.masqueradeBit: 32 is not between 0 and 31");
    }
}
