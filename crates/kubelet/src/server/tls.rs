//! The certificate of the server, and whom its clients' certificates name.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};

use crate::bootstrap::Purpose;
use crate::config::Config;

/// Why TLS cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or written.
    #[error("{0} cannot be used")]
    File(PathBuf, #[source] std::io::Error),
    /// A file has no certificate or key in it.
    #[error("{0} holds no usable PEM")]
    Pem(PathBuf, #[source] rustls::pki_types::pem::Error),
    /// A certificate could not be made.
    #[error("a certificate cannot be made")]
    Make(#[from] rcgen::Error),
    /// Certificate and key do not fit.
    #[error("the certificate cannot be used")]
    Rustls(#[from] rustls::Error),
    /// The authority of clients cannot be used.
    #[error("the authority of clients cannot be used")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// The certificate that is shown now. Clones share it.
#[derive(Clone, Debug)]
pub struct Shown(Arc<Mutex<Arc<CertifiedKey>>>);

impl Shown {
    /// What is given, what was signed for it before, or what it makes for itself.
    pub fn new(config: &Config, addresses: &[String]) -> Result<Self, TlsError> {
        let signed = Purpose::Serving(Vec::new()).file(&config.cert_dir);
        let (certificate, key) = match &config.serving {
            Some(given) => given.clone(),
            None if config.server_tls_bootstrap && signed.is_file() => (signed.clone(), signed),
            // DEVIATION: until its certificate is signed, a kubelet that asks for one shows one of its own; upstream shows none.
            None => own(&config.cert_dir, &config.node_name, addresses)?,
        };
        Ok(Self(Arc::new(Mutex::new(Arc::new(certified(&certificate, &key)?)))))
    }

    /// Shows what is in a file from now on.
    pub fn replace(&self, file: &Path) -> Result<(), TlsError> {
        let fresh = Arc::new(certified(file, file)?);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn certified(certificate: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(certificate)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| TlsError::Pem(key.to_owned(), error))?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    Ok(CertifiedKey::from_der(chain, key, &provider)?)
}

/// What the server shows, and asks of its clients.
pub fn config(config: &Config, shown: Shown) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match &config.client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(file)? {
                roots.add(certificate)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            // Others may prove who they are by a token.
            builder.with_client_cert_verifier(verifier.allow_unauthenticated().build()?)
        }
    };
    let mut server = builder.with_cert_resolver(Arc::new(shown));
    // Streams are upgraded connections, which only the older protocol has.
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(server)
}

/// Whom a verified certificate names.
pub fn user_of(certificate: &CertificateDer<'_>) -> Option<auth::User> {
    auth::x509::Subject::read(certificate, driver::clock::now()).ok()?.user()
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = |error| TlsError::Pem(file.to_owned(), error);
    CertificateDer::pem_file_iter(file).map_err(pem)?.collect::<Result<_, _>>().map_err(pem)
}

/// The certificate that the kubelet made for itself, made now if it is the first time.
fn own(dir: &Path, node: &str, addresses: &[String]) -> Result<(PathBuf, PathBuf), TlsError> {
    let (certificate, key) = (dir.join("kubelet.crt"), dir.join("kubelet.key"));
    if certificate.is_file() && key.is_file() {
        return Ok((certificate, key));
    }
    let file = |path: &Path| {
        let path = path.to_owned();
        move |error| TlsError::File(path, error)
    };
    fs::create_dir_all(dir).map_err(file(dir))?;
    let names: Vec<String> = std::iter::once(node.to_owned()).chain(addresses.iter().cloned()).collect();
    let made = rcgen::generate_simple_self_signed(names)?;
    let opened = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&key);
    let written = opened.and_then(|mut opened| opened.write_all(made.signing_key.serialize_pem().as_bytes()));
    written.map_err(file(&key))?;
    fs::write(&certificate, made.cert.pem()).map_err(file(&certificate))?;
    Ok((certificate, key))
}
