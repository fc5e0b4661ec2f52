//! Host ports of pods.

use std::net::IpAddr;

use netlink::Protocol;
use serde::{Deserialize, Serialize};

/// A host port mapped to a container port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortMapping {
    pub protocol: Protocol,
    pub host_port: u16,
    pub container_port: u16,
    /// `None` for all addresses of the host.
    #[serde(default, rename = "hostIP", skip_serializing_if = "Option::is_none")]
    pub host_ip: Option<IpAddr>,
}
