//! Verification of a backend's certificate by its subject alternative names instead of the server name.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};
use x509_parser::extensions::GeneralName;

use crate::routing::AlternativeName;

/// Accepts certificates that a trusted CA signed and that contain one of the names.
#[derive(Debug)]
pub(super) struct AlternativeNameVerifier {
    /// Verifies signatures of the handshake.
    pub inner: Arc<WebPkiServerVerifier>,
    pub roots: Arc<RootCertStore>,
    pub names: Vec<AlternativeName>,
}

impl ServerCertVerifier for AlternativeNameVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let algorithms = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.all;
        rustls::client::verify_server_cert_signed_by_trust_anchor(
            &ParsedCertificate::try_from(end_entity)?,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        match has_name(end_entity, &self.names) {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::NotValidForName.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Whether the certificate contains one of the names.
fn has_name(certificate: &[u8], names: &[AlternativeName]) -> bool {
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else { return false };
    let Ok(Some(carried)) = parsed.subject_alternative_name() else { return false };
    let is_wanted = |carried: &GeneralName<'_>| match carried {
        GeneralName::DNSName(carried) => names.iter().any(|name| match name {
            AlternativeName::Dns(name) => is_same_host(carried, name),
            AlternativeName::Uri(_) => false,
        }),
        GeneralName::URI(carried) => names.contains(&AlternativeName::Uri((*carried).to_owned())),
        _ => false,
    };
    carried.value.general_names.iter().any(is_wanted)
}

/// Whether a DNS name of a certificate matches the expected one. A wildcard matches one label, on either side.
fn is_same_host(carried: &str, wanted: &str) -> bool {
    let (carried, wanted) = (carried.to_ascii_lowercase(), wanted.to_ascii_lowercase());
    let covers = |pattern: &str, name: &str| {
        let rest = pattern.strip_prefix("*.").zip(name.split_once('.'));
        rest.is_some_and(|(suffix, (label, rest))| !label.is_empty() && suffix == rest)
    };
    carried == wanted || covers(&carried, &wanted) || covers(&wanted, &carried)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    #[test]
    fn certificate_must_carry_one_of_the_names() {
        let mut params = CertificateParams::new(vec!["a.test".to_owned(), "*.b.test".to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::URI("spiffe://test/a".try_into().unwrap()));
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let check = |names: &[AlternativeName], expect: bool| {
            assert_eq!(has_name(certificate.der(), names), expect, "{names:?}");
        };
        let dns = |name: &str| AlternativeName::Dns(name.to_owned());
        let uri = |name: &str| AlternativeName::Uri(name.to_owned());
        check(&[dns("A.test")], true);
        check(&[dns("x.b.test")], true);
        check(&[dns("y.x.b.test")], false);
        check(&[dns("*.test")], true);
        check(&[dns("c.test")], false);
        check(&[uri("spiffe://test/a")], true);
        check(&[uri("spiffe://test/b")], false);
        check(&[dns("c.test"), uri("spiffe://test/a")], true);
        check(&[dns("spiffe://test/a")], false);
    }
}
