//! Flags of the kubelet.

use std::net::Ipv4Addr;

use ::kubelet::node::machine::Machine;
use pki::{CertificateAuthority, Pki};

use super::{Layout, flags, list, path};
use crate::up::{Options, static_pods};

/// Hard eviction thresholds. Upstream's 10 and 15 % would keep a laptop with a well-filled disk from running pods; k3s
/// uses 5 % too. `diagnostics::checkup` warns earlier.
const EVICTION_HARD: &str = "imagefs.available<5%,nodefs.available<5%,imagefs.inodesFree<5%,nodefs.inodesFree<5%";
/// Eviction threshold of memory.available, equal to upstream's default.
const MEMORY_EVICTION_BYTES: i64 = 100 << 20;

pub(super) fn of(options: &Options, layout: &Layout, pki: &Pki) -> Vec<String> {
    let mut flags = flags(&[
        ("kubeconfig", path(layout.kubeconfig("kubelet"))),
        ("data-dir", path(layout.data_dir.clone())),
        ("root-dir", path(layout.data_dir.join("kubelet"))),
        ("cert-dir", path(layout.data_dir.join("kubelet").join("pki"))),
        ("hostname-override", layout.node_name.clone()),
        ("node-ip", list(&layout.addresses)),
        ("address", layout.everywhere(Ipv4Addr::UNSPECIFIED.into()).to_string()),
        ("port", options.kubelet_port.to_string()),
        // No DNS server of this node serves an IP family that the node does not have.
        ("cluster-dns", list(layout.dns_services.iter().filter(|service| layout.has_family_of(service)))),
        ("cluster-domain", "cluster.local".into()),
        ("client-ca-file", path(pki.ca_certificate(CertificateAuthority::Cluster))),
        ("rotate-server-certificates", "true".into()),
        ("anonymous-auth", "false".into()),
        ("authentication-token-webhook", "true".into()),
        ("authorization-mode", "Webhook".into()),
        ("network", "auto".into()),
        ("cluster-cidr", options.pod_cidr.clone()),
        ("eviction-hard", format!("{EVICTION_HARD},memory.available<{}Mi", MEMORY_EVICTION_BYTES >> 20)),
    ]);
    if !layout.external_addresses.is_empty() {
        flags.push(format!("--node-external-ip={}", list(&layout.external_addresses)));
    }
    let reserved = options.offer.reserved(&Machine::read(&layout.data_dir), MEMORY_EVICTION_BYTES);
    flags.extend(reserved.map(|reserved| format!("--system-reserved={reserved}")));
    flags.extend(options.registries.flags());
    if options.static_pods {
        flags.push(format!("--pod-manifest-path={}", path(static_pods::manifests_dir(&layout.data_dir))));
    }
    flags
}
