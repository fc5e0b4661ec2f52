//! Upgraded connections such as WebSocket: bytes are copied both ways until one side closes.

use std::sync::Arc;

use tracing::Instrument;

use super::connection::ClientConnection;
use super::http1::{OnUpgrade, Upgraded};
use super::upstream::Load;

/// Copies bytes between a client and an endpoint after both have switched protocols. The port closes the tunnel when its
/// drain time is over.
pub(super) fn open(connection: &Arc<ClientConnection>, client: OnUpgrade, mut endpoint: Upgraded, load: Load) {
    let connection = Arc::clone(connection);
    let port = Arc::clone(&connection.port);
    let copying = async move {
        let Some(mut client) = client.upgraded().await else { return };
        tokio::select! {
            // The idle timeout of the client's stream also bounds the tunnel.
            _ = tokio::io::copy_bidirectional(&mut client, &mut endpoint) => {}
            () = connection.port.close.cancelled() => {}
        }
        drop((load, connection));
    };
    port.tunnels.spawn(copying.in_current_span());
}
