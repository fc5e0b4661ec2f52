//! The stored objects: the served kinds, the store, and the watch cache that follows it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use admission::CachedObject;
use api::core::service::allocation::Config;
use api::kind::{Kind, Persistence};
use api::view::SERVICE_NAME;
use api_registry::conversion::refreshed;
use apimachinery::status::Status;
use apimachinery::{GroupResource, Value};
use client::shared_objects;
use mvcc::{Reply, Revision, Txn};
use store::client::ClientError;

use crate::backend::{Directory, Pools};
use crate::encrypted_store::{self, Store};
use crate::kind_table::Table;
use crate::metrics::{FormattedLabels, Metrics, head, sample};
use crate::post_write::FollowerProgress;
use crate::storage_format::Layout;
use crate::watch_cache::{Cache, Entry};

/// Maximum time that a request waits for the watch cache to catch up with the store.
pub const CACHE_TIMEOUT: Duration = Duration::from_secs(3);

/// The kinds and objects of a server.
pub struct Storage {
    /// The kinds that are currently served, including custom resources.
    pub table: RwLock<Arc<Table>>,
    pub store: Arc<Store>,
    /// The keys of objects in the store.
    pub layout: Layout,
    /// The watch cache.
    pub cache: Arc<Cache>,
    /// Cluster IP and node port ranges.
    pub ranges: Config,
    /// The internal kind of node port allocations.
    pub ports: Kind,
    /// The highest revision that this server wrote.
    pub written: AtomicI64,
    /// Progress of the tasks that process writes, such as the CRD controller.
    pub followers: FollowerProgress,
    /// Connections of outgoing requests to webhooks and extension API servers.
    pub backends: Pools,
    pub metrics: Arc<Metrics>,
}

impl Storage {
    pub fn table(&self) -> Arc<Table> {
        self.table.read().expect("no holder panics").clone()
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

    /// Returns a cached object as a read returns it. It is shared and has no managedFields.
    pub fn object(&self, resource: GroupResource, namespace: &str, name: &str) -> Option<CachedObject> {
        let table = self.table();
        let kind = table.kind(resource.group, resource.plural)?;
        self.cache.kind_cache(kind).get(&key(kind, namespace, name)).map(|entry| self.shared(kind, &entry))
    }

    /// Returns the cached objects of a namespace, or of all if it is empty.
    pub fn objects(&self, resource: GroupResource, namespace: &str) -> Vec<CachedObject> {
        let table = self.table();
        let Some(kind) = table.kind(resource.group, resource.plural) else { return Vec::new() };
        self.cache.kind_cache(kind).list(namespace, |_| true).iter().map(|entry| self.shared(kind, entry)).collect()
    }

    /// Returns complete copies of cached objects: the named one, or all of a namespace if `name` is empty.
    pub fn stored(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Vec<Value> {
        let table = self.table();
        let Some(kind) = table.kind(group, plural) else { return Vec::new() };
        let kind_cache = self.cache.kind_cache(kind);
        let entries = match name {
            "" => kind_cache.list(namespace, |_| true),
            name => kind_cache.get(&key(kind, namespace, name)).into_iter().collect(),
        };
        entries.iter().map(|entry| refreshed(kind, entry.object())).collect()
    }

    /// Applies the current CRD to a custom resource.
    fn shared(&self, kind: &Kind, entry: &Entry) -> CachedObject {
        if kind.is_custom() {
            return shared_objects::new_shared_object(refreshed(kind, entry.object())).into();
        }
        self.cache.known(entry).into()
    }

    /// Appends the numbers of stored objects in the Prometheus text format.
    pub fn print_metrics(&self, out: &mut String) {
        let table = self.table();
        let kinds = || table.kinds.iter().filter(|kind| matches!(kind.persistence, Persistence::Stored { .. }));
        let help = "Number of stored objects.";
        head("apiserver_storage_objects", help, "gauge", out);
        for kind in kinds() {
            let resource = kind.qualified_resource();
            let labels = FormattedLabels::of([("resource", resource.as_str())]);
            sample("apiserver_storage_objects", &labels, self.cache.kind_cache(kind).len(), out);
        }
        head("apiserver_resource_objects", help, "gauge", out);
        for kind in kinds() {
            let labels = FormattedLabels::of([("group", kind.group.as_str()), ("resource", kind.plural.as_str())]);
            sample("apiserver_resource_objects", &labels, self.cache.kind_cache(kind).len(), out);
        }
        head(
            "apiserver_watch_cache_resource_version",
            "Resource version up to which the watch cache is current.",
            "gauge",
            out,
        );
        sample("apiserver_watch_cache_resource_version", &FormattedLabels::of([]), self.cache.reached(), out);
    }
}

impl Directory for Storage {
    fn service(&self, namespace: &str, name: &str) -> Option<Value> {
        self.stored("", "services", namespace, name).pop()
    }

    fn slices(&self, namespace: &str, service: &str) -> Vec<Value> {
        let table = self.table();
        let Some(kind) = table.kind("discovery.k8s.io", "endpointslices") else { return Vec::new() };
        let own = self.cache.kind_cache(kind).list(namespace, |entry| entry.label(SERVICE_NAME) == Some(service));
        own.iter().map(|entry| entry.object()).collect()
    }
}

/// Returns an object's key below its kind.
fn key(kind: &Kind, namespace: &str, name: &str) -> String {
    if kind.is_namespaced() { format!("{namespace}/{name}") } else { name.to_owned() }
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
