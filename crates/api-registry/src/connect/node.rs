//! Kubelet address and capabilities from a Node's status.

use apimachinery::Value;

/// The default kubelet port.
const PORT: u16 = 10_250;
/// The declared feature of kubelets that support WebSockets natively.
const WEBSOCKETS: &str = "ExtendWebSocketsToKubelet";

/// The connection data of a kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub host: String,
    pub port: u16,
    /// Whether the kubelet supports WebSockets, so that no translation to SPDY is needed.
    pub websockets: bool,
}

/// The node has no address of a preferred type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no preferred addresses found; known addresses: [{}]", .0.join(" "))]
pub struct UnknownAddress(Vec<String>);

impl Node {
    /// Parses a Node. `preferred` are address types, most preferred first.
    pub fn of(node: &Value, preferred: &[String]) -> Result<Self, UnknownAddress> {
        let addresses = node.list_at(&["status", "addresses"]);
        let text = |address: &Value, field: &str| address.text_at(&[field]).to_owned();
        let of_type =
            |address_type: &String| addresses.iter().find(|address| address.str_at(&["type"]) == Some(address_type));
        let Some(address) = preferred.iter().find_map(of_type) else {
            let known = addresses.iter().map(|it| format!("{{{} {}}}", text(it, "type"), text(it, "address")));
            return Err(UnknownAddress(known.collect()));
        };
        let port = node.int_at(&["status", "daemonEndpoints", "kubeletEndpoint", "Port"]);
        let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0).unwrap_or(PORT);
        let declared = node.list_at(&["status", "declaredFeatures"]);
        let websockets = declared.iter().any(|feature| feature.as_str() == Some(WEBSOCKETS));
        Ok(Self { host: text(address, "address"), port, websockets })
    }

    /// Returns `host:port`.
    pub fn authority(&self) -> String {
        super::location::join(&self.host, &self.port.to_string())
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn kubelet_address_comes_from_the_node_status() {
        let preferred = ["Hostname", "InternalIP"].map(str::to_owned);
        let check = |status: Value, expect: &str| {
            let found = Node::of(&value!({"status": status}), &preferred);
            let found = found.map_or_else(|error| error.to_string(), |node| node.authority());
            assert_eq!(found, expect);
        };
        check(value!({}), "no preferred addresses found; known addresses: []");
        check(
            value!({"addresses": [{"type": "ExternalIP", "address": "1.2.3.4"}]}),
            "no preferred addresses found; known addresses: [{ExternalIP 1.2.3.4}]",
        );
        check(value!({"addresses": [{"type": "InternalIP", "address": "fd00::1"}]}), "[fd00::1]:10250");
        check(
            value!({
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "one"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 1234}},
            }),
            "one:1234",
        );
    }
}
