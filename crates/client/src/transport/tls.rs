//! TLS configuration: certificates, keys and trusted CAs for connections to the API server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};

use super::verifier::BundleVerifier;
use crate::config::{Pem, Tls};

/// The system's CA bundles, in Go's search order.
const SYSTEM_ROOTS: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        /// The error of the file system.
        source: std::io::Error,
    },
    /// The PEM data is invalid.
    #[error("{what} contains no valid PEM")]
    Pem {
        /// The file or the purpose of the data.
        what: String,
        source: rustls::pki_types::pem::Error,
    },
    #[error("{0} contains no certificate")]
    Empty(String),
    #[error("no CA is configured, and the system has no CA bundle")]
    NoRoots,
    /// Certificate and key are not usable or do not match.
    #[error("{what} is not usable")]
    Rustls {
        /// The certificate or the key.
        what: &'static str,
        source: rustls::Error,
    },
}

/// The client certificate and its key.
#[derive(Clone, Copy)]
pub struct ClientCertificate<'a> {
    /// The certificate and its intermediate CAs.
    pub certificate: &'a Pem,
    pub key: &'a Pem,
}

/// The modification times and sizes of files, to detect changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp(Vec<Option<(SystemTime, u64)>>);

impl Stamp {
    /// Reads the stamps of the files among the sources. This is one cached system call per file, so it may run before
    /// every request without a separate thread.
    pub fn of<'a>(sources: impl IntoIterator<Item = &'a Pem>) -> Self {
        Self(sources.into_iter().filter_map(Pem::path).map(file_stamp).collect())
    }
}

/// Returns modification time and size of a file; `None` if they cannot be read.
pub(super) fn file_stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// Returns the rustls client configuration.
pub fn client_config(tls: &Tls, client: Option<ClientCertificate<'_>>) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|source| TlsError::Rustls { what: "the TLS provider", source })?;
    let builder = if tls.insecure_skip_verify {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(TrustAnyone(provider)))
    } else {
        let (bundle, what) = bundle(tls.certificate_authority.as_ref())?;
        let verifier = BundleVerifier::new(provider, bundle).ok_or(TlsError::Empty(what))?;
        builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
    };
    let mut config = match client {
        None => builder.with_no_client_auth(),
        Some(client) => {
            let chain = certificates(client.certificate, "the client certificate")?;
            let bytes = read(client.key)?;
            let key = PrivateKeyDer::from_pem_slice(&bytes)
                .map_err(|source| TlsError::Pem { what: client.key.describe("the client key"), source })?;
            let what = "the client certificate with its key";
            builder.with_client_auth_cert(chain, key).map_err(|source| TlsError::Rustls { what, source })?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Returns the trusted certificates and their origin.
fn bundle(ca: Option<&Pem>) -> Result<(Vec<CertificateDer<'static>>, String), TlsError> {
    let system;
    let (pem, what) = match ca {
        Some(ca) => (ca, "the certificate authority"),
        None => {
            let path = SYSTEM_ROOTS.iter().map(PathBuf::from).find(|path| path.exists()).ok_or(TlsError::NoRoots)?;
            system = Pem::File(path);
            (&system, "the system's certificates")
        }
    };
    Ok((certificates(pem, what)?, pem.describe(what)))
}

fn certificates(pem: &Pem, what: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let what = pem.describe(what);
    let bytes = read(pem)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if found.is_empty() => Err(TlsError::Empty(what)),
        Ok(found) => Ok(found),
        Err(source) => Err(TlsError::Pem { what, source }),
    }
}

fn read(pem: &Pem) -> Result<Vec<u8>, TlsError> {
    match pem {
        Pem::Inline(bytes) => Ok(bytes.to_vec()),
        Pem::File(path) => std::fs::read(path).map_err(|source| TlsError::Read { path: path.clone(), source }),
    }
}

/// Verifier for `insecure-skip-tls-verify`: the connection is encrypted, but the server is not authenticated.
#[derive(Debug)]
struct TrustAnyone(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAnyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
