//! TLS of the kubelet server: its serving certificate and client certificate verification.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use component_base::{ReloadedValue, TlsSettings, read_certificate, read_certificates};
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::SingleCertAndKey;
use rustls::{RootCertStore, ServerConfig};

use crate::bootstrap::Purpose;
use crate::config::Config;

/// TLS could not be configured.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("failed to read or write {0}")]
    File(PathBuf, #[source] std::io::Error),
    #[error("failed to generate a certificate")]
    Make(#[from] rcgen::Error),
    /// Certificate and key do not match, or a TLS setting is unknown.
    #[error(transparent)]
    Settings(#[from] component_base::TlsError),
    #[error("failed to load the client CA")]
    Clients(#[from] rustls::Error),
    /// The client CA file contains no usable certificate.
    #[error("failed to load the client CA")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// The current TLS configuration; files are read again when they change. Clones share it.
#[derive(Clone)]
pub(super) struct Tls(Arc<Inner>);

struct Inner {
    settings: TlsSettings,
    client_ca: Option<PathBuf>,
    offered: Mutex<ReloadedValue<ServerConfig>>,
}

impl Tls {
    /// Uses the configured certificate, the one signed earlier, or a self-signed one, in this order.
    pub(super) fn new(config: &Config, addresses: &[String]) -> Result<Self, TlsError> {
        let signed = Purpose::Serving(Vec::new()).file(&config.cert_dir);
        let (certificate, key) = match &config.serving {
            Some(given) => given.clone(),
            None if config.server_tls_bootstrap && signed.is_file() => (signed.clone(), signed),
            // DEVIATION: with serverTLSBootstrap, a self-signed certificate is used until the requested one is signed;
            // upstream has no certificate until then.
            None => own(&config.cert_dir, &config.node_name, addresses)?,
        };
        let (settings, client_ca) = (config.tls.clone(), config.client_ca.clone());
        let offered = Mutex::new(followed(&settings, client_ca.clone(), certificate, key)?);
        Ok(Self(Arc::new(Inner { settings, client_ca, offered })))
    }

    /// Returns the configuration for a new connection.
    pub(super) fn current(&self) -> Arc<ServerConfig> {
        self.0.offered.lock().unwrap_or_else(PoisonError::into_inner).current()
    }

    /// Uses the certificate and key in a file from now on.
    pub(super) fn replace(&self, file: &Path) -> Result<(), TlsError> {
        let shared = &self.0;
        let fresh = followed(&shared.settings, shared.client_ca.clone(), file.to_owned(), file.to_owned())?;
        *shared.offered.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }
}

/// Builds a configuration that is rebuilt when one of its files changes.
fn followed(
    settings: &TlsSettings,
    client_ca: Option<PathBuf>,
    certificate: PathBuf,
    key: PathBuf,
) -> Result<ReloadedValue<ServerConfig>, TlsError> {
    let files = [&certificate, &key].into_iter().chain(&client_ca).cloned().collect();
    let settings = settings.clone();
    ReloadedValue::new(files, move || offer(&settings, client_ca.as_deref(), &certificate, &key))
}

/// Builds a configuration from the server's certificate and the client CA.
fn offer(
    settings: &TlsSettings,
    client_ca: Option<&Path>,
    certificate: &Path,
    key: &Path,
) -> Result<ServerConfig, TlsError> {
    let provider = settings.provider()?;
    let certified_key = read_certificate(certificate, key, &provider)?;
    let builder = settings.server()?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in read_certificates(file)? {
                roots.add(certificate)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            // Clients without a certificate may authenticate with a token.
            builder.with_client_cert_verifier(verifier.allow_unauthenticated().build()?)
        }
    };
    let mut server = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified_key)));
    // HTTP/1.1 is offered in addition, since only its connections can be upgraded to streams.
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(server)
}

/// Returns the user of a verified client certificate.
pub(super) fn user_of(certificate: &CertificateDer<'_>) -> Option<auth::User> {
    auth::x509::Subject::read(certificate, component_base::clock::now()).ok()?.user()
}

/// Returns the kubelet's self-signed certificate and key; creates them if they do not exist.
fn own(dir: &Path, node: &str, addresses: &[String]) -> Result<(PathBuf, PathBuf), TlsError> {
    let (certificate, key) = (dir.join("kubelet.crt"), dir.join("kubelet.key"));
    if certificate.is_file() && key.is_file() {
        return Ok((certificate, key));
    }
    let file = |path: &Path| {
        let path = path.to_owned();
        move |error| TlsError::File(path, error)
    };
    sys::create_dirs(dir, 0o700).map_err(file(dir))?;
    let names: Vec<String> = std::iter::once(node.to_owned()).chain(addresses.iter().cloned()).collect();
    let made = rcgen::generate_simple_self_signed(names)?;
    sys::replace_file(&key, made.signing_key.serialize_pem().as_bytes(), 0o600).map_err(file(&key))?;
    sys::replace_file(&certificate, made.cert.pem().as_bytes(), 0o644).map_err(file(&certificate))?;
    Ok((certificate, key))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use component_base::MinVersion;

    use super::*;

    /// Returns the server certificate that a client of this TLS version receives; `None` if the handshake fails.
    fn served_certificate(tls: &Tls, version: &'static rustls::SupportedProtocolVersion) -> Option<Vec<u8>> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let client = rustls::ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[version]);
        let client = client.unwrap().dangerous();
        let client = client.with_custom_certificate_verifier(Arc::new(trust::Everybody(provider)));
        let name = "node".try_into().unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(client.with_no_client_auth()), name).unwrap();
        let mut server = rustls::ServerConnection::new(tls.current()).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let mut wire = Vec::new();
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut wire.as_slice()).unwrap();
            server.process_new_packets().ok()?;
            let mut wire = Vec::new();
            server.write_tls(&mut wire).unwrap();
            client.read_tls(&mut wire.as_slice()).unwrap();
            client.process_new_packets().ok()?;
        }
        Some(client.peer_certificates().unwrap()[0].to_vec())
    }

    /// A verifier that accepts any server certificate.
    mod trust {
        use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
        use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
        use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
        use rustls::{DigitallySignedStruct, Error, SignatureScheme};

        #[derive(Debug)]
        pub(super) struct Everybody(pub std::sync::Arc<CryptoProvider>);

        impl ServerCertVerifier for Everybody {
            fn verify_server_cert(
                &self,
                _: &CertificateDer<'_>,
                _: &[CertificateDer<'_>],
                _: &ServerName<'_>,
                _: &[u8],
                _: UnixTime,
            ) -> Result<ServerCertVerified, Error> {
                Ok(ServerCertVerified::assertion())
            }

            fn verify_tls12_signature(
                &self,
                message: &[u8],
                certificate: &CertificateDer<'_>,
                signed: &DigitallySignedStruct,
            ) -> Result<HandshakeSignatureValid, Error> {
                verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
            }

            fn verify_tls13_signature(
                &self,
                message: &[u8],
                certificate: &CertificateDer<'_>,
                signed: &DigitallySignedStruct,
            ) -> Result<HandshakeSignatureValid, Error> {
                verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
            }

            fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
                self.0.signature_verification_algorithms.supported_schemes()
            }
        }
    }

    fn write_pair(certificate: &Path, key: &Path, name: &str) -> Vec<u8> {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        std::fs::write(certificate, made.cert.pem()).unwrap();
        std::fs::write(key, made.signing_key.serialize_pem()).unwrap();
        made.cert.der().to_vec()
    }

    #[test]
    fn renewed_certificate_is_used_without_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let (certificate, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
        let old = write_pair(&certificate, &key, "old");
        let config = Config { serving: Some((certificate.clone(), key.clone())), ..Config::new("node") };
        let tls = Tls::new(&config, &[]).unwrap();
        assert_eq!(served_certificate(&tls, &rustls::version::TLS13), Some(old));
        let new = write_pair(&certificate, &key, "new");
        let deadline = Instant::now() + Duration::from_secs(30);
        while served_certificate(&tls, &rustls::version::TLS13) != Some(new.clone()) {
            assert!(Instant::now() < deadline, "the server still presents the old certificate");
            std::thread::yield_now();
        }
    }

    #[test]
    fn minimum_tls_version_is_enforced() {
        let dir = tempfile::tempdir().unwrap();
        let check = |min_version: MinVersion, expect: bool| {
            let tls = TlsSettings { min_version, ..TlsSettings::default() };
            let config = Config { cert_dir: dir.path().to_owned(), tls, ..Config::new("node") };
            let tls = Tls::new(&config, &[]).unwrap();
            assert_eq!(served_certificate(&tls, &rustls::version::TLS12).is_some(), expect, "{min_version:?}");
            assert!(served_certificate(&tls, &rustls::version::TLS13).is_some());
        };
        check(MinVersion::Tls12, true);
        check(MinVersion::Tls13, false);
    }

    #[test]
    fn only_configured_cipher_suites_are_offered() {
        let dir = tempfile::tempdir().unwrap();
        let offered = |names: &[&str]| {
            let cipher_suites = names.iter().map(ToString::to_string).collect();
            let tls = TlsSettings { cipher_suites, ..TlsSettings::default() };
            let config = Config { cert_dir: dir.path().to_owned(), tls, ..Config::new("node") };
            Tls::new(&config, &[])
                .map(|tls| served_certificate(&tls, &rustls::version::TLS12).is_some())
                .map_err(|e| e.to_string())
        };
        assert_eq!(offered(&["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"]), Ok(true));
        // The self-signed key is ECDSA, so an RSA suite cannot be negotiated.
        assert_eq!(offered(&["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]), Ok(false));
        assert!(offered(&["TLS_NONSENSE"]).unwrap_err().contains("TLS_NONSENSE"));
    }
}
