//! The state of the proxy: shared by all connections, and per port.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Settings;
use super::balance::Spread;
use super::metrics::Metrics;
use super::request_id::RequestIds;
use super::request_limit::RequestLimit;
use super::tls::ServerTls;
use super::upstream::Upstreams;
use crate::routing::{ListenAddress, Listener};

/// Shared by all connections.
pub(super) struct Shared {
    pub settings: Settings,
    pub metrics: Metrics,
    pub spread: Spread,
    pub request_ids: RequestIds,
    /// Requests in flight of all connections.
    pub requests: RequestLimit,
    /// Limits mirrored requests in flight.
    pub mirrors: Arc<Semaphore>,
}

/// The listener that a port serves now. A request keeps the value that it started with.
pub(super) struct Served {
    pub listener: Listener,
    pub tls: Option<ServerTls>,
    pub upstreams: Arc<Upstreams>,
}

/// Protocols below HTTP. Open connections are drained when it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mode {
    pub tls: bool,
    pub proxy_protocol: bool,
}

/// One open port.
pub(super) struct Port {
    /// The key of the listener in the table.
    pub address: ListenAddress,
    served: RwLock<Arc<Served>>,
    mode: Mutex<(Mode, CancellationToken)>,
    /// Ends the accept loops and drains connections.
    pub drain: CancellationToken,
    /// Closes upgraded connections.
    pub close: CancellationToken,
    /// Upgraded connections.
    pub tunnels: TaskTracker,
}

impl Shared {
    pub(super) fn new(settings: Settings) -> Shared {
        let mirrors = Arc::new(Semaphore::new(settings.mirrors_max));
        Shared {
            requests: RequestLimit::new(settings.requests_max),
            settings,
            metrics: Metrics::default(),
            spread: Spread::default(),
            request_ids: RequestIds::default(),
            mirrors,
        }
    }
}

impl Served {
    pub(super) fn mode(&self) -> Mode {
        Mode { tls: self.listener.tls.is_some(), proxy_protocol: self.listener.proxy_protocol }
    }
}

impl Port {
    pub(super) fn new(address: ListenAddress, served: Served) -> Port {
        let drain = CancellationToken::new();
        Port {
            address,
            mode: Mutex::new((served.mode(), drain.child_token())),
            served: RwLock::new(Arc::new(served)),
            drain,
            close: CancellationToken::new(),
            tunnels: TaskTracker::new(),
        }
    }

    /// Returns the current listener.
    pub(super) fn served(&self) -> Arc<Served> {
        Arc::clone(&self.served.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the listener for a new connection, and the token that drains the connection.
    pub(super) fn admit(&self) -> (Arc<Served>, CancellationToken) {
        let mode = self.mode.lock().unwrap_or_else(PoisonError::into_inner);
        (self.served(), mode.1.clone())
    }

    /// Replaces the listener.
    pub(super) fn replace(&self, served: Served) {
        let mut mode = self.mode.lock().unwrap_or_else(PoisonError::into_inner);
        if mode.0 != served.mode() {
            mode.1.cancel();
            *mode = (served.mode(), self.drain.child_token());
        }
        *self.served.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(served);
    }
}
