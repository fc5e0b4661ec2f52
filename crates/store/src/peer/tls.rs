//! TLS between members: each shows a certificate and checks the other's.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::renewed::Renewed;

/// Both sides' configuration, as the certificates are at each connection.
#[derive(Clone)]
pub struct Tls(Source);

#[derive(Clone)]
enum Source {
    Given(Sides),
    Files(Arc<Renewed<Sides, TlsError>>),
}

#[derive(Clone)]
struct Sides {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{file} cannot be read as PEM")]
    File {
        /// Which.
        file: String,
        /// Why.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// The certificates make no configuration.
    #[error("the peer certificates cannot be used")]
    Config(#[source] rustls::Error),
    /// The authority makes no verifier.
    #[error("the peer certificate authority cannot be used")]
    Authority(#[source] rustls::server::VerifierBuilderError),
}

impl Tls {
    /// Certificate, key and the authority that peers' certificates must come from. Files that change are read again for the
    /// next connection.
    pub fn from_files(certificate: &Path, key: &Path, authority: &Path) -> Result<Self, TlsError> {
        let files = [certificate, key, authority].map(Path::to_owned);
        let [certificate, key, authority] = files.clone();
        let renewed = Renewed::new(files.to_vec(), move || Sides::from_files(&certificate, &key, &authority))?;
        Ok(Self(Source::Files(Arc::new(renewed))))
    }

    /// The same from what was read already.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        authority: Vec<CertificateDer<'static>>,
    ) -> Result<Self, TlsError> {
        Ok(Self(Source::Given(Sides::new(chain, key, authority)?)))
    }

    pub(super) fn server(&self) -> Arc<ServerConfig> {
        self.sides().server
    }

    pub(super) fn client(&self) -> Arc<ClientConfig> {
        self.sides().client
    }

    fn sides(&self) -> Sides {
        match &self.0 {
            Source::Given(sides) => sides.clone(),
            Source::Files(renewed) => renewed.get(),
        }
    }
}

impl Sides {
    fn from_files(certificate: &Path, key: &Path, authority: &Path) -> Result<Self, TlsError> {
        let unreadable = |path: &Path| {
            let file = path.display().to_string();
            move |source| TlsError::File { file: file.clone(), source }
        };
        let read = |path: &Path| -> Result<Vec<CertificateDer<'static>>, TlsError> {
            let certificates = CertificateDer::pem_file_iter(path).map_err(unreadable(path))?;
            certificates.collect::<Result<_, _>>().map_err(unreadable(path))
        };
        let key_der = PrivateKeyDer::from_pem_file(key).map_err(unreadable(key))?;
        Self::new(read(certificate)?, key_der, read(authority)?)
    }

    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        authority: Vec<CertificateDer<'static>>,
    ) -> Result<Self, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in authority {
            roots.add(certificate).map_err(TlsError::Config)?;
        }
        let roots = Arc::new(roots);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Config)?
            .with_client_cert_verifier(verifier.map_err(TlsError::Authority)?)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(TlsError::Config)?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Config)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(TlsError::Config)?;
        Ok(Self { server: Arc::new(server), client: Arc::new(client) })
    }
}
