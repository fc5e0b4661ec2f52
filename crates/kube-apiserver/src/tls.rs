//! TLS of the API server: serving certificates and client CAs, reloaded when their files change.

mod names;
mod peers;

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use apimachinery::time::Time;
use auth::x509::Subject;
pub use component_base::MinVersion;
use component_base::{TlsSettings, read_certificate};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;

use crate::authentication::Peer;
use crate::reload::ReloadedValue;
use client::clock::now;
use names::ServingCertificates;
use peers::CertificateAuthority;

/// Certificate files and TLS settings.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// `--cert-dir`: the directory of the self-signed certificate.
    pub cert_dir: PathBuf,
    /// `--tls-cert-file`.
    pub certificate: Option<PathBuf>,
    /// `--tls-private-key-file`.
    pub key: Option<PathBuf>,
    /// `--client-ca-file`.
    pub client_ca: Option<PathBuf>,
    /// `--requestheader-client-ca-file`.
    pub request_header_ca: Option<PathBuf>,
    /// `--tls-sni-cert-key`.
    pub sni: Vec<Sni>,
    /// `--tls-min-version`.
    pub min_version: MinVersion,
    /// `--tls-cipher-suites`; empty for all secure ones.
    pub cipher_suites: Vec<String>,
}

/// A certificate for certain server names (SNI).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sni {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// DNS names, possibly with a wildcard as the first label. If empty, the names in the certificate apply.
    pub names: Vec<String>,
}

/// Reasons why TLS cannot be configured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the file {0} cannot be read or written")]
    File(PathBuf, #[source] io::Error),
    #[error("--tls-cert-file and --tls-private-key-file must be specified together")]
    IncompletePair,
    /// The self-signed certificate could not be created.
    #[error("failed to create the self-signed serving certificate")]
    Generate(#[from] rcgen::Error),
    /// Certificate and key do not match.
    #[error("the serving certificate cannot be used")]
    Rustls(#[from] rustls::Error),
    /// The client CA file cannot be used.
    #[error("the client CA file {0} contains no usable CA certificate")]
    Verifier(PathBuf, #[source] rustls::server::VerifierBuilderError),
    /// The TLS settings or a certificate are invalid.
    #[error(transparent)]
    Settings(#[from] component_base::TlsError),
}

/// The current TLS configuration; certificates and CAs are reloaded when their files change.
pub struct Tls(ReloadedValue<Offer>);

/// One loaded TLS configuration: serving certificates and client CAs.
pub struct Offer {
    pub config: Arc<ServerConfig>,
    clients: Option<CertificateAuthority>,
    proxies: Option<CertificateAuthority>,
}

impl Tls {
    /// Loads all files. Creates a self-signed certificate if none is configured.
    pub fn new(files: &Files, names: &[String], addresses: &[IpAddr]) -> Result<Self, Error> {
        let pair = match (&files.certificate, &files.key) {
            (Some(certificate), Some(key)) => (certificate.clone(), key.clone()),
            (None, None) => own_certificate(&files.cert_dir, names, addresses)?,
            _ => return Err(Error::IncompletePair),
        };
        let mut watched = vec![pair.0.clone(), pair.1.clone()];
        watched.extend(files.sni.iter().flat_map(|sni| [sni.certificate.clone(), sni.key.clone()]));
        watched.extend(files.client_ca.iter().chain(&files.request_header_ca).cloned());
        let files = files.clone();
        Ok(Self(ReloadedValue::new(watched, move || Offer::read(&files, &pair))?))
    }

    /// Returns the configuration for a new connection.
    pub fn offer(&self) -> Arc<Offer> {
        self.0.current()
    }
}

impl Offer {
    fn read(files: &Files, (certificate, key): &(PathBuf, PathBuf)) -> Result<Self, Error> {
        let settings = TlsSettings { min_version: files.min_version, cipher_suites: files.cipher_suites.clone() };
        let provider = settings.provider()?;
        let mut resolver = ServingCertificates::new(read_certificate(certificate, key, &provider)?);
        for sni in &files.sni {
            resolver.add(read_certificate(&sni.certificate, &sni.key, &provider)?, &sni.names);
        }
        let read_ca = |file: &Option<PathBuf>| {
            file.as_deref().map(|file| CertificateAuthority::read(file, &provider)).transpose()
        };
        let (clients, proxies) = (read_ca(&files.client_ca)?, read_ca(&files.request_header_ca)?);
        let builder = settings.server()?;
        let builder = if clients.is_none() && proxies.is_none() {
            builder.with_no_client_auth()
        } else {
            builder
                .with_client_cert_verifier(Arc::new(peers::AnyCertificateVerifier::new([&clients, &proxies], provider)))
        };
        let mut config = builder.with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), clients, proxies })
    }

    /// Returns the identity of a client by its certificate chain.
    pub fn peer(&self, chain: &[CertificateDer<'_>]) -> Peer {
        let Some((own, between)) = chain.split_first() else { return Peer::default() };
        let subject = || Subject::read(own, now()).ok();
        let trusts = |ca: &Option<CertificateAuthority>| ca.as_ref().is_some_and(|one| one.vouches_for(own, between));
        let user = if trusts(&self.clients) { subject().and_then(Subject::user) } else { None };
        let proxy = if trusts(&self.proxies) { subject().map(|subject| subject.common_name) } else { None };
        let expires = expiry(own);
        Peer { is_unproved: user.is_none() && proxy.is_none(), user, proxy, expires, ..Peer::default() }
    }
}

/// Returns the expiry of a certificate, or `None` if it cannot be parsed, in which case it identifies no user.
fn expiry(certificate: &CertificateDer<'_>) -> Option<Time> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(Time::from_unix(parsed.validity().not_after.timestamp(), 0))
}

/// Returns the paths of the self-signed certificate and key; creates them on first use.
fn own_certificate(dir: &Path, names: &[String], addresses: &[IpAddr]) -> Result<(PathBuf, PathBuf), Error> {
    let (certificate, key) = (dir.join("apiserver.crt"), dir.join("apiserver.key"));
    if certificate.is_file() && key.is_file() {
        return Ok((certificate, key));
    }
    let file = |path: &Path| {
        let path = path.to_owned();
        move |error| Error::File(path, error)
    };
    fs::create_dir_all(dir).map_err(file(dir))?;
    let mut all: Vec<String> = names.to_vec();
    all.extend(addresses.iter().map(ToString::to_string));
    let made = rcgen::generate_simple_self_signed(all)?;
    write_secret(&key, &made.signing_key.serialize_pem())?;
    fs::write(&certificate, made.cert.pem()).map_err(file(&certificate))?;
    Ok((certificate, key))
}

/// Writes a new private key with mode 0600.
pub fn write_new_key(file: &Path) -> Result<(), Error> {
    write_secret(file, &rcgen::KeyPair::generate()?.serialize_pem())
}

/// Writes a file that only its owner can read.
fn write_secret(file: &Path, text: &str) -> Result<(), Error> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let written = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file);
    let written = written.and_then(|mut opened| opened.write_all(text.as_bytes()));
    written.map_err(|error| Error::File(file.to_owned(), error))
}

#[cfg(test)]
mod key_exchange_tests;
