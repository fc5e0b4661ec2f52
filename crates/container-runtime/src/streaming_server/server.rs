//! The HTTP server of CRI streaming.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use http::{HeaderMap, StatusCode, header};
use hyper_util::rt::TokioIo;
use streaming::spdy::{Session, Side};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tracing::Instrument;

use super::spdy_wire::{self, ExpectedStreams};
use super::wire::wire;
use super::{forward, process, websocket};
use crate::state::Runtime;
use crate::tickets::Ticket;

const VERSION_HEADER: &str = "x-stream-protocol-version";
/// Maximum size of a client's message.
const MESSAGE_BYTES_MAX: usize = 32 << 20;

/// Listens on the loopback interface; the kubelet runs on the same host and proxies streams.
pub(crate) async fn start(runtime: Arc<Runtime>) -> std::io::Result<JoinHandle<()>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    runtime.tickets.set_address(listener.local_addr()?);
    let span = tracing::Span::current();
    let in_span = middleware::from_fn(move |request: Request, next: Next| next.run(request).instrument(span.clone()));
    let app = Router::new().route("/{verb}/{token}", any(take)).layer(in_span).with_state(runtime);
    let task = async move {
        if let Err(error) = axum::serve(listener, app).await {
            tracing::error!(%error, "the streaming server failed");
        }
    };
    Ok(tokio::spawn(task.in_current_span()))
}

async fn take(
    State(runtime): State<Arc<Runtime>>,
    Path((_verb, token)): Path<(String, String)>,
    request: Request,
) -> Response {
    let upgrade = text(request.headers(), header::UPGRADE.as_str()).to_ascii_lowercase();
    if upgrade != "websocket" && upgrade != "spdy/3.1" {
        return (StatusCode::BAD_REQUEST, "unable to upgrade: missing upgrade headers in request").into_response();
    }
    let Some(ticket) = runtime.tickets.take(&token) else {
        return (StatusCode::NOT_FOUND, "the ticket is unknown, used or void").into_response();
    };
    if upgrade == "websocket" {
        by_websocket(runtime, ticket, request).await
    } else {
        by_spdy(runtime, ticket, request)
    }
}

async fn by_websocket(runtime: Arc<Runtime>, ticket: Ticket, request: Request) -> Response {
    let (mut parts, _) = request.into_parts();
    let socket = match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
        Ok(socket) => socket.max_message_size(MESSAGE_BYTES_MAX).max_frame_size(MESSAGE_BYTES_MAX),
        Err(rejection) => return rejection.into_response(),
    };
    match ticket {
        Ticket::PortForward(request) => {
            let ports = request.port.iter().filter_map(|port| u16::try_from(*port).ok()).collect();
            socket
                .protocols(websocket::FORWARD.iter().copied())
                .on_upgrade(move |socket| websocket::forward(socket, runtime, request.pod_sandbox_id, ports))
        }
        ticket => socket.protocols(websocket::PROCESS.iter().copied()).on_upgrade(move |socket| async move {
            let (ends, wire) = wire();
            let run = tokio::spawn(run(runtime, ticket, wire).in_current_span());
            websocket::process(socket, ends).await;
            finish(run).await;
        }),
    }
}

fn by_spdy(runtime: Arc<Runtime>, ticket: Ticket, mut request: Request) -> Response {
    let known = if matches!(ticket, Ticket::PortForward(_)) { spdy_wire::FORWARD } else { spdy_wire::PROCESS };
    let Some(version) = negotiate(request.headers(), known) else {
        let offer = text(request.headers(), VERSION_HEADER);
        return (StatusCode::FORBIDDEN, format!("unable to upgrade: none of {offer:?} is spoken here")).into_response();
    };
    let upgraded = hyper::upgrade::on(&mut request);
    let task = async move {
        let Ok(connection) = upgraded.await else { return };
        let session = Session::new(TokioIo::new(connection), Side::Server);
        match ticket {
            Ticket::PortForward(request) => forward::session(session, &runtime, &request.pod_sandbox_id).await,
            ticket => {
                let expected = expected(&ticket);
                let (ends, wire) = wire();
                let run = tokio::spawn(run(runtime, ticket, wire).in_current_span());
                spdy_wire::process(session, ends, expected, version).await;
                finish(run).await;
            }
        }
    };
    tokio::spawn(task.in_current_span());
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "SPDY/3.1")
        .header(VERSION_HEADER, version)
        .body(Body::empty())
        .expect("the response is well formed")
}

async fn run(runtime: Arc<Runtime>, ticket: Ticket, wire: super::wire::Wire) {
    match ticket {
        Ticket::Exec(request) => process::exec(&runtime, request, wire).await,
        Ticket::Attach(request) => process::attach(&runtime, request, wire).await,
        Ticket::PortForward(_) => {}
    }
}

/// Waits up to one second for the exec or attach after its connection was closed, then aborts it.
async fn finish(mut run: JoinHandle<()>) {
    let grace = std::time::Duration::from_secs(1);
    if tokio::time::timeout(grace, &mut run).await.is_err() {
        run.abort();
    }
}

/// Returns the streams that a client opens for a request; with a terminal, one for its size.
fn expected(ticket: &Ticket) -> ExpectedStreams {
    match ticket {
        Ticket::Exec(r) => {
            ExpectedStreams { stdin: r.stdin, stdout: r.stdout, stderr: r.stderr && !r.tty, resize: r.tty }
        }
        Ticket::Attach(r) => {
            ExpectedStreams { stdin: r.stdin, stdout: r.stdout, stderr: r.stderr && !r.tty, resize: r.tty }
        }
        Ticket::PortForward(_) => ExpectedStreams::default(),
    }
}

/// Returns the best common protocol version; a client that offers none uses the first version.
fn negotiate(headers: &HeaderMap, known: &[&'static str]) -> Option<&'static str> {
    let offers: Vec<&str> = headers
        .get_all(VERSION_HEADER)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(str::trim))
        .filter(|offer| !offer.is_empty())
        .collect();
    if offers.is_empty() {
        return known.last().copied();
    }
    known.iter().copied().find(|version| offers.contains(version))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_common_protocol_version_is_chosen() {
        let check = |offers: &[&str], expect: Option<&str>| {
            let mut headers = HeaderMap::new();
            for offer in offers {
                headers.append(VERSION_HEADER, offer.parse().unwrap());
            }
            assert_eq!(negotiate(&headers, spdy_wire::PROCESS), expect, "{offers:?}");
        };
        check(&["channel.k8s.io", "v4.channel.k8s.io"], Some("v4.channel.k8s.io"));
        check(&["v2.channel.k8s.io, channel.k8s.io"], Some("v2.channel.k8s.io"));
        check(&[], Some("channel.k8s.io"));
        check(&["v9.channel.k8s.io"], None);
    }
}
