//! Where the API server is, how to trust it and who to be: as a value, from a kubeconfig, or as a pod finds it.

mod kubeconfig;

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::Uri;
use machinery::Value;

pub use crate::transport::Secret;
pub use kubeconfig::{Kubeconfig, KubeconfigError};

/// How to reach an API server.
#[derive(Clone, Debug)]
pub struct Config {
    /// `https://host:6443`, perhaps with a path.
    pub server: Uri,
    /// The namespace of those who name none.
    pub namespace: String,
    /// Whom to trust, and the certificate to show.
    pub tls: Tls,
    /// Who to be, apart from the certificate.
    pub credential: Credential,
    /// An HTTP proxy to go through.
    pub proxy: Option<Uri>,
    /// On whose behalf to act.
    pub impersonate: Option<Impersonate>,
}

/// How to make connections secret and sure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Who vouches for the server; whom the system trusts if absent.
    pub certificate_authority: Option<Pem>,
    /// Take any server for the right one.
    pub insecure_skip_verify: bool,
    /// The name that the server's certificate must have, if it is not the host in the address.
    pub server_name: Option<String>,
    /// The certificate to show, and its key.
    pub client: Option<(Pem, Pem)>,
}

/// Certificates or a key in PEM. A file is read again when it was written again.
#[derive(Clone, PartialEq, Eq)]
pub enum Pem {
    /// The text itself.
    Inline(Bytes),
    /// A file that holds it.
    File(PathBuf),
}

/// How to show who we are.
#[derive(Clone, Debug, Default)]
pub enum Credential {
    /// Not at all, or by certificate.
    #[default]
    None,
    /// By a token.
    Token(Secret),
    /// By a token that a file holds, read again when the file was written again.
    TokenFile {
        /// The file.
        path: PathBuf,
        /// What to show if there is no file.
        fallback: Option<Secret>,
    },
    /// By name and password, for proxies that want them.
    Basic {
        /// The name.
        username: String,
        /// The password.
        password: Secret,
    },
    /// By what a program prints.
    Exec(Exec),
}

/// A program that prints credentials.
#[derive(Clone, Debug, Default)]
pub struct Exec {
    /// `client.authentication.k8s.io/v1` or `v1beta1`.
    pub api_version: String,
    /// The program.
    pub command: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// What its environment has besides ours.
    pub env: Vec<(String, String)>,
    /// What to tell people who do not have it.
    pub install_hint: String,
    /// Whether it is told about the cluster.
    pub provide_cluster_info: bool,
    /// Whether it may talk to a person.
    pub interactive: Interactive,
    /// What the cluster's configuration holds for it; `null` for nothing.
    pub cluster_config: Value,
}

/// Whether a credential plug-in may use standard input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interactive {
    /// It never does.
    Never,
    /// It does if there is a terminal.
    #[default]
    IfAvailable,
    /// It cannot do without.
    Always,
}

/// On whose behalf requests are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Impersonate {
    /// The name of the user.
    pub user: String,
    /// The identifier of the user, empty if there is none.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// What else is to be known of the user.
    pub extra: Vec<(String, Vec<String>)>,
}

impl Config {
    /// A server without credentials that the system's certificate authorities vouch for.
    pub fn new(server: Uri) -> Self {
        Self {
            server,
            namespace: "default".to_owned(),
            tls: Tls::default(),
            credential: Credential::None,
            proxy: None,
            impersonate: None,
        }
    }

    /// What a pod is given: a host and a port in its environment, and in `directory` the files of its service account.
    pub fn in_cluster(host: &str, port: &str, directory: &Path) -> Result<Self, InClusterError> {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let server = format!("https://{host}:{port}");
        let server = server.parse().map_err(|source| InClusterError::Server { server, source })?;
        let token = directory.join("token");
        if !token.exists() {
            return Err(InClusterError::NoToken(token));
        }
        let namespace = std::fs::read_to_string(directory.join("namespace")).unwrap_or_default();
        let namespace = namespace.trim();
        Ok(Self {
            namespace: if namespace.is_empty() { "default".to_owned() } else { namespace.to_owned() },
            tls: Tls { certificate_authority: Some(Pem::File(directory.join("ca.crt"))), ..Tls::default() },
            credential: Credential::TokenFile { path: token, fallback: None },
            ..Self::new(server)
        })
    }
}

/// Why a process does not find a cluster around it.
#[derive(Debug, thiserror::Error)]
pub enum InClusterError {
    /// Host and port are no address.
    #[error("{server:?} is no address of a server")]
    Server {
        /// What they make.
        server: String,
        /// Why.
        source: http::uri::InvalidUri,
    },
    /// There is no token, so that this is no pod with a service account.
    #[error("there is no service account token at {0}")]
    NoToken(PathBuf),
}

impl Tls {
    /// All certificates and keys.
    pub fn sources(&self) -> impl Iterator<Item = &Pem> {
        let client = self.client.iter().flat_map(|(certificate, key)| [certificate, key]);
        self.certificate_authority.iter().chain(client)
    }
}

impl Pem {
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Inline(_) => None,
            Self::File(path) => Some(path),
        }
    }

    /// What to call it in an error: its file, or what it is for.
    pub(crate) fn describe(&self, what: &str) -> String {
        match self {
            Self::Inline(_) => what.to_owned(),
            Self::File(path) => format!("{what} in {}", path.display()),
        }
    }

    /// The contents as a `-data` field carries them; `None` if the file cannot be read.
    pub(crate) fn base64(&self) -> Option<String> {
        match self {
            Self::Inline(bytes) => Some(BASE64.encode(bytes)),
            Self::File(path) => std::fs::read(path).ok().map(|bytes| BASE64.encode(bytes)),
        }
    }
}

impl std::fmt::Debug for Pem {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Inline(_) => out.write_str("Inline(…)"),
            Self::File(path) => out.debug_tuple("File").field(path).finish(),
        }
    }
}
