//! The CRI server on a unix socket.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use node_api::cri::v1::image_service_server::ImageServiceServer;
use node_api::cri::v1::runtime_service_server::RuntimeServiceServer;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::image_service::Images;
use crate::state::Runtime;
use crate::{cri_service, streaming_server};

/// Maximum message size; the largest are pod configurations and lists of all objects.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Grace period of requests in progress at shutdown; event streams never complete.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// The server failed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot listen on {path}")]
    Socket {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot listen for streams")]
    Streaming(#[source] std::io::Error),
    #[error("the CRI server failed")]
    Transport(#[source] tonic::transport::Error),
}

/// Serves a runtime on a socket until `stop` completes; containers keep running.
pub async fn serve(
    runtime: Arc<Runtime>,
    socket: &Path,
    ready: impl FnOnce(),
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let failed = |source| ServeError::Socket { path: socket.to_owned(), source };
    if let Some(dir) = socket.parent() {
        std::fs::create_dir_all(dir).map_err(failed)?;
    }
    // The socket of a killed predecessor is replaced.
    let listener = sys::listen_own(socket).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let listener = UnixListener::from_std(listener).map_err(failed)?;
    let streams = streaming_server::start(Arc::clone(&runtime)).await.map_err(ServeError::Streaming)?;
    let limited = RuntimeServiceServer::new(cri_service::Runtime(Arc::clone(&runtime)))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let span = tracing::Span::current();
    let server = Server::builder()
        .trace_fn(move |_| span.clone())
        .add_service(limited)
        .add_service(ImageServiceServer::new(Images(runtime)).max_encoding_message_size(MESSAGE_BYTES_MAX));
    ready();
    let (stop_sender, stopping) = tokio::sync::oneshot::channel();
    let stop = async {
        stop.await;
        // A failed send means that the server has already stopped.
        let _ = stop_sender.send(());
    };
    let overdue = async {
        let _ = stopping.await;
        tokio::time::sleep(STOP_GRACE).await;
    };
    let served = tokio::select! {
        served = server.serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop) => served,
        () = overdue => Ok(()),
    };
    streams.abort();
    // The next server creates a new socket.
    let _ = std::fs::remove_file(socket);
    served.map_err(ServeError::Transport)
}
