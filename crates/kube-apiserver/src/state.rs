//! Shared state of all requests.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;

use crate::admission::Admission;
use crate::aggregation::Aggregation;
use crate::audit::Audit;
use crate::authentication::Authenticators;
use crate::authorization::Authorization;
use crate::flow_control::Fairness;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::mount::Mount;
use crate::openapi_cache::OpenApiCache;
use crate::proxy::Kubelets;
use crate::startup::Startup;
use crate::storage::Storage;

/// The shared state of all requests.
pub struct State {
    pub storage: Arc<Storage>,
    pub filters: Filters,
    pub admission: Admission,
    /// Group versions served by extension API servers.
    pub aggregation: Arc<Aggregation>,
    /// Kubelet connection settings.
    pub kubelets: Kubelets,
    /// The address in discovery documents, for clients outside the cluster.
    pub external_address: String,
    /// The address in the endpoints of the Service `kubernetes`, if the server is advertised.
    pub advertised: Option<SocketAddr>,
    /// Becomes true when the server shuts down.
    pub ending: watch::Sender<bool>,
    /// The cached OpenAPI documents.
    pub documents: OpenApiCache,
    /// Minimum duration of a watch without a `timeoutSeconds` parameter.
    pub watch_time: Duration,
    /// The completed startup steps.
    pub startup: Arc<Startup>,
    pub health: Health,
    pub metrics: Arc<Metrics>,
    /// A handler of the embedding binary for other paths.
    pub mount: OnceLock<Mount>,
    /// The span of this server, the parent of the spans of its requests.
    pub span: tracing::Span,
}

/// The settings and state of the handler chain.
pub struct Filters {
    pub authenticators: Authenticators,
    pub authorization: Arc<Authorization>,
    /// API priority and fairness.
    pub fairness: Arc<Fairness>,
    pub audit: Audit,
    /// Timeout of requests that are not long-running.
    pub request_timeout: Duration,
}

impl State {
    /// Waits until the server shuts down.
    pub fn ending(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ending = self.ending.subscribe();
        async move {
            // The sender is only dropped with the server.
            let _ = ending.wait_for(|is_ending| *is_ending).await;
        }
    }
}
