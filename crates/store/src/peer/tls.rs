//! Mutual TLS between members.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};

use crate::reloading::ReloadingValue;

/// Client and server configuration, read again when the certificate files change.
#[derive(Clone)]
pub struct Tls(Source);

#[derive(Clone)]
enum Source {
    Fixed(Sides),
    Files(Arc<ReloadingValue<Sides, TlsError>>),
}

#[derive(Clone)]
struct Sides {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

/// The certificates are unusable.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{file} cannot be read as PEM")]
    File {
        file: String,
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    #[error("the peer certificates are unusable")]
    Config(#[source] rustls::Error),
    /// The CA is unusable.
    #[error("the peer CA certificate is unusable")]
    Ca(#[source] rustls::server::VerifierBuilderError),
}

impl Tls {
    /// Uses a certificate, its key and the CA of peer certificates. Changed files are read again for the next
    /// connection.
    pub fn from_files(certificate: &Path, key: &Path, ca: &Path) -> Result<Self, TlsError> {
        let files = [certificate, key, ca].map(Path::to_owned);
        let [certificate, key, ca] = files.clone();
        let renewed = ReloadingValue::new(files.to_vec(), move || Sides::from_files(&certificate, &key, &ca))?;
        Ok(Self(Source::Files(Arc::new(renewed))))
    }

    /// Like [`Tls::from_files`], with data that was already read.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        ca: Vec<CertificateDer<'static>>,
    ) -> Result<Self, TlsError> {
        Ok(Self(Source::Fixed(Sides::new(chain, key, ca)?)))
    }

    /// Uses a certificate and key for encryption only; peer certificates are not verified.
    pub fn unverified(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let (chain, key) = (read_chain(certificate)?, read_key(key)?);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Config)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(TlsError::Config)?;
        let client = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Config)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificateVerifier(provider)))
            .with_no_client_auth();
        Ok(Self(Source::Fixed(Sides { server: Arc::new(server), client: Arc::new(client) })))
    }

    pub(super) fn server(&self) -> Arc<ServerConfig> {
        self.sides().server
    }

    pub(super) fn client(&self) -> Arc<ClientConfig> {
        self.sides().client
    }

    fn sides(&self) -> Sides {
        match &self.0 {
            Source::Fixed(sides) => sides.clone(),
            Source::Files(renewed) => renewed.get(),
        }
    }
}

impl Sides {
    fn from_files(certificate: &Path, key: &Path, ca: &Path) -> Result<Self, TlsError> {
        Self::new(read_chain(certificate)?, read_key(key)?, read_chain(ca)?)
    }

    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        ca: Vec<CertificateDer<'static>>,
    ) -> Result<Self, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in ca {
            roots.add(certificate).map_err(TlsError::Config)?;
        }
        let roots = Arc::new(roots);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Config)?
            .with_client_cert_verifier(verifier.map_err(TlsError::Ca)?)
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

fn unreadable(path: &Path) -> impl Fn(rustls::pki_types::pem::Error) -> TlsError {
    let file = path.display().to_string();
    move |source| TlsError::File { file: file.clone(), source }
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_file_iter(path).map_err(unreadable(path))?;
    certificates.collect::<Result<_, _>>().map_err(unreadable(path))
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(unreadable(path))
}

/// Accepts any certificate if the peer has its private key.
#[derive(Debug)]
struct AnyCertificateVerifier(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificateVerifier {
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

#[cfg(test)]
mod tests {
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;

    /// Writes a self-signed certificate and its key to files.
    fn pair(dir: &Path, name: &str) -> (std::path::PathBuf, std::path::PathBuf) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
        let (cert, key) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
        std::fs::write(&cert, made.cert.pem()).expect("it is written");
        std::fs::write(&key, made.signing_key.serialize_pem()).expect("it is written");
        (cert, key)
    }

    async fn meet(server: &Tls, client: &Tls) -> bool {
        let (near, far) = tokio::io::duplex(64 << 10);
        let accepted = TlsAcceptor::from(server.server()).accept(near);
        let name = ServerName::try_from("localhost").expect("a name");
        let connected = TlsConnector::from(client.client()).connect(name, far);
        tokio::try_join!(accepted, connected).is_ok()
    }

    #[tokio::test]
    async fn self_signed_members_connect_only_without_verification() {
        let dir = tempfile::tempdir().expect("a directory");
        let ((cert, key), (other_cert, other_key)) = (pair(dir.path(), "one"), pair(dir.path(), "other"));
        let one = Tls::unverified(&cert, &key).expect("usable");
        let other = Tls::unverified(&other_cert, &other_key).expect("usable");
        assert!(meet(&one, &other).await && meet(&other, &one).await);
        let verified = Tls::from_files(&cert, &key, &cert).expect("usable");
        assert!(!meet(&other, &verified).await, "a verifying member rejects an unknown certificate");
    }
}
