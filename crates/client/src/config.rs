//! Client configuration: server, TLS and credentials, from a kubeconfig or a pod's environment.

mod kubeconfig;
mod plugin_policy;
mod proxy;
mod secret;

use std::path::{Path, PathBuf};

use apimachinery::Value;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::Uri;

pub use kubeconfig::{Kubeconfig, KubeconfigError, NamedConfig, Selection};
pub use plugin_policy::{PluginDenied, PluginPolicy, PluginPolicyError};
pub use proxy::{ProxyVariableError, proxy_from_environment};
pub use secret::Secret;

#[derive(Clone, Debug)]
pub struct Config {
    /// `https://host:6443`, with an optional path.
    pub server: Uri,
    /// The default namespace.
    pub namespace: String,
    /// The CA and the client certificate.
    pub tls: Tls,
    /// The credential in addition to the client certificate.
    pub credential: Credential,
    /// The URL of an HTTP proxy.
    pub proxy: Option<Uri>,
    pub impersonate: Option<Impersonate>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The CA certificates; the system's if `None`.
    pub certificate_authority: Option<Pem>,
    /// Accept any server certificate.
    pub insecure_skip_verify: bool,
    /// The expected name in the server's certificate, if it is not the host of the URL.
    pub server_name: Option<String>,
    /// The client certificate and its key.
    pub client: Option<(Pem, Pem)>,
}

/// Certificates or a key in PEM. A file is reloaded when it changes.
#[derive(Clone, PartialEq, Eq)]
pub enum Pem {
    Inline(Bytes),
    File(PathBuf),
}

#[derive(Clone, Debug, Default)]
pub enum Credential {
    /// No credential, or the client certificate only.
    #[default]
    None,
    /// A bearer token.
    Token(Secret),
    /// A bearer token from a file, which is reloaded when it changes.
    TokenFile {
        path: PathBuf,
        /// The token if the file does not exist.
        fallback: Option<Secret>,
    },
    /// Basic authentication, for proxies that require it.
    Basic {
        username: String,
        /// Never part of a log or message.
        password: Secret,
    },
    /// A credential plugin.
    Exec(Exec),
}

/// A credential plugin: an executable that prints an ExecCredential.
#[derive(Clone, Debug, Default)]
pub struct Exec {
    /// `client.authentication.k8s.io/v1` or `v1beta1`.
    pub api_version: String,
    pub command: PathBuf,
    pub args: Vec<String>,
    /// Additional environment variables.
    pub env: Vec<(String, String)>,
    /// The message for users if the executable is missing.
    pub install_hint: String,
    /// Whether the plugin receives the cluster information.
    pub provide_cluster_info: bool,
    /// Whether the plugin may use the terminal.
    pub interactive: Interactive,
    /// The plugin's configuration in the cluster's extension; `null` for none.
    pub cluster_config: Value,
    /// Whether the executable may run.
    pub policy: PluginPolicy,
    /// Whether the process reads standard input itself.
    pub stdin_in_use: bool,
}

/// Whether a credential plugin may use standard input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interactive {
    Never,
    /// If standard input is a terminal.
    #[default]
    IfAvailable,
    /// The plugin fails without a terminal.
    Always,
}

/// The impersonated user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Impersonate {
    pub user: String,
    /// The UID; empty for none.
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: Vec<(String, Vec<String>)>,
}

impl Config {
    /// Returns a configuration without credentials that trusts the system's CAs.
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

    /// Returns the in-cluster configuration: host and port from the environment, and the service account files in
    /// `directory`.
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

#[derive(Debug, thiserror::Error)]
pub enum InClusterError {
    /// Host and port are not a valid address.
    #[error("{server:?} is not a valid server address")]
    Server {
        /// The resulting URL.
        server: String,
        source: http::uri::InvalidUri,
    },
    /// The token file does not exist, so the process is not in a pod with a service account.
    #[error("no service account token at {0}")]
    NoToken(PathBuf),
}

impl Tls {
    /// Returns all certificates and keys.
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

    /// Returns a description for errors: the file, or `what`.
    pub(crate) fn describe(&self, what: &str) -> String {
        match self {
            Self::Inline(_) => what.to_owned(),
            Self::File(path) => format!("{what} in {}", path.display()),
        }
    }

    /// Returns the contents in base64, as in a `-data` field; `None` if the file cannot be read.
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
