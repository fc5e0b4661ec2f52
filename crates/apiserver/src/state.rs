//! What every request works with.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use api::core::service::allocation::Config;
use api::kind::Kind;
use machinery::status::Status;
use machinery::time::Time;
use mvcc::{Reply, Revision, Txn};
use registry::write::Draw;
use store::client::ClientError;
use tokio::sync::watch;

use crate::aggregation::Aggregation;
use crate::audit::Audit;
use crate::authentication::Authenticators;
use crate::authorization::Authorization;
use crate::backend::Pools;
use crate::cache::Cache;
use crate::documents::Kept;
use crate::fairness::Fairness;
use crate::followers::Followers;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::proxy::Kubelets;
use crate::sealed::{self, Store};
use crate::startup::Startup;
use crate::storage::{self, Layout};
use crate::table::Table;
use crate::webhooks::Webhooks;

/// How long a request waits for the cache to have what the store has.
pub const CACHE_PATIENCE: Duration = Duration::from_secs(3);

/// What every request works with.
pub struct State {
    /// The kinds that are served now.
    pub table: RwLock<Arc<Table>>,
    /// The truth.
    pub store: Arc<Store>,
    /// Where objects are in it.
    pub layout: Layout,
    /// What is in the store, for reads and watches.
    pub cache: Arc<Cache>,
    /// Who asks.
    pub authenticators: Authenticators,
    /// Who may do what.
    pub authorization: Arc<Authorization>,
    /// Connections of the server's own requests: webhooks, aggregated servers.
    pub backends: Pools,
    /// Versions of groups that others serve.
    pub aggregation: Aggregation,
    /// Tasks that finish what is written.
    pub followers: Followers,
    /// How kubelets are reached.
    pub kubelets: Kubelets,
    /// The plug-ins that change and judge objects, in their order.
    pub admission: registry::admission::Chain,
    /// Those who are asked over the network about writes.
    pub webhooks: Webhooks,
    /// What objects can take.
    pub ranges: Config,
    /// The shelf of node ports that are taken.
    pub ports: Kind,
    /// Where others reach this server.
    pub external_address: String,
    /// Where other machines reach this server, if they do.
    pub advertised: Option<SocketAddr>,
    /// Told when the server is about to stop.
    pub ending: watch::Sender<bool>,
    /// Documents that were asked for.
    pub documents: Kept,
    /// How long a request may take.
    pub request_timeout: Duration,
    /// How long a watch goes on at least whose client does not say.
    pub watch_time: Duration,
    /// Which requests run now.
    pub fairness: Arc<Fairness>,
    /// What is written down about requests.
    pub audit: Audit,
    /// What is measured.
    pub metrics: Arc<Metrics>,
    /// The highest revision that this server wrote.
    pub written: AtomicI64,
    /// How far the server is with what it does once.
    pub startup: Startup,
    /// What the health checks remember.
    pub health: Health,
}

impl State {
    /// The kinds that are served now.
    pub fn table(&self) -> Arc<Table> {
        self.table.read().expect("no holder panics").clone()
    }

    /// Waits until the server is about to stop.
    pub fn ending(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ending = self.ending.subscribe();
        async move {
            // Without a sender there is no server either.
            let _ = ending.wait_for(|is_ending| *is_ending).await;
        }
    }

    /// Submits a transaction: the revision it made, or none if its compares did not hold.
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

    /// The transaction of an object, with a lease if objects of its kind end by themselves.
    pub async fn lease(&self, kind: &Kind, txn: Txn) -> Result<Txn, Status> {
        if !storage::expires(kind) {
            return Ok(txn);
        }
        let lease = self.store.lease().await.map_err(|error| unavailable(&error.into()))?;
        Ok(storage::leased(txn, lease))
    }

    /// Waits until the cache has everything that this server wrote: admission must not judge by less.
    pub async fn see_own_writes(&self) -> Result<(), Status> {
        let caught_up = self.cache.wait(self.written.load(Ordering::Relaxed), CACHE_PATIENCE).await;
        caught_up.map_err(|behind| Status::timeout(&behind.to_string(), 1))
    }

    /// Looks again for a namespace that the cache does not have: another server, or another request of this one that is just
    /// being answered, may have made it.
    pub async fn see_namespace(&self, name: &str) -> Result<(), Status> {
        let table = self.table();
        let Some(kind) = table.kind("", "namespaces").filter(|_| !name.is_empty()) else { return Ok(()) };
        if self.cache.shelf(kind).get(name).is_none() {
            self.catch_up().await?;
        }
        Ok(())
    }

    /// Waits until the cache has everything that was acknowledged before now.
    pub async fn catch_up(&self) -> Result<Revision, Status> {
        let revision = self.store.revision().await.map_err(|error| unavailable(&error.into()))?;
        let caught_up = self.cache.wait(revision, CACHE_PATIENCE).await;
        caught_up.map_err(|behind| Status::timeout(&behind.to_string(), 1))?;
        Ok(revision)
    }
}

/// The store cannot do it.
pub fn unavailable(error: &sealed::Error) -> Status {
    match error {
        sealed::Error::Store(ClientError::Refused(mvcc::Error::Compacted { .. })) => {
            Status::expired("The resourceVersion for the provided list is too old.")
        }
        sealed::Error::Store(ClientError::Refused(error)) => Status::internal_error(error),
        sealed::Error::Store(error) => Status::service_unavailable(format!("the store is not available: {error}")),
        sealed::Error::Vault { source, .. } => Status::internal_error(format!("{error}: {source}")),
    }
}

/// The time, to the second, as objects have it.
pub fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_unix(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
}

/// What a new object gets from nowhere.
pub fn draw() -> Draw {
    Draw { uid: draw_uid(), suffix: machinery::meta::name_suffix(u64::from_le_bytes(random())) }
}

/// An identifier that nothing else has: a version 4 UUID.
pub fn draw_uid() -> String {
    uuid(random())
}

/// Random bytes, of which this thread has some left over from the last time: asking for few costs as much as for many.
fn random<const N: usize>() -> [u8; N] {
    const AHEAD: usize = 512;
    thread_local! {
        static LEFT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    LEFT.with_borrow_mut(|left| {
        if left.len() < N {
            left.resize(AHEAD.max(N), 0);
            // The generator of the TLS provider fails only if the kernel has no randomness to give.
            aws_lc_rs::rand::fill(left).expect("the kernel gives random bytes");
        }
        let rest = left.len() - N;
        let drawn = left[rest..].try_into().expect("so many are left");
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
    fn identifiers_have_the_form_of_a_uuid_and_differ() {
        assert_eq!(uuid([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(uuid([0; 16]), "00000000-0000-4000-8000-000000000000");
        let drawn: std::collections::BTreeSet<String> = (0..1000).map(|_| draw_uid()).collect();
        assert_eq!(drawn.len(), 1000);
    }
}
