//! Server certificate verification by the rules of Go's `crypto/x509`, which `caBundle` and kubeconfig files rely on.
//!
//! | a certificate of the bundle | Go | webpki alone |
//! |---|---|---|
//! | is the server's certificate | trusted, regardless of its issuer and of being a CA | needs its issuer, and must not be a CA |
//! | is not a CA | verifies no other certificate | verifies whatever its key signed |
//! | has expired | verifies no other certificate | its validity is ignored |

use std::collections::HashSet;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, ExtendedKeyPurpose, RootCertStore, SignatureScheme};
use x509_parser::prelude::{FromDer, Validity, X509Certificate, X509Version};

/// Verifies server certificates against a bundle of trusted ones.
#[derive(Debug)]
pub(super) struct BundleVerifier {
    provider: Arc<CryptoProvider>,
    /// SHA-256 of every certificate in the bundle: a server that presents one of them needs no issuer.
    trusted: HashSet<[u8; 32]>,
    /// The CA certificates of the bundle.
    cas: Vec<CertificateAuthority>,
}

#[derive(Debug)]
struct CertificateAuthority {
    anchor: TrustAnchor<'static>,
    validity: Validity,
}

impl BundleVerifier {
    /// Returns a verifier; `None` if no certificate can be parsed. As in Go, unparseable certificates are skipped;
    /// distributions ship some.
    pub(super) fn new(provider: Arc<CryptoProvider>, bundle: Vec<CertificateDer<'static>>) -> Option<Self> {
        let (mut trusted, mut cas) = (HashSet::new(), Vec::new());
        for certificate in bundle {
            let Ok((_, parsed)) = X509Certificate::from_der(&certificate) else { continue };
            trusted.insert(fingerprint(&certificate));
            if !may_issue(&parsed) {
                continue;
            }
            let validity = parsed.validity().clone();
            let mut store = RootCertStore::empty();
            if store.add(certificate.clone()).is_ok() {
                cas.extend(
                    store.roots.into_iter().map(|anchor| CertificateAuthority { anchor, validity: validity.clone() }),
                );
            }
        }
        (!trusted.is_empty()).then_some(Self { provider, trusted, cas })
    }

    /// Returns the CAs of the bundle that are valid at a time.
    fn valid_cas(&self, now: UnixTime) -> RootCertStore {
        let valid = self.cas.iter().filter(|ca| check_validity(&ca.validity, now).is_ok());
        RootCertStore { roots: valid.map(|ca| ca.anchor.clone()).collect() }
    }
}

impl ServerCertVerifier for BundleVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        if self.trusted.contains(&fingerprint(end_entity)) {
            check_server_certificate(end_entity, now)?;
        } else {
            // DEVIATION: a server certificate that is itself a CA is rejected unless it is in the bundle; Go accepts it
            // from a trusted issuer.
            let algorithms = self.provider.signature_verification_algorithms.all;
            let roots = self.valid_cas(now);
            verify_server_cert_signed_by_trust_anchor(&parsed, &roots, intermediates, now, algorithms)?;
        }
        verify_server_name(&parsed, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn fingerprint(certificate: &CertificateDer<'_>) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, certificate).as_ref());
    bytes
}

/// Whether a certificate of the bundle may issue others. Version 1 certificates have no extensions that could restrict
/// it.
fn may_issue(certificate: &X509Certificate<'_>) -> bool {
    let signs = match certificate.key_usage() {
        Ok(usage) => usage.is_none_or(|usage| usage.value.key_cert_sign()),
        Err(_) => false,
    };
    signs && (certificate.version() != X509Version::V3 || certificate.is_ca())
}

/// Checks validity period and extended key usage of a server certificate that is trusted directly.
fn check_server_certificate(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), CertificateError> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    check_validity(parsed.validity(), now)?;
    let usage = parsed.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
    if usage.is_none_or(|usage| usage.value.any || usage.value.server_auth) {
        return Ok(());
    }
    Err(CertificateError::InvalidPurposeContext { required: ExtendedKeyPurpose::ServerAuth, presented: Vec::new() })
}

fn check_validity(validity: &Validity, now: UnixTime) -> Result<(), CertificateError> {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < validity.not_before.timestamp() {
        return Err(CertificateError::NotValidYet);
    }
    if now > validity.not_after.timestamp() {
        return Err(CertificateError::Expired);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{
        BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
        date_time_ymd,
    };
    use rustls::crypto::aws_lc_rs;

    use super::*;

    const NAME: &str = "hook.ns.svc";
    /// The end of 2025. Certificates are valid in 2025 and 2026 unless a case specifies otherwise.
    const NOW: u64 = 1_767_000_000;

    struct Ca {
        der: CertificateDer<'static>,
        issuer: Issuer<'static, KeyPair>,
    }

    fn params(common_name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, common_name);
        (params.not_before, params.not_after) = (date_time_ymd(2025, 1, 1), date_time_ymd(2027, 1, 1));
        params
    }

    fn ca(adjust: impl FnOnce(&mut CertificateParams)) -> Ca {
        let mut params = params("ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        adjust(&mut params);
        let key = KeyPair::generate().unwrap();
        let der = params.self_signed(&key).unwrap().der().clone();
        Ca { der, issuer: Issuer::new(params, key) }
    }

    fn server_params(adjust: impl FnOnce(&mut CertificateParams)) -> CertificateParams {
        let mut params = params("server");
        params.subject_alt_names = vec![rcgen::SanType::DnsName(NAME.try_into().unwrap())];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        adjust(&mut params);
        params
    }

    fn signed(ca: &Ca, adjust: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        let key = KeyPair::generate().unwrap();
        server_params(adjust).signed_by(&key, &ca.issuer).unwrap().der().clone()
    }

    fn self_signed(adjust: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        server_params(adjust).self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn expired(params: &mut CertificateParams) {
        (params.not_before, params.not_after) = (date_time_ymd(2024, 1, 1), date_time_ymd(2025, 1, 1));
    }

    fn make_ca(params: &mut CertificateParams) {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }

    /// Checks the verification result of a server certificate with a bundle.
    #[track_caller]
    fn check(server: &CertificateDer<'_>, name: &str, bundle: &[&CertificateDer<'static>], expect: &str) {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let bundle = bundle.iter().map(|certificate| (*certificate).clone()).collect();
        let verifier = BundleVerifier::new(provider, bundle).expect("the bundle holds certificates");
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW));
        let found = match verifier.verify_server_cert(server, &[], &name, &[], now) {
            Ok(_) => "trusted".to_owned(),
            Err(rustls::Error::InvalidCertificate(error)) => match error {
                CertificateError::NotValidForNameContext { .. } => "NotValidForName".to_owned(),
                CertificateError::ExpiredContext { .. } => "Expired".to_owned(),
                CertificateError::InvalidPurposeContext { .. } => "InvalidPurpose".to_owned(),
                other => format!("{other:?}"),
            },
            Err(other) => format!("{other:?}"),
        };
        assert_eq!(found, expect);
    }

    #[test]
    fn server_certificate_is_trusted_if_a_ca_of_the_bundle_issued_it() {
        let (issuer, other) = (ca(|_| ()), ca(|params| params.distinguished_name.push(DnType::CommonName, "other")));
        let server = signed(&issuer, |_| ());
        check(&server, NAME, &[&issuer.der], "trusted");
        check(&server, NAME, &[&other.der, &issuer.der], "trusted");
        check(&server, NAME, &[&other.der], "UnknownIssuer");
        check(&server, "other.ns.svc", &[&issuer.der], "NotValidForName");
        check(&signed(&issuer, expired), NAME, &[&issuer.der], "Expired");
        let client = |params: &mut CertificateParams| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        };
        check(&signed(&issuer, client), NAME, &[&issuer.der], "InvalidPurpose");
    }

    #[test]
    fn server_certificate_that_is_in_the_bundle_needs_no_issuer() {
        let issuer = ca(|_| ());
        let forms = [signed(&issuer, |_| ()), self_signed(|_| ()), self_signed(make_ca), signed(&issuer, make_ca)];
        for server in &forms {
            check(server, NAME, &[server], "trusted");
            check(server, NAME, &[&issuer.der, server], "trusted");
            check(server, "other.ns.svc", &[server], "NotValidForName");
        }
        for late in [signed(&issuer, expired), self_signed(expired)] {
            check(&late, NAME, &[&late], "Expired");
        }
        let early = self_signed(|params| params.not_before = date_time_ymd(2026, 6, 1));
        check(&early, NAME, &[&early], "NotValidYet");
        let client = self_signed(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]);
        check(&client, NAME, &[&client], "InvalidPurpose");
        check(&self_signed(|_| ()), NAME, &[&forms[1]], "UnknownIssuer");
    }

    #[test]
    fn only_a_valid_ca_of_the_bundle_verifies_other_certificates() {
        let leaf = ca(|params| params.is_ca = IsCa::NoCa);
        let encipherment = ca(|params| params.key_usages = vec![KeyUsagePurpose::KeyEncipherment]);
        for issuer in [leaf, encipherment, ca(expired)] {
            check(&signed(&issuer, |_| ()), NAME, &[&issuer.der], "UnknownIssuer");
        }
        let signing = ca(|params| params.key_usages = vec![KeyUsagePurpose::KeyCertSign]);
        check(&signed(&signing, |_| ()), NAME, &[&signing.der], "trusted");
    }

    #[test]
    fn bundle_without_certificates_is_rejected() {
        let provider = Arc::new(aws_lc_rs::default_provider());
        assert!(BundleVerifier::new(provider, vec![CertificateDer::from(vec![0x30, 0])]).is_none());
    }
}
