//! TLS termination: certificates by SNI name.

use std::collections::BTreeMap;
use std::sync::Arc;

use component_base::TlsSettings;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::hosts;
use crate::routing::{Certificate, HostPattern, TlsTermination};

/// The TLS configuration of a listener for new handshakes.
#[derive(Debug, Clone)]
pub(super) struct ServerTls {
    pub config: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
    /// The part of the table that this was built from.
    source: TlsTermination,
}

#[derive(Debug, thiserror::Error)]
enum CertificateError {
    #[error("the certificate chain or the key is not valid PEM")]
    Pem(#[from] rustls::pki_types::pem::Error),
    #[error("the certificate chain is empty")]
    Empty,
    #[error("the certificate cannot be used with its key")]
    Unusable(#[from] rustls::Error),
}

#[derive(Debug)]
struct Certificates {
    by_name: BTreeMap<HostPattern, Arc<CertifiedKey>>,
    default: Option<Arc<CertifiedKey>>,
}

impl ServerTls {
    /// Builds the configuration, or keeps the current one with its sessions if nothing changed. A certificate that
    /// cannot be used is left out.
    pub(super) fn build(
        source: &TlsTermination,
        current: Option<&ServerTls>,
    ) -> Result<ServerTls, component_base::TlsError> {
        if let Some(current) = current.filter(|current| current.source == *source) {
            return Ok(current.clone());
        }
        let settings = TlsSettings::default();
        let provider = settings.provider()?;
        let mut by_name = BTreeMap::new();
        for (pattern, certificate) in &source.certificates {
            let known = current.and_then(|current| current.known(pattern, certificate));
            if let Some(key) = known.or_else(|| parse(pattern, certificate, &provider)) {
                by_name.insert(pattern.clone(), key);
            }
        }
        let default = source.default.as_ref().and_then(|default| parse(&HostPattern::Any, default, &provider));
        let certificates = Arc::new(Certificates { by_name, default });
        let resolver: Arc<dyn ResolvesServerCert> = certificates.clone();
        let mut config = settings.server_without_client_certificates()?.with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(ServerTls { config: Arc::new(config), certificates, source: source.clone() })
    }

    /// Whether a connection that was opened for `sni` may send requests for `host`: both names belong to the same
    /// listener and have the same certificate.
    pub(super) fn allows(&self, sni: Option<&str>, host: &str) -> bool {
        let listener = |name: &str| hosts::find_pattern(&self.source.isolated, name);
        if listener(sni.unwrap_or_default()) != listener(host) {
            return false;
        }
        if sni.is_some_and(|sni| sni.eq_ignore_ascii_case(host)) {
            return true;
        }
        let of_sni = self.certificates.find(sni.unwrap_or_default());
        let of_host = self.certificates.find(host);
        match (of_sni, of_host) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one.cert == other.cert,
            (_, None) => true,
            (None, Some(_)) => false,
        }
    }

    fn known(&self, pattern: &HostPattern, certificate: &Arc<Certificate>) -> Option<Arc<CertifiedKey>> {
        let is_same = self.source.certificates.get(pattern) == Some(certificate);
        if is_same { self.certificates.by_name.get(pattern).cloned() } else { None }
    }
}

impl Certificates {
    fn find(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        hosts::find(&self.by_name, name).map(|(_, key)| key).or(self.default.as_ref())
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hosts::normalize(hello.server_name().unwrap_or_default())?;
        self.find(&name).cloned()
    }
}

fn parse(name: &HostPattern, certificate: &Certificate, provider: &CryptoProvider) -> Option<Arc<CertifiedKey>> {
    match certified_key(certificate, provider) {
        Ok(key) => Some(Arc::new(key)),
        Err(error) => {
            tracing::warn!(?name, error = &error as &dyn std::error::Error, "a certificate cannot be used");
            None
        }
    }
}

fn certified_key(certificate: &Certificate, provider: &CryptoProvider) -> Result<CertifiedKey, CertificateError> {
    let chain = CertificateDer::pem_slice_iter(&certificate.chain_pem).collect::<Result<Vec<_>, _>>()?;
    if chain.is_empty() {
        return Err(CertificateError::Empty);
    }
    let key = PrivateKeyDer::from_pem_slice(&certificate.key_pem)?;
    Ok(CertifiedKey::from_der(chain, key, provider)?)
}
