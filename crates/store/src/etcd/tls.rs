//! TLS of the etcd server: certificates and client authentication.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::peer::Stream;
use crate::reloading::ReloadingValue;

/// Files and settings of server TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate chain of the server.
    pub cert: PathBuf,
    pub key: PathBuf,
    /// CAs of client certificates; if set, clients must present a certificate.
    pub client_ca: Option<PathBuf>,
    /// Supported TLS versions.
    pub versions: Versions,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    #[default]
    Both,
    Only12,
    Only13,
}

/// The TLS files are unusable.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file could not be read or is not PEM.
    #[error("cannot read {path}")]
    File {
        /// The certificate or key file.
        path: PathBuf,
        source: pem::Error,
    },
    #[error("{path} contains no usable CA certificate")]
    Roots {
        /// The CA file.
        path: PathBuf,
    },
    /// Certificate and key do not match.
    #[error("the certificate in {path} cannot be used with its key")]
    Pair {
        /// The certificate file.
        path: PathBuf,
        source: rustls::Error,
    },
}

/// Server TLS. Changed files are read again for the next connection, so that a renewed certificate needs no restart.
#[derive(Clone, Debug)]
pub struct ServerTls {
    config: Arc<ReloadingValue<Arc<ServerConfig>, TlsError>>,
}

impl ServerTls {
    /// Fails if the files are unusable.
    pub fn new(files: TlsFiles) -> Result<Self, TlsError> {
        let all =
            [Some(&files.cert), Some(&files.key), files.client_ca.as_ref()].into_iter().flatten().cloned().collect();
        let config = ReloadingValue::new(all, move || config(&files).map(Arc::new))?;
        Ok(Self { config: Arc::new(config) })
    }

    pub(super) async fn accept(&self, stream: Box<dyn Stream>) -> io::Result<TlsStream<Box<dyn Stream>>> {
        TlsAcceptor::from(self.config.get()).accept(stream).await
    }
}

/// Returns the non-empty common name of the client certificate.
pub(super) fn common_name(stream: &TlsStream<Box<dyn Stream>>) -> Option<Arc<str>> {
    let certificate = stream.get_ref().1.peer_certificates()?.first()?;
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    // As in Go, the last common name of the subject counts.
    let name = certificate.subject().iter_common_name().last()?.as_str().ok()?;
    (!name.is_empty()).then(|| name.into())
}

impl Versions {
    fn list(self) -> &'static [&'static SupportedProtocolVersion] {
        static ALL: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];
        match self {
            Self::Both => &ALL,
            Self::Only12 => &ALL[..1],
            Self::Only13 => &ALL[1..],
        }
    }
}

fn config(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(files.versions.list())
        .expect("the provider has suites for both versions");
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let no_roots = || TlsError::Roots { path: path.clone() };
            let mut roots = RootCertStore::empty();
            let (added, _) = roots.add_parsable_certificates(certificates(path)?);
            if added == 0 {
                return Err(no_roots());
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().map_err(|_| no_roots())?)
        }
    };
    let mut config = builder
        .with_single_cert(certificates(&files.cert)?, key(&files.key)?)
        .map_err(|source| TlsError::Pair { path: files.cert.clone(), source })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

pub(crate) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|source| TlsError::File { path: path.to_owned(), source })
}

pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |source| TlsError::File { path: path.to_owned(), source };
    CertificateDer::pem_file_iter(path).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)
}
