//! Exec, attach and port-forward: the runtime serves the streams, and the server proxies the connection.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use node_api::cri::v1;
use tokio::net::TcpStream;
use tracing::Instrument;

use super::{Body, ParsedRequest, Server, plain, text};
use crate::pod::Pod;

/// Timeout of `/run` commands.
const RUN_MAX: Duration = Duration::from_secs(60);

/// Idle timeout of streams without a configured one.
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// Headers that apply to one connection only and are not forwarded.
const OF_A_CONNECTION: &[&str] = &["host", "authorization", "content-length", "transfer-encoding"];

impl Server {
    /// Runs a command in a container, or attaches to its main process.
    pub(super) async fn process(
        &self,
        verb: &str,
        (namespace, pod, container): (&str, &str, &str),
        parsed: &ParsedRequest<'_>,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let (_, found) = match self.find(namespace, pod, container).await {
            Ok(found) => found,
            Err(response) => return response,
        };
        if !found.is_running() {
            let message = format!("container \"{container}\" is not running");
            return text(StatusCode::BAD_REQUEST, &message);
        }
        let either = |a: &str, b: &str| parsed.flag(a) || parsed.flag(b);
        let (stdin, tty) = (either("input", "stdin"), parsed.flag("tty"));
        let (stdout, stderr) = (either("output", "stdout"), either("error", "stderr") && !tty);
        let commands = parsed.query.iter().filter(|(key, _)| key == "command");
        let cmd: Vec<String> = commands.map(|(_, word)| word.clone()).collect();
        let mut runtime = self.context.runtime.runtime.clone();
        if !(stdin || stdout || stderr) {
            return text(StatusCode::BAD_REQUEST, "you must specify at least 1 of stdin, stdout, stderr");
        }
        let url = if verb == "exec" {
            let request = v1::ExecRequest { container_id: found.id, cmd, tty, stdin, stdout, stderr };
            runtime.exec(request).await.map(|response| response.into_inner().url)
        } else {
            let request = v1::AttachRequest { container_id: found.id, stdin, tty, stdout, stderr };
            runtime.attach(request).await.map(|response| response.into_inner().url)
        };
        match url {
            Ok(url) => pass_on(&url, request, self.context.config.streaming_idle).await,
            Err(status) => text(StatusCode::INTERNAL_SERVER_ERROR, status.message()),
        }
    }

    /// Runs a command in a container to completion. Returns its output if it succeeded.
    pub(super) async fn run(
        &self,
        (namespace, pod, container): (&str, &str, &str),
        parsed: &ParsedRequest<'_>,
    ) -> Response<Body> {
        let (_, found) = match self.find(namespace, pod, container).await {
            Ok(found) => found,
            Err(response) => return response,
        };
        // Unlike exec, `/run` takes the command as one parameter.
        let command = parsed.value("cmd");
        let args = command.split(' ').map(str::to_owned).collect();
        match self.context.runtime.exec(&found.id, args, RUN_MAX).await {
            Ok((0, output)) => plain(StatusCode::OK, "application/json", output.into()),
            Ok((code, output)) => {
                let output = String::from_utf8_lossy(&output);
                let failure = format!("command '{command}' exited with {code}: {output}");
                text(StatusCode::INTERNAL_SERVER_ERROR, &failure)
            }
            Err(status) => text(StatusCode::INTERNAL_SERVER_ERROR, status.message()),
        }
    }

    /// Forwards ports of a pod.
    pub(super) async fn port_forward(
        &self,
        namespace: &str,
        pod: &str,
        parsed: &ParsedRequest<'_>,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let Some(known) = self.known.find(namespace, pod) else {
            return text(StatusCode::NOT_FOUND, &format!("pod \"{pod}_{namespace}\" not found"));
        };
        let runtime = match self.observe(Pod(&known).uid()).await {
            Ok(runtime) => runtime,
            Err(response) => return response,
        };
        let Some(sandbox) = runtime.sandbox().filter(|sandbox| sandbox.ready) else {
            return text(StatusCode::BAD_REQUEST, &format!("pod \"{pod}_{namespace}\" does not run"));
        };
        let ports = parsed.query.iter().filter(|(key, _)| key == "port" || key == "ports");
        let port = ports.flat_map(|(_, value)| value.split(',')).filter_map(|port| port.parse().ok()).collect();
        let forward = v1::PortForwardRequest { pod_sandbox_id: sandbox.id.clone(), port };
        match self.context.runtime.runtime.clone().port_forward(forward).await {
            Ok(response) => pass_on(&response.into_inner().url, request, self.context.config.streaming_idle).await,
            Err(status) => text(StatusCode::INTERNAL_SERVER_ERROR, status.message()),
        }
    }
}

/// Forwards a request to the runtime. If the runtime switches protocols, copies bytes in both directions until the
/// stream is idle for `idle_max`; zero disables the timeout.
async fn pass_on(url: &str, mut request: Request<Incoming>, idle_max: Duration) -> Response<Body> {
    let failed =
        |cause: String| text(StatusCode::BAD_GATEWAY, &format!("the runtime's stream cannot be reached: {cause}"));
    let Ok(uri) = url.parse::<Uri>() else { return failed(format!("{url:?} is not a URL")) };
    let address = uri.authority().map_or(String::new(), ToString::to_string);
    let tcp = match TcpStream::connect(&address).await {
        Ok(tcp) => tcp,
        Err(error) => return failed(error.to_string()),
    };
    // Interactive streams need low latency.
    let _ = tcp.set_nodelay(true);
    let (mut sender, connection) = match hyper::client::conn::http1::handshake(TokioIo::new(tcp)).await {
        Ok(pair) => pair,
        Err(error) => return failed(error.to_string()),
    };
    tokio::spawn(connection.with_upgrades().in_current_span());
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut onward = Request::builder().method(request.method()).uri(path).header(header::HOST, &address);
    for (name, value) in request.headers().iter().filter(|(name, _)| !OF_A_CONNECTION.contains(&name.as_str())) {
        onward = onward.header(name, value);
    }
    let onward = match onward.body(Empty::<bytes::Bytes>::new()) {
        Ok(onward) => onward,
        Err(error) => return failed(error.to_string()),
    };
    let mut upstream_response = match sender.send_request(onward).await {
        Ok(upstream_response) => upstream_response,
        Err(error) => return failed(error.to_string()),
    };
    if upstream_response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return upstream_response.map(|body| body.map_err(std::io::Error::other).boxed_unsync());
    }
    let mut response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
    for (name, value) in upstream_response.headers() {
        response = response.header(name, value);
    }
    let slot = request.extensions().get::<Arc<component_base::Slot>>().cloned();
    let (near, far) = (hyper::upgrade::on(&mut request), hyper::upgrade::on(&mut upstream_response));
    let task = async move {
        let _slot = slot;
        let (Ok(near), Ok(far)) = (near.await, far.await) else { return };
        let (near, mut far) = (TokioIo::new(near), TokioIo::new(far));
        let idle_max = if idle_max.is_zero() { FOREVER } else { idle_max };
        // Either side ends the stream by closing it.
        let _ = tokio::io::copy_bidirectional(&mut component_base::Idle::new(near, idle_max), &mut far).await;
    };
    tokio::spawn(task.in_current_span());
    let mut response = response.body(component_base::connection::empty()).expect("the response is well formed");
    response.headers_mut().entry(header::CONNECTION).or_insert(HeaderValue::from_static("Upgrade"));
    response
}

#[cfg(test)]
mod tests {
    use hyper::service::service_fn;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const SWITCHES: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";

    /// A runtime that switches protocols and then sends nothing.
    async fn silent_runtime() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/exec/token", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    read_head(&mut stream).await;
                    stream.write_all(SWITCHES).await.unwrap();
                    let _ = stream.read(&mut [0]).await;
                });
            }
        });
        url
    }

    async fn read_head(stream: &mut TcpStream) {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).await.unwrap();
            head.push(byte[0]);
        }
    }

    /// A client's connection through [`pass_on`], after the protocol switch.
    async fn connect(idle_max: Duration) -> TcpStream {
        let runtime = silent_runtime().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            let serve = |request| {
                let runtime = runtime.clone();
                async move { Ok::<_, std::convert::Infallible>(pass_on(&runtime, request, idle_max).await) }
            };
            let connection = hyper::server::conn::http1::Builder::new();
            connection.serve_connection(TokioIo::new(stream), service_fn(serve)).with_upgrades().await
        });
        let request = b"POST /exec/n/p/c HTTP/1.1\r\nHost: n\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
        client.write_all(request).await.unwrap();
        read_head(&mut client).await;
        client
    }

    #[tokio::test]
    async fn streaming_connection_idle_timeout_closes_a_stream_without_traffic() {
        let mut limited = connect(Duration::from_millis(200)).await;
        let mut unlimited = connect(Duration::ZERO).await;
        let closed = tokio::time::timeout(Duration::from_secs(30), limited.read(&mut [0])).await;
        assert_eq!(closed.expect("the idle stream is closed").unwrap_or(0), 0);
        let open = tokio::time::timeout(Duration::from_millis(600), unlimited.read(&mut [0])).await;
        assert!(open.is_err(), "a stream without a limit stays open");
    }
}
