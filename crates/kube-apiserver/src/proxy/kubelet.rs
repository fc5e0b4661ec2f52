//! Kubelet connections: certificates and addresses from the `--kubelet-*` flags.

use std::path::PathBuf;

use api_registry::connect::Node;
use client::config::{Pem, Tls};
use http::Uri;

use super::{ProxyError, Target};
use crate::backend::Route;

/// Kubelet connection settings, from flags.
#[derive(Clone, Debug)]
pub struct Kubelets {
    /// `--kubelet-preferred-address-types`.
    pub preferred: Vec<String>,
    /// `--kubelet-client-certificate` and `--kubelet-client-key`.
    pub client: Option<(PathBuf, PathBuf)>,
    /// `--kubelet-certificate-authority`. Without it any serving certificate is accepted, as upstream does.
    pub ca: Option<PathBuf>,
}

impl Default for Kubelets {
    fn default() -> Self {
        let preferred = ["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"];
        Self { preferred: preferred.map(str::to_owned).to_vec(), client: None, ca: None }
    }
}

/// Verification of the kubelet's serving certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateVerification {
    /// According to `--kubelet-certificate-authority`.
    Configured,
    /// The client requested `insecureSkipTLSVerifyBackend`.
    Skipped,
}

impl Kubelets {
    /// Returns the proxy target for a path on the kubelet of a node.
    pub fn target(&self, node: &Node, path: String, proof: CertificateVerification) -> Result<Target, ProxyError> {
        let dial = node.authority();
        let url = Uri::try_from(format!("https://{dial}/")).map_err(http::Error::from)?;
        let ca = self.ca.as_ref().filter(|_| proof == CertificateVerification::Configured);
        let tls = Tls {
            certificate_authority: ca.map(|file| Pem::File(file.clone())),
            insecure_skip_verify: ca.is_none(),
            server_name: None,
            client: self.client.clone().map(|(certificate, key)| (Pem::File(certificate), Pem::File(key))),
        };
        Ok(Target { route: Route { url, dial, server_name: node.host.clone() }, tls, path })
    }
}
