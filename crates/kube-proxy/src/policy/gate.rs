//! The NetworkPolicy gate of pod startup: containers start once the kernel enforces the policies of the pod.
//!
//! The kubelet knows a pod's addresses first. Passing the gate reports them to the policy enforcer in the same process
//! and waits for the rules.
//!
//! The gate fails closed: while the enforcer has not started, or the kernel rejects its rules, a pod that a policy
//! selects waits. The gate is open if the process has no enforcer, if there are no policies, and for pods that no
//! policy selects.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use apimachinery::Key;
use client::cache::ChangeQueue;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Pod;

/// Maximum time for which a reported address is used. The watch shows it long before, unless the pod was deleted.
const EARLY_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub struct Gate {
    inner: Mutex<Inner>,
    progress: watch::Sender<Progress>,
}

/// Progress of the enforcer.
#[derive(Debug, Default)]
struct Progress {
    /// Newest request whose rules are in the kernel.
    enforced: u64,
    /// Newest request whose rules the kernel rejected.
    rejected: u64,
    /// Addresses restricted by the rejected rules: other pods need not wait.
    limited: BTreeSet<IpAddr>,
}

/// State of the policy enforcer.
#[derive(Default)]
enum Enforcer {
    /// This process has no enforcer.
    #[default]
    Absent,
    /// The enforcer has not synced the policies yet.
    Starting,
    /// There are no policies.
    Idle,
    /// The enforcer is notified of pods here.
    Enforcing(ChangeQueue),
}

#[derive(Default)]
struct Inner {
    enforcer: Enforcer,
    early: BTreeMap<Key, (Pod, Option<Instant>)>,
    last_request: u64,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Inner").field("early", &self.early).field("asked", &self.last_request).finish_non_exhaustive()
    }
}

impl Progress {
    fn lets_pass(&self, request: u64, ips: &[IpAddr]) -> bool {
        self.enforced >= request || (self.rejected >= request && !ips.iter().any(|ip| self.limited.contains(ip)))
    }
}

impl Gate {
    /// Makes pods wait until the enforcer, which starts in this process, has synced the policies.
    pub fn expect_enforcer(&self) {
        self.inner().enforcer = Enforcer::Starting;
    }

    /// Waits, without timeout, until the kernel enforces the policies of a pod with these addresses.
    pub async fn pass(&self, key: &Key, pod: Pod) {
        let mut progress = self.progress.subscribe();
        let ips = pod.ips.clone();
        let Some(request) = self.register(key, pod) else { return };
        let passed = progress.wait_for(|progress| progress.lets_pass(request, &ips)).await;
        passed.expect("the gate has its sender");
    }

    fn register(&self, key: &Key, pod: Pod) -> Option<u64> {
        let mut inner = self.inner();
        // While the enforcer starts, the watch shows no addresses, so the reported address has no deadline.
        let until = match &inner.enforcer {
            Enforcer::Absent | Enforcer::Idle => return None,
            Enforcer::Starting => None,
            Enforcer::Enforcing(_) => Some(Instant::now() + EARLY_MAX),
        };
        // An address belongs to one pod at a time.
        inner.early.retain(|_, (other, _)| !other.ips.iter().any(|ip| pod.ips.contains(ip)));
        inner.early.insert(key.clone(), (pod, until));
        inner.last_request += 1;
        if let Enforcer::Enforcing(notices) = &inner.enforcer {
            notices.add([key.clone()]);
        }
        Some(inner.last_request)
    }

    /// Reports that the enforcer has synced the policies: it is notified of pods, or has nothing to enforce.
    pub(super) fn keep(&self, notices: Option<&ChangeQueue>) {
        self.inner().enforcer = notices.cloned().map_or(Enforcer::Idle, Enforcer::Enforcing);
    }

    /// Returns the newest request and the pods whose addresses the watch does not show yet.
    pub(super) fn early(&self, watched: &BTreeMap<Key, Pod>) -> (u64, Vec<(Key, Pod)>) {
        let now = Instant::now();
        let mut inner = self.inner();
        inner.early.retain(|key, (pod, until)| {
            let is_watched = watched.get(key).is_some_and(|watched| watched.ips == pod.ips);
            !is_watched && *until.get_or_insert(now + EARLY_MAX) > now
        });
        (inner.last_request, inner.early.iter().map(|(key, (pod, _))| (key.clone(), pod.clone())).collect())
    }

    /// Reports that the kernel enforces all requests up to this one.
    pub(super) fn enforced(&self, request: u64) {
        self.progress.send_modify(|progress| progress.enforced = request);
    }

    /// Reports that the kernel rejected the rules up to this request, which would restrict these addresses.
    pub(super) fn rejected(&self, request: u64, limited: BTreeSet<IpAddr>) {
        self.progress.send_modify(|progress| {
            progress.rejected = request;
            progress.limited = limited;
        });
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(ip: &str) -> Pod {
        Pod { ips: vec![ip.parse().expect("an address")], ..Pod::default() }
    }

    fn key(name: &str) -> Key {
        Key::new("shop", name)
    }

    #[tokio::test(start_paused = true)]
    async fn pods_do_not_wait_without_policies() {
        let gate = Gate::default();
        gate.pass(&key("a"), pod("10.0.0.1")).await;
        gate.keep(Some(&ChangeQueue::new(10)));
        gate.keep(None);
        gate.pass(&key("a"), pod("10.0.0.1")).await;
        assert_eq!(gate.early(&BTreeMap::new()), (0, vec![]));
    }

    #[tokio::test(start_paused = true)]
    async fn pod_waits_for_rules_with_its_address() {
        let (gate, notices) = (Gate::default(), ChangeQueue::new(10));
        gate.keep(Some(&notices));
        let (key, start) = (key("a"), Instant::now());
        let enforce = async {
            notices.take().await;
            let (request, early) = gate.early(&BTreeMap::new());
            assert_eq!(early, [(key.clone(), pod("10.0.0.1"))]);
            tokio::time::sleep(Duration::from_millis(5)).await;
            gate.enforced(request);
        };
        tokio::join!(gate.pass(&key, pod("10.0.0.1")), enforce);
        assert_eq!(start.elapsed(), Duration::from_millis(5));
    }

    /// Whether a pod still waits after an hour.
    async fn waits(gate: &Gate, name: &str, ip: &str) -> bool {
        tokio::time::timeout(Duration::from_secs(3600), gate.pass(&key(name), pod(ip))).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn selected_pod_does_not_start_while_the_kernel_rejects_the_rules() {
        let gate = Gate::default();
        gate.keep(Some(&ChangeQueue::new(10)));
        assert!(waits(&gate, "a", "10.0.0.1").await);
        gate.rejected(10, BTreeSet::from(["10.0.0.1".parse().expect("an address")]));
        assert!(waits(&gate, "a", "10.0.0.1").await);
        assert!(!waits(&gate, "b", "10.0.0.2").await, "no policy selects it");
        gate.enforced(10);
        assert!(!waits(&gate, "a", "10.0.0.1").await);
    }

    #[tokio::test(start_paused = true)]
    async fn pod_does_not_start_before_the_policies_are_synced() {
        let gate = Gate::default();
        gate.expect_enforcer();
        let pass = async {
            assert!(waits(&gate, "a", "10.0.0.1").await, "the enforcer has not started");
            gate.pass(&key("b"), pod("10.0.0.2")).await;
        };
        let start = async {
            tokio::time::sleep(Duration::from_secs(3601)).await;
            gate.keep(Some(&ChangeQueue::new(10)));
            let (request, early) = gate.early(&BTreeMap::new());
            assert_eq!(early.len(), 2, "they are not forgotten while they wait");
            gate.enforced(request);
        };
        tokio::join!(pass, start);
        gate.keep(None);
        assert!(!waits(&gate, "c", "10.0.0.3").await, "there are no policies");
    }

    #[tokio::test(start_paused = true)]
    async fn reported_address_is_used_until_watched_or_reused() {
        let gate = Gate::default();
        gate.keep(Some(&ChangeQueue::new(10)));
        gate.register(&key("a"), pod("10.0.0.1"));
        gate.register(&key("b"), pod("10.0.0.2"));
        let early = |watched: &BTreeMap<Key, Pod>| gate.early(watched).1;
        assert_eq!(early(&BTreeMap::from([(key("a"), pod("10.0.0.1"))])), [(key("b"), pod("10.0.0.2"))]);
        let none = BTreeMap::new();
        assert_eq!(early(&none), [(key("b"), pod("10.0.0.2"))], "an announced address is not removed");
        gate.register(&key("c"), pod("10.0.0.2"));
        assert_eq!(early(&none), [(key("c"), pod("10.0.0.2"))]);
        tokio::time::advance(EARLY_MAX).await;
        assert_eq!(early(&none), []);
    }
}
