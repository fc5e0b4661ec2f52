//! Leader election with a Lease, compatible with client-go's leaderelection.
//!
//! A candidate does not trust other clocks: a lease has expired when it has not changed for its duration as measured
//! locally. A leader that cannot renew in time stops before another candidate may start, because its renew deadline is
//! shorter than the lease duration.
//!
//! ```text
//!   candidate ──the lease is free, expired or ours──> leader ──renewed in time──> leader
//!       ^                                               │
//!       └─────── deadline exceeded, or taken over ──────┘──stop requested──> released: free immediately
//! ```

mod record;

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use apimachinery::meta::Meta;
use apimachinery::{Key, Value};
use client::{Client, Error, Target, WriteOptions};
use controller::kinds;
use tokio::time::Instant;

use crate::clock;
use record::Record;

/// The lease, the candidate's identity, and the timeouts.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The lease: `kube-system/kube-controller-manager`.
    pub lease: Key,
    /// The unique identity of this candidate.
    pub identity: String,
    /// Time after which other candidates take over an unrenewed lease.
    pub lease_duration: Duration,
    /// Time after which a leader that cannot renew stops. Must be shorter than the lease duration.
    pub renew_deadline: Duration,
    /// Interval between attempts.
    pub retry_period: Duration,
}

/// The end of leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeadershipEnd {
    /// The lease could not be renewed, or another candidate holds it. All work of the leader must stop.
    Lost,
    /// The work completed, or the candidate was stopped. The lease was released if it was held.
    Released,
}

/// A candidate, which leads while it holds the lease.
pub struct Election {
    client: Client,
    settings: Settings,
    /// The last observed lease, and the time of its last observed change.
    observed: Option<(Value, Instant)>,
    status: LeaderStatus,
}

/// The time of the leader's last renewal, for health checks.
#[derive(Clone, Debug)]
pub struct LeaderStatus {
    renewed: Arc<Mutex<Option<Instant>>>,
    lease_duration: Duration,
}

impl LeaderStatus {
    /// Fails if this process leads and its lease expired long ago, so that the process should have exited.
    pub fn check(&self) -> Result<(), String> {
        let renewed = *self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        match renewed {
            Some(at) if at.elapsed() > self.lease_duration + EXPIRED_MAX => {
                Err("failed election to renew leadership".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn set(&self, renewed: Option<Instant>) {
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = renewed;
    }
}

/// Time after the expiry of its lease at which a leader becomes unhealthy.
const EXPIRED_MAX: Duration = Duration::from_secs(20);
/// Timeout of releasing the lease. A stopped leader must not wait for an unreachable API server.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);
/// Jitter factor of the retry period, so that candidates do not retry together.
const JITTER: f64 = 1.2;

impl Settings {
    /// Returns upstream's defaults: 15, 10 and 2 seconds.
    pub fn new(lease: Key, identity: impl Into<String>) -> Self {
        Self {
            lease,
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

impl Election {
    pub fn new(client: Client, settings: Settings) -> Self {
        let status = LeaderStatus { renewed: Arc::default(), lease_duration: settings.lease_duration };
        Self { client, settings, observed: None, status }
    }

    /// Returns the status for a health check.
    pub fn status(&self) -> LeaderStatus {
        self.status.clone()
    }

    /// Waits to be elected, then runs `work` until it completes, the lease is lost, or `stop` completes. The lease is
    /// released if it is still held.
    ///
    /// `work` is dropped before the lease is released, so that no other leader starts while it runs.
    pub async fn lead<W: Future>(mut self, work: impl FnOnce() -> W, stop: impl Future) -> LeadershipEnd {
        tokio::pin!(stop);
        tokio::select! {
            () = self.acquire() => {}
            _ = &mut stop => return LeadershipEnd::Released,
        }
        tracing::info!(lease = %self.settings.lease, identity = self.settings.identity, "became leader");
        let released = {
            let work = work();
            tokio::pin!(work);
            tokio::select! {
                () = self.hold() => false,
                _ = &mut work => true,
                _ = &mut stop => true,
            }
        };
        self.status.set(None);
        if released {
            self.release().await;
            return LeadershipEnd::Released;
        }
        tracing::error!(lease = %self.settings.lease, identity = self.settings.identity, "lost leadership");
        LeadershipEnd::Lost
    }

    /// Waits until this candidate holds the lease.
    pub async fn acquire(&mut self) {
        while !self.attempt().await {
            let wait = self.settings.retry_period.mul_f64(1.0 + JITTER * client::backoff::random());
            tokio::time::sleep(wait).await;
        }
    }

    /// Renews the lease until that fails for the renew deadline or another candidate holds the lease.
    pub async fn hold(&mut self) {
        let mut deadline = Instant::now() + self.settings.renew_deadline;
        loop {
            tokio::time::sleep_until((Instant::now() + self.settings.retry_period).min(deadline)).await;
            match tokio::time::timeout_at(deadline, self.attempt()).await {
                Ok(true) => deadline = Instant::now() + self.settings.renew_deadline,
                // Another candidate holds the lease: further attempts are pointless.
                Ok(false) if self.holder().is_some_and(|holder| holder != self.settings.identity) => return,
                Ok(false) if Instant::now() < deadline => {}
                Ok(false) | Err(_) => return,
            }
        }
    }

    /// Releases the lease if it is held, so that another candidate can take it immediately.
    pub async fn release(&mut self) {
        let Some((lease, _)) = &self.observed else { return };
        let mut record = Record::of(lease);
        if record.holder != self.settings.identity {
            return;
        }
        record.release(clock::now());
        let lease = record.into_lease(lease.clone());
        match tokio::time::timeout(RELEASE_TIMEOUT, self.write(&lease)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "failed to release the lease; it will expire"),
            Err(_) => tracing::warn!("the API server does not respond; the lease is not released and will expire"),
        }
    }

    /// Returns the last observed holder.
    pub fn holder(&self) -> Option<String> {
        let (lease, _) = self.observed.as_ref()?;
        Some(Record::of(lease).holder).filter(|holder| !holder.is_empty())
    }

    /// Tries to acquire or renew the lease. Returns whether it is held now.
    async fn attempt(&mut self) -> bool {
        match self.try_attempt().await {
            Ok(is_leader) => {
                self.status.set(is_leader.then(Instant::now));
                is_leader
            }
            Err(error) => {
                if !error.is_conflict() && !error.is_already_exists() {
                    tracing::warn!(lease = %self.settings.lease, error = %error, "failed to read or write the lease");
                }
                // The observed lease may be outdated: read it for the next attempt.
                if self.holder().as_deref() == Some(&self.settings.identity) && error.is_conflict() {
                    drop(self.observe_lease().await);
                }
                false
            }
        }
    }

    async fn try_attempt(&mut self) -> Result<bool, Error> {
        // A leader knows the lease that it wrote and need not read it.
        if self.holder().as_deref() != Some(&self.settings.identity) {
            self.observe_lease().await?;
        }
        let now = clock::now();
        let Some((lease, since)) = self.observed.clone() else {
            let record = Record::new(&self.settings.identity, self.settings.lease_duration, now);
            let target = Target::within(&kinds::LEASES, self.settings.lease.namespace.clone());
            let fresh = record.into_lease(record::blank(&self.settings.lease));
            let created = self.client.create(&target, &fresh, &WriteOptions::default()).await?;
            self.observed = Some((created, Instant::now()));
            return Ok(true);
        };
        let mut record = Record::of(&lease);
        let is_holder = record.holder == self.settings.identity;
        let alive = since + record.duration() > Instant::now();
        if !record.holder.is_empty() && alive && !is_holder {
            return Ok(false);
        }
        record.renew(&self.settings.identity, self.settings.lease_duration, now);
        let written = self.write(&record.into_lease(lease)).await?;
        self.observed = Some((written, Instant::now()));
        Ok(true)
    }

    async fn observe_lease(&mut self) -> Result<(), Error> {
        let target = Target::object(&kinds::LEASES, &self.settings.lease);
        match self.client.get(&target).await {
            Ok(lease) => {
                let version = |lease: &Value| Meta::of(lease).resource_version().to_owned();
                if self.observed.as_ref().is_none_or(|(known, _)| version(known) != version(&lease)) {
                    self.observed = Some((lease, Instant::now()));
                }
                Ok(())
            }
            Err(error) if error.is_not_found() => {
                self.observed = None;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Writes the lease with the observed resourceVersion as precondition.
    async fn write(&self, lease: &Value) -> Result<Value, Error> {
        let target = Target::object(&kinds::LEASES, &self.settings.lease);
        self.client.update(&target, lease, &WriteOptions::default()).await
    }
}
