//! `--tls-min-version`, `--tls-cipher-suites` and certificates in PEM files, as every component of Kubernetes has them.

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

use crate::ciphers;

/// Why TLS cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file has no certificate or key in it.
    #[error("{0} holds no usable PEM")]
    Pem(PathBuf, #[source] rustls::pki_types::pem::Error),
    /// Certificate and key do not fit.
    #[error("the certificate cannot be used")]
    Rustls(#[from] rustls::Error),
    /// A cipher suite is unknown.
    #[error("--tls-cipher-suites: {0}")]
    Ciphers(String),
    /// A version is unknown.
    #[error("--tls-min-version: unknown tls version \"{0}\"")]
    Version(String),
}

/// The oldest version that clients may speak. Versions before 1.2 are never spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinVersion {
    /// 1.2
    #[default]
    Tls12,
    /// 1.3
    Tls13,
}

/// How TLS is spoken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// `--tls-min-version`.
    pub min_version: MinVersion,
    /// `--tls-cipher-suites`; empty for all that are sound.
    pub cipher_suites: Vec<String>,
}

impl FromStr for MinVersion {
    type Err = TlsError;

    /// Reads Go's names.
    // DEVIATION: TLS 1.0 and 1.1 may be named as the oldest version, and are not spoken.
    fn from_str(name: &str) -> Result<Self, TlsError> {
        match name {
            "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => Ok(Self::Tls12),
            "VersionTLS13" => Ok(Self::Tls13),
            _ => Err(TlsError::Version(name.to_owned())),
        }
    }
}

impl TlsSettings {
    /// The cryptography with the cipher suites that are offered.
    pub fn provider(&self) -> Result<Arc<CryptoProvider>, TlsError> {
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        ciphers::choose(&mut provider.cipher_suites, &self.cipher_suites)?;
        Ok(Arc::new(provider))
    }

    /// Begins the configuration of a server.
    pub fn server(&self) -> Result<ConfigBuilder<ServerConfig, WantsVerifier>, TlsError> {
        let versions: &[&SupportedProtocolVersion] = match self.min_version {
            MinVersion::Tls12 => &[&TLS13, &TLS12],
            MinVersion::Tls13 => &[&TLS13],
        };
        Ok(ServerConfig::builder_with_provider(self.provider()?).with_protocol_versions(versions)?)
    }

    /// Begins the configuration of a server whose clients show no certificates.
    pub fn server_without_client_certificates(&self) -> Result<ConfigBuilder<ServerConfig, WantsServerCert>, TlsError> {
        Ok(self.server()?.with_no_client_auth())
    }
}

/// Reads a certificate with its chain, and its key.
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
    fn versions_have_their_names_in_go() {
        let check = |name: &str, expect: Option<MinVersion>| {
            assert_eq!(name.parse::<MinVersion>().ok(), expect, "{name}");
        };
        check("", Some(MinVersion::Tls12));
        check("VersionTLS12", Some(MinVersion::Tls12));
        check("VersionTLS13", Some(MinVersion::Tls13));
        check("TLS1.3", None);
    }
}
