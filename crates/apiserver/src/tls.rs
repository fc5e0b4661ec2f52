//! The server's certificate and the authority of its clients.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use auth::User;
use auth::x509::Subject;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::state::now;

/// Where certificates are.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// `--cert-dir`: where the server makes its own.
    pub cert_dir: PathBuf,
    /// `--tls-cert-file`.
    pub certificate: Option<PathBuf>,
    /// `--tls-private-key-file`.
    pub key: Option<PathBuf>,
    /// `--client-ca-file`.
    pub client_ca: Option<PathBuf>,
}

/// Why TLS cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{0} cannot be used")]
    File(PathBuf, #[source] io::Error),
    /// A file has no certificate or key in it.
    #[error("{0} holds no usable PEM")]
    Pem(PathBuf, #[source] rustls::pki_types::pem::Error),
    /// Only one of certificate and key is given.
    #[error("--tls-cert-file and --tls-private-key-file go together")]
    Half,
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

/// What a server shows and asks of its clients. Makes a certificate if none is given.
pub fn server_config(files: &Files, names: &[String], addresses: &[IpAddr]) -> Result<ServerConfig, Error> {
    let (certificate, key) = match (&files.certificate, &files.key) {
        (Some(certificate), Some(key)) => (certificate.clone(), key.clone()),
        (None, None) => own_certificate(&files.cert_dir, names, addresses)?,
        _ => return Err(Error::Half),
    };
    let chain = certificates(&certificate)?;
    let key = PrivateKeyDer::from_pem_file(&key).map_err(|error| Error::Pem(key, error))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let builder = match &files.client_ca {
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
    let mut config = builder.with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Whom a verified client certificate names.
pub fn user_of(certificate: &CertificateDer<'_>) -> Option<User> {
    Subject::read(certificate, now()).ok()?.user()
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let pem = |error| Error::Pem(file.to_owned(), error);
    CertificateDer::pem_file_iter(file).map_err(pem)?.collect::<Result<_, _>>().map_err(pem)
}

/// The certificate that the server made for itself, made now if it is the first time.
fn own_certificate(folder: &Path, names: &[String], addresses: &[IpAddr]) -> Result<(PathBuf, PathBuf), Error> {
    let (certificate, key) = (folder.join("apiserver.crt"), folder.join("apiserver.key"));
    if certificate.is_file() && key.is_file() {
        return Ok((certificate, key));
    }
    let file = |path: &Path| {
        let path = path.to_owned();
        move |error| Error::File(path, error)
    };
    fs::create_dir_all(folder).map_err(file(folder))?;
    let mut all: Vec<String> = names.to_vec();
    all.extend(addresses.iter().map(ToString::to_string));
    let made = rcgen::generate_simple_self_signed(all)?;
    write_secret(&key, &made.signing_key.serialize_pem())?;
    fs::write(&certificate, made.cert.pem()).map_err(file(&certificate))?;
    Ok((certificate, key))
}

/// Makes a key that nobody else can read.
pub fn write_new_key(file: &Path) -> Result<(), Error> {
    write_secret(file, &rcgen::KeyPair::generate()?.serialize_pem())
}

/// Writes what only the server may read.
fn write_secret(file: &Path, text: &str) -> Result<(), Error> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let written = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file);
    let written = written.and_then(|mut opened| opened.write_all(text.as_bytes()));
    written.map_err(|error| Error::File(file.to_owned(), error))
}
