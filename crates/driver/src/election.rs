//! Who of several candidates leads: a Lease that one of them holds and renews, as upstream's components do it.
//!
//! A candidate does not trust clocks of others: a lease counts as lost by its holder when it has not changed for its duration as
//! measured here. A leader that cannot renew in time stops before anyone else may start, because its deadline is shorter
//! than the duration of the lease.
//!
//! ```text
//!   candidate ──the lease is free, expired or ours──> leader ──renewed in time──> leader
//!       ^                                               │
//!       └──────── deadline passed, or taken over ───────┘──asked to stop──> released: free at once
//! ```

mod record;

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use client::{Client, Error, Target, WriteOptions};
use machinery::meta::Meta;
use machinery::{Key, Value};
use reconcile::kinds;
use tokio::time::Instant;

use crate::clock;
use record::Record;

/// Which lease, who we are, and how patient everyone is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The lease: `kube-system/kube-controller-manager`.
    pub lease: Key,
    /// Who we are, different from every other candidate.
    pub identity: String,
    /// How long others wait before they take over from a holder that is silent.
    pub lease_duration: Duration,
    /// How long a leader tries to renew before it gives up. Shorter than the lease.
    pub renew_deadline: Duration,
    /// Between attempts.
    pub retry_period: Duration,
}

/// How leading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The lease could not be renewed, or someone else has it. Whatever the leader did must stop.
    Lost,
    /// We were asked to stop, and gave the lease back.
    Released,
}

/// A candidate, and the leader when it holds the lease.
pub struct Election {
    client: Client,
    settings: Settings,
    /// The lease as it was seen last, and when it was first seen so.
    observed: Option<(Value, Instant)>,
    status: LeaderStatus,
}

/// When a leader renewed its lease last, for health checks.
#[derive(Clone, Debug)]
pub struct LeaderStatus {
    renewed: Arc<Mutex<Option<Instant>>>,
    lease_duration: Duration,
}

impl LeaderStatus {
    /// Fails if this process leads and its lease expired long ago: it should have exited.
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

/// How long after its lease expired a leader may still be there.
const EXPIRED_MAX: Duration = Duration::from_secs(20);
/// How long giving the lease back may take. A leader that is asked to stop must not wait for an API server that is gone.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);
/// Candidates come back after the retry period and up to so much more of it, so that they do not come together.
const JITTER: f64 = 1.2;

impl Settings {
    /// Upstream's patience: 15, 10 and 2 seconds.
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
    /// A candidate that has not looked yet.
    pub fn new(client: Client, settings: Settings) -> Self {
        let status = LeaderStatus { renewed: Arc::default(), lease_duration: settings.lease_duration };
        Self { client, settings, observed: None, status }
    }

    /// What a health check asks for.
    pub fn status(&self) -> LeaderStatus {
        self.status.clone()
    }

    /// Waits to be elected, then runs `work` until the lease is lost or `stop` comes true. The lease is given back if it is still ours.
    ///
    /// `work` is dropped before the lease is given back, so that nobody else starts while it still runs.
    pub async fn lead<W: Future>(mut self, work: impl FnOnce() -> W, stop: impl Future) -> Ended {
        tokio::pin!(stop);
        tokio::select! {
            () = self.acquire() => {}
            _ = &mut stop => return Ended::Released,
        }
        tracing::info!(lease = %self.settings.lease, identity = self.settings.identity, "elected");
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
            return Ended::Released;
        }
        tracing::error!(lease = %self.settings.lease, identity = self.settings.identity, "leadership is lost");
        Ended::Lost
    }

    /// Waits to hold the lease.
    pub async fn acquire(&mut self) {
        while !self.attempt().await {
            let wait = self.settings.retry_period.mul_f64(1.0 + JITTER * client::backoff::random());
            tokio::time::sleep(wait).await;
        }
    }

    /// Renews the lease for as long as that works.
    pub async fn hold(&mut self) {
        let mut deadline = Instant::now() + self.settings.renew_deadline;
        loop {
            tokio::time::sleep_until((Instant::now() + self.settings.retry_period).min(deadline)).await;
            match tokio::time::timeout_at(deadline, self.attempt()).await {
                Ok(true) => deadline = Instant::now() + self.settings.renew_deadline,
                // Someone else holds it now: there is nothing to hope for.
                Ok(false) if self.holder().is_some_and(|holder| holder != self.settings.identity) => return,
                Ok(false) if Instant::now() < deadline => {}
                Ok(false) | Err(_) => return,
            }
        }
    }

    /// Gives the lease back, if it is ours, for anyone to take at once.
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
            Ok(Err(error)) => tracing::warn!(%error, "the lease could not be released; it expires by itself"),
            Err(_) => tracing::warn!("the API server does not answer; the lease is not released and expires by itself"),
        }
    }

    /// Who holds the lease, as far as it was seen.
    pub fn holder(&self) -> Option<String> {
        let (lease, _) = self.observed.as_ref()?;
        Some(Record::of(lease).holder).filter(|holder| !holder.is_empty())
    }

    /// Tries to take or to renew the lease, and tells whether we hold it now.
    async fn attempt(&mut self) -> bool {
        match self.try_attempt().await {
            Ok(held) => {
                self.status.set(held.then(Instant::now));
                held
            }
            Err(error) => {
                if !error.is_conflict() && !error.is_already_exists() {
                    tracing::warn!(lease = %self.settings.lease, error = %error, "the lease cannot be read or written");
                }
                // What we believe about it may be wrong: look again the next time.
                if self.holder().as_deref() == Some(&self.settings.identity) && error.is_conflict() {
                    drop(self.look().await);
                }
                false
            }
        }
    }

    async fn try_attempt(&mut self) -> Result<bool, Error> {
        // A leader knows the lease as it wrote it, and need not read it first.
        if self.holder().as_deref() != Some(&self.settings.identity) {
            self.look().await?;
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
        let ours = record.holder == self.settings.identity;
        let alive = since + record.duration() > Instant::now();
        if !record.holder.is_empty() && alive && !ours {
            return Ok(false);
        }
        record.renew(&self.settings.identity, self.settings.lease_duration, now);
        let written = self.write(&record.into_lease(lease)).await?;
        self.observed = Some((written, Instant::now()));
        Ok(true)
    }

    async fn look(&mut self) -> Result<(), Error> {
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

    /// Writes the lease if it is still as it was seen: its version is in it.
    async fn write(&self, lease: &Value) -> Result<Value, Error> {
        let target = Target::object(&kinds::LEASES, &self.settings.lease);
        self.client.update(&target, lease, &WriteOptions::default()).await
    }
}
