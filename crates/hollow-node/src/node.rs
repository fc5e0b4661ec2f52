//! Objects of a hollow node: Node, its status and its Lease.

use std::net::Ipv4Addr;

use apimachinery::time::Time;
use apimachinery::{Value, value};

/// The reported kubelet version.
pub const KUBELET_VERSION: &str = "v1.36.0";
/// Lease duration, equal to the kubelet's.
pub const LEASE_SECONDS: i64 = 40;
/// Interval of lease renewals.
pub const RENEW_SECONDS: u64 = 10;
pub const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Capacity of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Size {
    /// CPUs, as a quantity.
    pub cpu: String,
    /// Memory, as a quantity.
    pub memory: String,
    pub pods: u32,
}

impl Default for Size {
    fn default() -> Self {
        Self { cpu: "32".to_owned(), memory: "256Gi".to_owned(), pods: 110 }
    }
}

/// Returns the Node to register.
pub fn object(name: &str) -> Value {
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    value!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": arch,
        "type": "hollow"}}})
}

/// Returns the status of a healthy node.
pub fn status(name: &str, index: u32, size: &Size, now: Time) -> Value {
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let amounts = value!({"cpu": (size.cpu.as_str()), "memory": (size.memory.as_str()), "pods": (size.pods.to_string()),
        "ephemeral-storage": "1Ti"});
    let now = now.to_string();
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        value!({"type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": (now.as_str()), "lastTransitionTime": (now.as_str())})
    };
    value!({
        "capacity": (amounts.clone()), "allocatable": amounts,
        "addresses": [{"type": "InternalIP", "address": (address(index).to_string())}, {"type": "Hostname", "address": name}],
        "nodeInfo": {"architecture": arch, "operatingSystem": "linux", "kubeletVersion": KUBELET_VERSION,
            "kubeProxyVersion": "", "containerRuntimeVersion": "hollow://1", "osImage": "hollow", "kernelVersion": "",
            "machineID": "", "systemUUID": "", "bootID": ""},
        "conditions": [
            (condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available")),
            (condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure")),
            (condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available")),
            (condition("Ready", "True", "KubeletReady", "kubelet is posting ready status")),
        ],
    })
}

/// Returns the lease of a node, renewed now.
pub fn lease(name: &str, now: Time) -> Value {
    value!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": LEASE_NAMESPACE, "name": name},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": (now.micro().to_string())}})
}

/// Returns the IP of a node, from 10.255.0.0/16.
pub fn address(index: u32) -> Ipv4Addr {
    let [_, _, high, low] = (index + 1).to_be_bytes();
    Ipv4Addr::new(10, 255, high, low)
}

/// Returns the IP of a pod: each node has 256 addresses of 10.0.0.0/9, of which 254 are used in turn.
pub fn pod_address(index: u32, number: u32) -> Ipv4Addr {
    let low = number % 254 + 1;
    Ipv4Addr::from(0x0A00_0000 | (index & 0x7FFF) << 8 | low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_and_pod_addresses_are_unique() {
        assert_eq!(address(0).to_string(), "10.255.0.1");
        assert_eq!(address(255).to_string(), "10.255.1.0");
        assert_eq!(pod_address(0, 0).to_string(), "10.0.0.1");
        assert_eq!(pod_address(3, 253).to_string(), "10.0.3.254");
        assert_eq!(pod_address(3, 254).to_string(), "10.0.3.1");
        assert_eq!(pod_address(32_767, 0).to_string(), "10.127.255.1");
    }
}
