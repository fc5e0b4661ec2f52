//! Client certificate verification. The handshake accepts any certificate whose key the client proves to own. The
//! identity is only trusted if a CA signed the certificate. So a client with an unknown certificate gets a 401 instead
//! of a closed connection.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};

use super::Error;

/// A client CA.
pub(super) struct CertificateAuthority(Arc<dyn ClientCertVerifier>);

/// The handshake verifier, which accepts any certificate.
#[derive(Debug)]
pub(super) struct AnyCertificateVerifier {
    hints: Vec<DistinguishedName>,
    provider: Arc<CryptoProvider>,
}

impl CertificateAuthority {
    /// Reads the CA certificates of a file.
    pub(super) fn read(file: &Path, provider: &Arc<CryptoProvider>) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in component_base::read_certificates(file)? {
            roots.add(certificate)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        Ok(Self(verifier.map_err(|error| Error::Verifier(file.to_owned(), error))?))
    }

    /// Whether the certificate chain is currently valid and signed by this CA.
    pub(super) fn vouches_for(&self, own: &CertificateDer<'_>, between: &[CertificateDer<'_>]) -> bool {
        self.0.verify_client_cert(own, between, UnixTime::now()).is_ok()
    }
}

impl AnyCertificateVerifier {
    /// Creates a verifier that sends the CAs' subjects as hints to clients with several certificates.
    pub(super) fn new(cas: [&Option<CertificateAuthority>; 2], provider: Arc<CryptoProvider>) -> Self {
        let hints = cas.into_iter().flatten().flat_map(|one| one.0.root_hint_subjects().to_vec()).collect();
        Self { hints, provider }
    }
}

impl ClientCertVerifier for AnyCertificateVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
