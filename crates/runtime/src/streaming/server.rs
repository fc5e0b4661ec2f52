//! The port where tickets are taken.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::runtime::Runtime;

/// Listens on the loopback interface; the kubelet is on the same machine and passes streams on.
pub async fn start(runtime: Arc<Runtime>) -> std::io::Result<JoinHandle<()>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    runtime.tickets.set_address(listener.local_addr()?);
    Ok(tokio::spawn(async move {
        let _ = listener;
        std::future::pending::<()>().await;
    }))
}
