//! The server's certificates and the authorities of its clients, as their files say now.

mod names;
mod peers;

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use auth::x509::Subject;
use machinery::time::Time;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
pub use serving::MinVersion;
use serving::{TlsSettings, read_certificate};

use crate::authentication::Peer;
use crate::reload::Reloaded;
use crate::state::now;
use names::Shown;
use peers::Authority;

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
    /// `--requestheader-client-ca-file`.
    pub request_header_ca: Option<PathBuf>,
    /// `--tls-sni-cert-key`.
    pub sni: Vec<Sni>,
    /// `--tls-min-version`.
    pub min_version: MinVersion,
    /// `--tls-cipher-suites`; empty for all that are sound.
    pub cipher_suites: Vec<String>,
}

/// A certificate for clients that ask for certain names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sni {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The names, perhaps with a star as their first part; those that the certificate has if there are none.
    pub names: Vec<String>,
}

/// Why TLS cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{0} cannot be used")]
    File(PathBuf, #[source] io::Error),
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
    #[error("{0} holds no usable authority of clients")]
    Verifier(PathBuf, #[source] rustls::server::VerifierBuilderError),
    /// The settings, or a certificate.
    #[error(transparent)]
    Settings(#[from] serving::TlsError),
}

/// TLS as it is offered now: certificates and authorities are read again when their files change.
pub struct Tls(Reloaded<Offer>);

/// What a server shows, and whom it believes.
pub struct Offer {
    /// For handshakes.
    pub config: Arc<ServerConfig>,
    clients: Option<Authority>,
    proxies: Option<Authority>,
}

impl Tls {
    /// Reads everything; makes a certificate if none is given.
    pub fn new(files: &Files, names: &[String], addresses: &[IpAddr]) -> Result<Self, Error> {
        let pair = match (&files.certificate, &files.key) {
            (Some(certificate), Some(key)) => (certificate.clone(), key.clone()),
            (None, None) => own_certificate(&files.cert_dir, names, addresses)?,
            _ => return Err(Error::Half),
        };
        let mut watched = vec![pair.0.clone(), pair.1.clone()];
        watched.extend(files.sni.iter().flat_map(|sni| [sni.certificate.clone(), sni.key.clone()]));
        watched.extend(files.client_ca.iter().chain(&files.request_header_ca).cloned());
        let files = files.clone();
        Ok(Self(Reloaded::new(watched, move || Offer::read(&files, &pair))?))
    }

    /// What is offered to a connection that begins now.
    pub fn offer(&self) -> Arc<Offer> {
        self.0.current()
    }
}

impl Offer {
    fn read(files: &Files, (certificate, key): &(PathBuf, PathBuf)) -> Result<Self, Error> {
        let settings = TlsSettings { min_version: files.min_version, cipher_suites: files.cipher_suites.clone() };
        let provider = settings.provider()?;
        let mut shown = Shown::new(read_certificate(certificate, key, &provider)?);
        for sni in &files.sni {
            shown.add(read_certificate(&sni.certificate, &sni.key, &provider)?, &sni.names);
        }
        let authority =
            |file: &Option<PathBuf>| file.as_deref().map(|file| Authority::read(file, &provider)).transpose();
        let (clients, proxies) = (authority(&files.client_ca)?, authority(&files.request_header_ca)?);
        let builder = settings.server()?;
        let builder = if clients.is_none() && proxies.is_none() {
            builder.with_no_client_auth()
        } else {
            builder.with_client_cert_verifier(Arc::new(peers::Shown::new([&clients, &proxies], provider)))
        };
        let mut config = builder.with_cert_resolver(Arc::new(shown));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), clients, proxies })
    }

    /// Who is at the other end of a connection, by the certificates that it showed.
    pub fn peer(&self, chain: &[CertificateDer<'_>]) -> Peer {
        let Some((own, between)) = chain.split_first() else { return Peer::default() };
        let subject = || Subject::read(own, now()).ok();
        let trusts =
            |authority: &Option<Authority>| authority.as_ref().is_some_and(|one| one.vouches_for(own, between));
        let user = if trusts(&self.clients) { subject().and_then(Subject::user) } else { None };
        let proxy = if trusts(&self.proxies) { subject().map(|subject| subject.common_name) } else { None };
        let expires = expiry(own);
        Peer { is_unproved: user.is_none() && proxy.is_none(), user, proxy, expires, ..Peer::default() }
    }
}

/// When a certificate expires; `None` if it is none, and so proves nothing anyway.
fn expiry(certificate: &CertificateDer<'_>) -> Option<Time> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(Time::from_unix(parsed.validity().not_after.timestamp(), 0))
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

#[cfg(test)]
mod key_exchange_tests;
