//! Addresses and names at which others reach a server or node, and the name of the cluster in kubeconfigs.

use std::net::IpAddr;

use anyhow::{Result, ensure};
use apimachinery::names;
use clap::Args;

/// Addresses and names at which others reach this host.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerAddresses {
    /// Further DNS names and IP addresses in the certificate of the API server, such as those of a load balancer.
    #[arg(long, value_delimiter = ',', value_parser = name_or_address)]
    pub tls_san: Vec<String>,
    /// IP address at which nodes and pods reach the API server of this host [default: the first address of the node].
    #[arg(long)]
    pub advertise_address: Option<IpAddr>,
}

/// Addresses at which others reach this node.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeAddresses {
    /// External IP address of this node, or one per IP family: reported in its status, and in the certificate of the
    /// API server.
    #[arg(long, value_delimiter = ',')]
    pub node_external_ip: Vec<IpAddr>,
}

impl ServerAddresses {
    /// Rejects an address at which no other host reaches this one, or of a family that the cluster does not have.
    pub(crate) fn check(&self, service_cidr: &str) -> Result<()> {
        let Some(address) = self.advertise_address else { return Ok(()) };
        check_unicast("--advertise-address", address)?;
        let primary = service_cidr.split(',').next().unwrap_or_default();
        ensure!(
            address.is_ipv6() == primary.contains(':'),
            "--advertise-address {address}: must be of the IP family of the first --service-cidr, {primary}"
        );
        Ok(())
    }
}

impl NodeAddresses {
    pub(crate) fn check(&self) -> Result<()> {
        self.node_external_ip.iter().try_for_each(|address| check_unicast("--node-external-ip", *address))?;
        let sixes = self.node_external_ip.iter().filter(|address| address.is_ipv6()).count();
        ensure!(
            sixes <= 1 && self.node_external_ip.len() - sixes <= 1,
            "--node-external-ip: give at most one address per IP family"
        );
        Ok(())
    }
}

fn check_unicast(flag: &str, address: IpAddr) -> Result<()> {
    let is_reachable = !address.is_unspecified() && !address.is_loopback() && !address.is_multicast();
    ensure!(is_reachable, "{flag} {address}: other hosts cannot reach this address; give one of this host's network");
    Ok(())
}

/// Parses a subject alternative name. IP addresses get their canonical form.
fn name_or_address(text: &str) -> Result<String, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    let problems =
        if text.starts_with('*') { names::wildcard_dns1123_subdomain(text) } else { names::dns1123_subdomain(text) };
    match problems.first() {
        None => Ok(text.to_owned()),
        Some(problem) => Err(format!("neither an IP address nor a DNS name: {problem}")),
    }
}

/// Parses the name of a cluster, which is also that of its context.
pub(super) fn cluster_name(text: &str) -> Result<String, String> {
    match names::dns1123_subdomain(text).first() {
        None => Ok(text.to_owned()),
        Some(problem) => Err(problem.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subject_alternative_names_are_dns_names_or_addresses() {
        for (text, expect) in [
            ("api.example.com", Some("api.example.com")),
            ("*.example.com", Some("*.example.com")),
            ("192.0.2.1", Some("192.0.2.1")),
            ("2001:DB8:0::1", Some("2001:db8::1")),
            ("https://api.example.com", None),
            ("api.example.com:6443", None),
            ("", None),
            ("Api", None),
        ] {
            assert_eq!(name_or_address(text).ok().as_deref(), expect, "{text:?}");
        }
    }

    #[test]
    fn addresses_must_be_reachable_and_of_a_family_of_the_cluster() {
        let advertise = |address: &str, cidr: &str| {
            let reach =
                ServerAddresses { advertise_address: Some(address.parse().unwrap()), ..ServerAddresses::default() };
            reach.check(cidr).map_err(|error| error.to_string())
        };
        assert_eq!(advertise("192.0.2.1", "10.96.0.0/16"), Ok(()));
        assert_eq!(advertise("2001:db8::1", "fd00::/108,10.96.0.0/16"), Ok(()));
        assert!(advertise("2001:db8::1", "10.96.0.0/16").unwrap_err().contains("first --service-cidr, 10.96.0.0/16"));
        for address in ["0.0.0.0", "127.0.0.1", "224.0.0.1"] {
            assert!(advertise(address, "10.96.0.0/16").unwrap_err().contains("cannot reach"), "{address}");
        }
        let external = |addresses: &[&str]| {
            let node_external_ip = addresses.iter().map(|address| address.parse().unwrap()).collect();
            NodeAddresses { node_external_ip }.check().is_ok()
        };
        assert!(external(&[]) && external(&["203.0.113.1", "2001:db8::1"]));
        assert!(!external(&["203.0.113.1", "203.0.113.2"]) && !external(&["::"]));
    }
}
