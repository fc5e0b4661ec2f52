//! TLS flags common to all components: `--tls-min-version`, `--tls-cipher-suites` and PEM certificates.

mod ciphers;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WantsServerCert;
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ConfigBuilder, ServerConfig, SupportedProtocolVersion, WantsVerifier};

/// Reasons why TLS cannot be configured.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{0} contains no usable PEM")]
    Pem(PathBuf, #[source] rustls::pki_types::pem::Error),
    /// Certificate and key do not match.
    #[error("the certificate cannot be used")]
    Rustls(#[from] rustls::Error),
    #[error("--tls-cipher-suites: {0}")]
    Ciphers(String),
    #[error("--tls-min-version: unknown tls version \"{0}\"")]
    Version(String),
}

/// The minimum TLS version. Versions before 1.2 are never supported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinVersion {
    #[default]
    Tls12,
    Tls13,
}

/// TLS settings of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    pub min_version: MinVersion,
    /// `--tls-cipher-suites`; empty for all secure ones.
    pub cipher_suites: Vec<String>,
}

impl FromStr for MinVersion {
    type Err = TlsError;

    /// Parses Go's names.
    // DEVIATION: TLS 1.0 and 1.1 are accepted as minimum version but not supported.
    fn from_str(name: &str) -> Result<Self, TlsError> {
        match name {
            "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => Ok(Self::Tls12),
            "VersionTLS13" => Ok(Self::Tls13),
            _ => Err(TlsError::Version(name.to_owned())),
        }
    }
}

impl TlsSettings {
    /// Returns the crypto provider with the configured cipher suites.
    pub fn provider(&self) -> Result<Arc<CryptoProvider>, TlsError> {
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        ciphers::choose(&mut provider.cipher_suites, &self.cipher_suites)?;
        Ok(Arc::new(provider))
    }

    /// Starts a server configuration.
    pub fn server(&self) -> Result<ConfigBuilder<ServerConfig, WantsVerifier>, TlsError> {
        let versions: &[&SupportedProtocolVersion] = match self.min_version {
            MinVersion::Tls12 => &[&TLS13, &TLS12],
            MinVersion::Tls13 => &[&TLS13],
        };
        Ok(ServerConfig::builder_with_provider(self.provider()?).with_protocol_versions(versions)?)
    }

    /// Starts a server configuration without client certificates.
    pub fn server_without_client_certificates(&self) -> Result<ConfigBuilder<ServerConfig, WantsServerCert>, TlsError> {
        Ok(self.server()?.with_no_client_auth())
    }
}

/// Reads a certificate chain and its key.
pub fn read_certificate(certificate: &Path, key: &Path, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let chain = read_certificates(certificate)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| TlsError::Pem(key.to_owned(), error))?;
    Ok(CertifiedKey::from_der(chain, key, provider)?)
}

/// Reads all certificates of a file.
pub fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = |error| TlsError::Pem(file.to_owned(), error);
    CertificateDer::pem_file_iter(file).map_err(pem)?.collect::<Result<_, _>>().map_err(pem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_versions_use_gos_names() {
        let check = |name: &str, expect: Option<MinVersion>| {
            assert_eq!(name.parse::<MinVersion>().ok(), expect, "{name}");
        };
        check("", Some(MinVersion::Tls12));
        check("VersionTLS12", Some(MinVersion::Tls12));
        check("VersionTLS13", Some(MinVersion::Tls13));
        check("TLS1.3", None);
    }
}
