//! Connections to members of a remote cluster: TCP, TLS or a Unix socket.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::{RemoteConfig, RemoteError};
use crate::etcd::tls::{TlsError, certificates, key};
use crate::peer::{Address, Stream};
use crate::reloading::ReloadingValue;

/// Client certificate and trusted CAs, read again when the files change.
type ClientTls = Arc<ReloadingValue<Arc<ClientConfig>, TlsError>>;

/// The transport to one member.
#[derive(Clone, Debug)]
pub(super) enum Connector {
    Tcp(Address, Option<ClientTls>),
    Unix(PathBuf),
}

impl Connector {
    /// Returns the connectors of all members.
    pub(super) fn all(config: &RemoteConfig) -> Result<Vec<Self>, RemoteError> {
        let is_secure = config.servers.iter().any(|url| url.starts_with("https://"));
        let tls = is_secure.then(|| client_tls(config)).transpose()?;
        let way = |url: &String| {
            if let Some(path) = url.strip_prefix("unix://") {
                return Ok(Self::Unix(path.into()));
            }
            let address = Address::parse(url).map_err(|_| RemoteError::Server { url: url.clone() })?;
            let tls = tls.clone().filter(|_| address.secure);
            Ok(Self::Tcp(address, tls))
        };
        config.servers.iter().map(way).collect()
    }

    /// Returns the URL with a plain scheme, because this connector handles TLS.
    pub(super) fn plain_url(&self) -> String {
        match self {
            Self::Tcp(address, _) => format!("http://{}", address.authority()),
            Self::Unix(_) => "http://localhost".to_owned(),
        }
    }

    /// Returns the origin of requests.
    pub(super) fn origin(&self, url: &str) -> String {
        match self {
            Self::Tcp(..) => url.to_owned(),
            Self::Unix(_) => self.plain_url(),
        }
    }

    pub(super) async fn connect(self) -> io::Result<TokioIo<Box<dyn Stream>>> {
        let stream: Box<dyn Stream> = match self {
            Self::Unix(path) => Box::new(UnixStream::connect(path).await?),
            Self::Tcp(address, tls) => {
                let tcp = TcpStream::connect((address.host.as_str(), address.port)).await?;
                tcp.set_nodelay(true)?;
                match tls {
                    None => Box::new(tcp),
                    Some(tls) => {
                        let name = ServerName::try_from(address.host).map_err(io::Error::other)?;
                        Box::new(TlsConnector::from(tls.get()).connect(name, tcp).await?)
                    }
                }
            }
        };
        Ok(TokioIo::new(stream))
    }
}

fn client_tls(config: &RemoteConfig) -> Result<ClientTls, TlsError> {
    let (ca_file, identity) = (config.ca_file.clone(), config.identity.clone());
    let files = ca_file.iter().chain(identity.iter().flat_map(|(cert, key)| [cert, key])).cloned().collect();
    let make = move || client_config(ca_file.as_ref(), identity.as_ref()).map(Arc::new);
    Ok(Arc::new(ReloadingValue::new(files, make)?))
}

fn client_config(ca_file: Option<&PathBuf>, identity: Option<&(PathBuf, PathBuf)>) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca_file {
        let (added, _) = roots.add_parsable_certificates(certificates(path)?);
        if added == 0 {
            return Err(TlsError::Roots { path: path.clone() });
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for the default versions")
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((cert, key_file)) => builder
            .with_client_auth_cert(certificates(cert)?, key(key_file)?)
            .map_err(|source| TlsError::Pair { path: cert.clone(), source })?,
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}
