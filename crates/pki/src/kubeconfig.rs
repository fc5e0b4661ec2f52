//! Kubeconfig files.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::{CertificateAuthority, Error, Pair, Pki, write};

/// Writes a kubeconfig with embedded certificates, so that it can be copied to another host. Cluster and context have the
/// name of the cluster. An identical file is not written again.
pub fn kubeconfig(pki: &Pki, path: &Path, cluster: &str, server: &str, user: &str, pair: &Pair) -> Result<(), Error> {
    let encoded = |path: &Path| -> Result<String, Error> {
        let bytes = fs::read(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
        Ok(STANDARD.encode(bytes))
    };
    let ca = format!("certificate-authority-data: {}", encoded(&pki.ca_certificate(CertificateAuthority::Cluster))?);
    let certificate = format!("client-certificate-data: {}", encoded(&pair.certificate)?);
    let key = format!("client-key-data: {}", encoded(&pair.key)?);
    write_config(path, cluster, server, user, &ca, [certificate, key])
}

/// Writes a kubeconfig that refers to certificate files on this host, so that clients notice renewed certificates.
pub fn kubeconfig_of_files(
    pki: &Pki,
    path: &Path,
    cluster: &str,
    server: &str,
    user: &str,
    pair: &Pair,
) -> Result<(), Error> {
    let ca = format!("certificate-authority: {}", pki.ca_certificate(CertificateAuthority::Cluster).display());
    let certificate = format!("client-certificate: {}", pair.certificate.display());
    let key = format!("client-key: {}", pair.key.display());
    write_config(path, cluster, server, user, &ca, [certificate, key])
}

fn write_config(
    path: &Path,
    cluster: &str,
    server: &str,
    user: &str,
    ca: &str,
    [certificate, key]: [String; 2],
) -> Result<(), Error> {
    let text = format!(
        "apiVersion: v1
kind: Config
clusters:
- name: {cluster}
  cluster:
    server: {server}
    {ca}
users:
- name: {user}
  user:
    {certificate}
    {key}
contexts:
- name: {cluster}
  context:
    cluster: {cluster}
    user: {user}
current-context: {cluster}
"
    );
    if fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    write(path, &text, 0o600)
}
