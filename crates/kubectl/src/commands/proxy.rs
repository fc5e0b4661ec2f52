//! `kubectl proxy`: a local HTTP server that passes requests to the API server with the user's credentials.

mod filter;
mod server;

use std::io::Write;

use tokio::net::{TcpListener, UnixListener};

use filter::Filter;
use server::Server;

use crate::command::{Command, Flag, Group};
use crate::failure::go_io_error;
use crate::{Context, Failure, Invocation};

pub static COMMAND: Command = Command {
    name: "proxy",
    group: Group::Troubleshooting,
    summary: "Run a proxy to the Kubernetes API server",
    description: "Creates a proxy server or application-level gateway between localhost and the Kubernetes API server. It also allows serving static content over specified HTTP path. All incoming data enters through one port and gets forwarded to the remote Kubernetes API server port, except for the path matching the static content path.",
    examples: "  # To proxy all of the Kubernetes API and nothing else
  kubectl proxy --api-prefix=/
  
  # To proxy only part of the Kubernetes API and also some static files
  # You can get pods info with 'curl localhost:8001/api/v1/pods'
  kubectl proxy --www=/my/files --www-prefix=/static/ --api-prefix=/api/
  
  # To proxy the entire Kubernetes API at a different root
  # You can get pods info with 'curl localhost:8001/custom/api/v1/pods'
  kubectl proxy --api-prefix=/custom/
  
  # Run a proxy to the Kubernetes API server on port 8011, serving static content from ./local/www/
  kubectl proxy --port=8011 --www=./local/www/
  
  # Run a proxy to the Kubernetes API server on an arbitrary local port
  # The chosen port for the server will be output to stdout
  kubectl proxy --port=0
  
  # Run a proxy to the Kubernetes API server, changing the API prefix to k8s-api
  # This makes e.g. the pods API available at localhost:8001/k8s-api/v1/pods/
  kubectl proxy --api-prefix=/k8s-api",
    usage: "kubectl proxy [--port=PORT] [--www=static-dir] [--www-prefix=prefix] [--api-prefix=prefix] [options]",
    flags: &[&[
        Flag::text(
            "accept-hosts",
            r#"^localhost$,^127\.0\.0\.1$,^\[::1\]$"#,
            "Regular expression for hosts that the proxy should accept.",
        ),
        Flag::text("accept-paths", "^.*", "Regular expression for paths that the proxy should accept."),
        Flag::text("address", "127.0.0.1", "The IP address on which to serve on."),
        Flag::text("api-prefix", "/", "Prefix to serve the proxied API under."),
        Flag::bool(
            "append-server-path",
            "If true, enables automatic path appending of the kube context server path to each request.",
        ),
        Flag::bool(
            "disable-filter",
            "If true, disable request filtering in the proxy. This is dangerous, and can leave you vulnerable to XSRF attacks, when used with an accessible port.",
        ),
        Flag::duration(
            "keepalive",
            "0s",
            "keepalive specifies the keep-alive period for an active network connection. Set to 0 to disable keepalive.",
        ),
        Flag::int("port", "8001", "The port on which to run the proxy. Set to 0 to pick a random port.").short('p'),
        Flag::text(
            "reject-methods",
            "^$",
            "Regular expression for HTTP methods that the proxy should reject (example --reject-methods='POST,PUT,PATCH'). ",
        ),
        Flag::text(
            "reject-paths",
            "^/api/.*/pods/.*/exec,^/api/.*/pods/.*/attach",
            "Regular expression for paths that the proxy should reject. Paths specified here will be rejected even accepted by --accept-paths.",
        ),
        Flag::text("unix-socket", "", "Unix socket on which to run the proxy.").short('u'),
        Flag::text("www", "", "Also serve static files from the given directory under the specified prefix.")
            .short('w'),
        Flag::text(
            "www-prefix",
            "/static/",
            "Prefix to serve static files under, if static file directory is specified.",
        )
        .short('P'),
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
        let address = format!("{}:{}", invocation.text("address"), invocation.int("port"));
        let listener = TcpListener::bind(&address)
            .await
            .map_err(|error| Failure::new(format!("listen tcp {address}: bind: {}", go_io_error(&error))))?;
        announce(context, &listener.local_addr()?.to_string())?;
        return server.serve_tcp(listener).await;
    }
    if std::fs::symlink_metadata(socket).is_ok_and(|it| std::os::unix::fs::FileTypeExt::is_socket(&it.file_type())) {
        std::fs::remove_file(socket)?;
    }
    let listener = UnixListener::bind(socket)
        .map_err(|error| Failure::new(format!("listen unix {socket}: bind: {}", go_io_error(&error))))?;
    std::fs::set_permissions(socket, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    announce(context, socket)?;
    server.serve_unix(listener).await
}

fn announce(context: &Context, address: &str) -> Result<(), Failure> {
    let mut out = context.out();
    writeln!(out, "Starting to serve on {address}")?;
    Ok(out.flush()?)
}
