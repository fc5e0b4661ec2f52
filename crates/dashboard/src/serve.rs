//! The dashboard alone, over HTTP on the loopback interface.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::Dashboard;
use crate::rejection::Rejection;
use crate::response;

/// Maximum number of connections: several pages of a few users.
const CONNECTIONS_MAX: usize = 256;
/// Timeout for the headers of a request.
const HEADER_TIME: Duration = Duration::from_secs(30);
/// Maximum size of request headers.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Time limit of open requests after `ending`. Streams are aborted.
const GRACE: Duration = Duration::from_secs(1);

/// Serves until `ending` completes.
pub async fn serve(listener: TcpListener, dashboard: Arc<Dashboard>, ending: impl Future<Output = ()>) {
    let ended = CancellationToken::new();
    let ending = async {
        ending.await;
        ended.cancel();
    };
    component_base::accept(listener, CONNECTIONS_MAX, ending, |stream, _, slot| {
        let (dashboard, ended) = (Arc::clone(&dashboard), ended.clone());
        async move {
            connection(stream, dashboard, ended).await;
            drop(slot);
        }
    })
    .await;
}

async fn connection(stream: TcpStream, dashboard: Arc<Dashboard>, ended: CancellationToken) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let dashboard = Arc::clone(&dashboard);
        async move {
            let response = match request.uri().path() {
                "/" => response::moved("/dashboard/"),
                path if Dashboard::is_served(path) => dashboard.serve(request).await,
                _ => response::rejected(&Rejection::NotFound),
            };
            Ok::<_, Infallible>(response)
        }
    });
    let mut serving = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIME)
            .max_buf_size(HEADER_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
    );
    tokio::select! {
        _ = serving.as_mut() => {}
        () = ended.cancelled() => {
            serving.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(GRACE, serving).await;
        }
    }
}
