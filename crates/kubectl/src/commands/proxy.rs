//! `kubectl proxy`: a local HTTP server that passes requests to the API server with the user's credentials.

mod filter;
mod server;

use std::io::{self, Write};

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use tokio::net::{TcpListener, UnixListener};

use filter::Filter;
use server::Server;

use crate::command::{Command, Flag, Group};
use crate::failure::go_io_error;
use crate::{Context, Failure, Invocation};

/// Connections that wait until they are accepted.
const CONNECTIONS_WAITING_MAX: i32 = 128;

pub(super) static COMMAND: Command = Command {
    name: "proxy",
    group: Group::Troubleshooting,
    summary: "Serve the Kubernetes API on a local address",
    description: "Run a local HTTP server that passes requests to the Kubernetes API server with your credentials. \
         Anyone who can reach the server acts as you, so it listens on 127.0.0.1 and filters requests by default. \
         With --www it also serves a directory of static files.",
    examples: "  # Serve the API on the default port, then list namespaces with 'curl localhost:8001/api/v1/namespaces'
  kubectl proxy

  # Use a free port, which is printed
  kubectl proxy --port=0

  # Serve the API below /cluster/, so that pods are at localhost:8001/cluster/api/v1/pods
  kubectl proxy --api-prefix=/cluster/

  # Serve the files of ./dashboard at /ui/ too
  kubectl proxy --www=./dashboard --www-prefix=/ui/

  # Serve read-only access on a Unix socket
  kubectl proxy --unix-socket=/tmp/kube.sock --reject-methods='POST,PUT,PATCH,DELETE'",
    usage: "kubectl proxy [--port=PORT] [--www=static-dir] [--www-prefix=prefix] [--api-prefix=prefix] [options]",
    flags: &[&[
        Flag::text(
            "accept-hosts",
            r#"^localhost$,^127\.0\.0\.1$,^\[::1\]$"#,
            "Hosts to accept, as comma-separated regular expressions.",
        ),
        Flag::text("accept-paths", "^.*", "Paths to accept, as comma-separated regular expressions."),
        Flag::text("address", "127.0.0.1", "IP address to listen on."),
        Flag::text("api-prefix", "/", "Path below which the API is served."),
        Flag::bool(
            "append-server-path",
            "Put the path of the server in the kubeconfig before the path of each request.",
        ),
        Flag::bool(
            "disable-filter",
            "Accept all requests, which exposes a reachable port to cross-site request forgery (XSRF).",
        ),
        // DEVIATION: `kubectl proxy --keepalive` has no effect: connections to the server always send a keep-alive probe after
        // 30 seconds without traffic.
        Flag::duration("keepalive", "0s", "Accepted for compatibility; idle connections are probed every 30 seconds."),
        Flag::int("port", "8001", "Port to listen on; 0 chooses a free one.").short('p'),
        Flag::text(
            "reject-methods",
            "^$",
            "HTTP methods to reject, as comma-separated regular expressions, for example 'POST,PUT,PATCH'.",
        ),
        Flag::text(
            "reject-paths",
            "^/api/.*/pods/.*/exec,^/api/.*/pods/.*/attach",
            "Paths to reject even if --accept-paths matches, as comma-separated regular expressions.",
        ),
        Flag::text("unix-socket", "", "Unix socket to listen on.").short('u'),
        Flag::text("www", "", "Directory of static files to serve.").short('w'),
        Flag::text("www-prefix", "/static/", "Path below which the static files are served.").short('P'),
    ]],
    run: Some(|context, invocation| Box::pin(run(context, invocation))),
    ..Command::EMPTY
};

async fn run(context: &Context, invocation: &Invocation) -> Result<(), Failure> {
    let socket = invocation.text("unix-socket");
    if invocation.int("port") != 8001 && !socket.is_empty() {
        return Err(Failure::new("cannot set --unix-socket and --port at the same time"));
    }
    let filter = if invocation.bool("disable-filter") {
        if socket.is_empty() {
            context.warn("Request filter disabled, your proxy is vulnerable to XSRF attacks, please be cautious");
        }
        None
    } else {
        Some(Filter::new(
            invocation.text("accept-paths"),
            invocation.text("reject-paths"),
            invocation.text("accept-hosts"),
            invocation.text("reject-methods"),
        )?)
    };
    let mut config = context.config()?.clone();
    if !invocation.bool("append-server-path") {
        let mut parts = config.server.clone().into_parts();
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
        config.server = http::Uri::from_parts(parts).map_err(|error| Failure::new(error.to_string()))?;
    }
    let server = Server::new(
        config,
        filter,
        invocation.text("api-prefix"),
        invocation.text("www"),
        invocation.text("www-prefix"),
    )?;
    if socket.is_empty() {
        let port = invocation.int("port");
        if u16::try_from(port).is_err() {
            return Err(Failure::new(format!("listen tcp: address {port}: invalid port")));
        }
        let address = format!("{}:{port}", invocation.text("address"));
        let listener = TcpListener::bind(&address)
            .await
            .map_err(|error| Failure::new(format!("listen tcp {address}: bind: {}", go_io_error(&error))))?;
        announce(context, &listener.local_addr()?.to_string())?;
        return server.serve_tcp(listener).await;
    }
    if std::fs::symlink_metadata(socket).is_ok_and(|it| std::os::unix::fs::FileTypeExt::is_socket(&it.file_type())) {
        std::fs::remove_file(socket)?;
    }
    let listener = listen_unix(socket)
        .map_err(|error| Failure::new(format!("listen unix {socket}: bind: {}", go_io_error(&error))))?;
    announce(context, socket)?;
    server.serve_unix(listener).await
}

/// Listens on a Unix socket that only its owner may connect to. The file gets the mode of the unbound socket, so that there
/// is no moment at which others could connect.
fn listen_unix(path: &str) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::RWXU)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, CONNECTIONS_WAITING_MAX)?;
    UnixListener::from_std(socket.into())
}

fn announce(context: &Context, address: &str) -> Result<(), Failure> {
    let mut out = context.out();
    writeln!(out, "Starting to serve on {address}")?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn unix_socket_admits_only_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = listen_unix(path.to_str().unwrap()).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o077, 0);
        let (accepted, connected) = tokio::join!(listener.accept(), tokio::net::UnixStream::connect(&path));
        accepted.unwrap();
        connected.unwrap();
    }
}
