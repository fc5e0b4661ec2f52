//! Shared state of all requests.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock, RwLock};
use std::time::{Duration, Instant};

use api::core::service::allocation::Config;
use api::kind::Kind;
use api_registry::strategy::GeneratedIds;
use apimachinery::status::Status;
pub use client::clock::now;
use mvcc::{Reply, Revision, Txn};
use store::client::ClientError;
use tokio::sync::watch;

use crate::admission::Webhooks;
use crate::aggregation::Aggregation;
use crate::audit::Audit;
use crate::authentication::Authenticators;
use crate::authorization::Authorization;
use crate::backend::Pools;
use crate::discovery::OpenApiCache;
use crate::encrypted_store::{self, Store};
use crate::flow_control::Fairness;
use crate::health::Health;
use crate::kind_table::Table;
use crate::metrics::Metrics;
use crate::mount::Mount;
use crate::post_write::FollowerProgress;
use crate::proxy::Kubelets;
use crate::startup::Startup;
use crate::storage::{self, Layout};
use crate::watch_cache::Cache;

/// Maximum time that a request waits for the watch cache to catch up with the store.
pub const CACHE_TIMEOUT: Duration = Duration::from_secs(3);

/// The shared state of all requests.
pub struct State {
    /// The kinds that are currently served, including custom resources.
    pub table: RwLock<Arc<Table>>,
    pub store: Arc<Store>,
    /// The keys of objects in the store.
    pub layout: Layout,
    /// The watch cache.
    pub cache: Arc<Cache>,
    pub authenticators: Authenticators,
    pub authorization: Arc<Authorization>,
    /// Connections of outgoing requests to webhooks and extension API servers.
    pub backends: Pools,
    /// Group versions served by extension API servers.
    pub aggregation: Aggregation,
    /// Progress of the tasks that process writes, such as the CRD controller.
    pub followers: FollowerProgress,
    /// Kubelet connection settings.
    pub kubelets: Kubelets,
    /// The admission plugins in order.
    pub admission: ::admission::Chain,
    /// The admission webhooks.
    pub webhooks: Webhooks,
    /// Cluster IP and node port ranges.
    pub ranges: Config,
    /// The internal kind of node port allocations.
    pub ports: Kind,
    /// The address in discovery documents, for clients outside the cluster.
    pub external_address: String,
    /// The address in the endpoints of the Service `kubernetes`, if the server is advertised.
    pub advertised: Option<SocketAddr>,
    /// Becomes true when the server shuts down.
    pub ending: watch::Sender<bool>,
    /// The cached OpenAPI documents.
    pub documents: OpenApiCache,
    /// Timeout of requests that are not long-running.
    pub request_timeout: Duration,
    /// Minimum duration of a watch without a `timeoutSeconds` parameter.
    pub watch_time: Duration,
    /// API priority and fairness.
    pub fairness: Arc<Fairness>,
    pub audit: Audit,
    pub metrics: Arc<Metrics>,
    /// The highest revision that this server wrote.
    pub written: AtomicI64,
    /// The completed startup steps.
    pub startup: Startup,
    /// The state of the health checks.
    pub health: Health,
    /// A handler of the embedding binary for other paths.
    pub mount: OnceLock<Mount>,
    /// The span of this server, the parent of the spans of its requests.
    pub span: tracing::Span,
}

impl State {
    pub fn table(&self) -> Arc<Table> {
        self.table.read().expect("no holder panics").clone()
    }

    /// Waits until the server shuts down.
    pub fn ending(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ending = self.ending.subscribe();
        async move {
            // The sender is only dropped with the server.
            let _ = ending.wait_for(|is_ending| *is_ending).await;
        }
    }

    /// Submits a transaction. Returns its revision, or `None` if its comparisons failed.
    pub async fn submit(&self, txn: Txn) -> Result<Option<Revision>, Status> {
        let began = Instant::now();
        let outcome = self.store.txn(txn).await.map_err(|error| unavailable(&error))?;
        self.metrics.store_seconds.with(&["txn", ""]).observe(began.elapsed().as_secs_f64());
        match outcome.reply {
            Reply::Txn { succeeded: true, .. } => {
                self.written.fetch_max(outcome.revision, Ordering::Relaxed);
                Ok(Some(outcome.revision))
            }
            _ => Ok(None),
        }
    }

    /// Adds a lease to the transaction of an object if its kind has a TTL.
    pub async fn lease(&self, kind: &Kind, txn: Txn) -> Result<Txn, Status> {
        if !storage::expires(kind) {
            return Ok(txn);
        }
        let lease = self.store.lease().await.map_err(|error| unavailable(&error.into()))?;
        Ok(storage::leased(txn, lease))
    }

    /// Waits until the watch cache contains all writes of this server, since admission reads from the cache.
    pub async fn see_own_writes(&self) -> Result<(), Status> {
        let caught_up = self.cache.wait(self.written.load(Ordering::Relaxed), CACHE_TIMEOUT).await;
        caught_up.map_err(|behind| Status::timeout(&behind.to_string(), 1))
    }

    /// Waits for the cache to catch up if it does not contain a namespace: another server, or a concurrent request, may
    /// just have created it.
    pub async fn see_namespace(&self, name: &str) -> Result<(), Status> {
        let table = self.table();
        let Some(kind) = table.kind("", "namespaces").filter(|_| !name.is_empty()) else { return Ok(()) };
        if self.cache.kind_cache(kind).get(name).is_none() {
            self.catch_up().await?;
        }
        Ok(())
    }

    /// Waits until the cache contains everything that was committed before the call.
    pub async fn catch_up(&self) -> Result<Revision, Status> {
        let revision = self.store.revision().await.map_err(|error| unavailable(&error.into()))?;
        let caught_up = self.cache.wait(revision, CACHE_TIMEOUT).await;
        caught_up.map_err(|behind| Status::timeout(&behind.to_string(), 1))?;
        Ok(revision)
    }
}

/// Converts a store error to a Status.
pub fn unavailable(error: &encrypted_store::Error) -> Status {
    match error {
        encrypted_store::Error::Store(ClientError::Rejected(mvcc::Error::Compacted { .. })) => {
            Status::expired("The resourceVersion for the provided list is too old.")
        }
        encrypted_store::Error::Store(ClientError::Rejected(error)) => Status::internal_error(error),
        encrypted_store::Error::Store(error) => {
            Status::service_unavailable(format!("the store is not available: {error}"))
        }
        encrypted_store::Error::Encryptor { source, .. } => Status::internal_error(format!("{error}: {source}")),
    }
}

/// Returns random values for a new object: its UID and its name suffix.
pub fn generate_ids() -> GeneratedIds {
    GeneratedIds { uid: generate_uid(), suffix: apimachinery::meta::name_suffix(u64::from_le_bytes(random())) }
}

/// Returns a random version 4 UUID.
pub fn generate_uid() -> String {
    uuid(random())
}

/// Returns random bytes from a per-thread buffer, because a call of the generator costs as much for few bytes as for
/// many.
fn random<const N: usize>() -> [u8; N] {
    const AHEAD: usize = 512;
    thread_local! {
        static LEFT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    LEFT.with_borrow_mut(|left| {
        if left.len() < N {
            left.resize(AHEAD.max(N), 0);
            // The generator of the TLS provider fails only if the kernel cannot provide randomness.
            aws_lc_rs::rand::fill(left).expect("the kernel gives random bytes");
        }
        let rest = left.len() - N;
        let drawn = left[rest..].try_into().expect("enough bytes are left");
        left.truncate(rest);
        drawn
    })
}

fn uuid(mut id: [u8; 16]) -> String {
    id[6] = (id[6] & 0x0f) | 0x40;
    id[8] = (id[8] & 0x3f) | 0x80;
    let mut text = String::with_capacity(36);
    for (at, byte) in id.into_iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for digit in [byte >> 4, byte & 0x0f] {
            text.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_unique_version_4_uuids() {
        assert_eq!(uuid([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(uuid([0; 16]), "00000000-0000-4000-8000-000000000000");
        let drawn: std::collections::BTreeSet<String> = (0..1000).map(|_| generate_uid()).collect();
        assert_eq!(drawn.len(), 1000);
    }
}
