//! Connection to the Unix socket of a container runtime.

use std::path::PathBuf;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

/// The connection failed.
#[derive(Debug)]
pub enum ConnectError {
    /// The endpoint is neither `unix:///path` nor an absolute path.
    Endpoint(String),
    /// The runtime does not respond.
    Transport(tonic::transport::Error),
}

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConnectError::Endpoint(given) => {
                write!(f, "container runtime endpoint {given:?} is not unix:///path/to/socket")
            }
            ConnectError::Transport(_) => f.write_str("cannot reach the container runtime"),
        }
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConnectError::Endpoint(_) => None,
            ConnectError::Transport(error) => Some(error),
        }
    }
}

/// Connects to `unix:///path` or `/path`; the clients in [`super::v1`] are created from the channel.
pub async fn connect(endpoint: &str) -> Result<Channel, ConnectError> {
    let path = socket_path(endpoint).ok_or_else(|| ConnectError::Endpoint(endpoint.to_owned()))?;
    let connector = service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    // HTTP/2 requires the :authority header, which has no meaning on a Unix socket.
    Endpoint::from_static("http://localhost").connect_with_connector(connector).await.map_err(ConnectError::Transport)
}

fn socket_path(endpoint: &str) -> Option<PathBuf> {
    let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
    path.starts_with('/').then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_a_unix_url_or_an_absolute_path() {
        let check = |endpoint: &str, expect: Option<&str>| {
            assert_eq!(socket_path(endpoint), expect.map(PathBuf::from), "{endpoint}");
        };
        check("unix:///run/containerd/containerd.sock", Some("/run/containerd/containerd.sock"));
        check("/run/knarr.sock", Some("/run/knarr.sock"));
        check("tcp://127.0.0.1:1", None);
        check("unix://relative.sock", None);
        check("", None);
    }
}
