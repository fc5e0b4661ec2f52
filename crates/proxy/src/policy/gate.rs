//! A gate before the containers of a pod: it opens once the kernel has what policies limit the pod to.
//!
//! Whoever starts pods knows their addresses before anybody else does. Passing the gate tells them to whoever enforces policies in the
//! same process, and waits for the rules.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use client::cache::Notices;
use machinery::Key;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Pod;

/// How long a pod waits at most: if the kernel takes no rules, pods are not held up for good.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long an address is taken from here at most. The watch shows it long before, unless the pod is gone.
const EARLY_MAX: Duration = Duration::from_secs(60);

/// The gate of a node.
#[derive(Debug, Default)]
pub struct Gate {
    inner: Mutex<Inner>,
    /// The newest question whose answer is in the kernel.
    enforced: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    /// Where to tell of a pod; nowhere if nobody enforces policies, or there are none.
    enforcer: Option<Notices>,
    early: BTreeMap<Key, (Pod, Instant)>,
    asked: u64,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Inner").field("early", &self.early).field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl Gate {
    /// Waits until a pod with these addresses is limited to what policies say.
    pub async fn pass(&self, key: &Key, pod: Pod) {
        let mut enforced = self.enforced.subscribe();
        let Some(asked) = self.ask(key, pod) else { return };
        if tokio::time::timeout(PATIENCE, enforced.wait_for(|enforced| *enforced >= asked)).await.is_err() {
            tracing::warn!(pod = %key, "the pod starts before its network policies are enforced");
        }
    }

    fn ask(&self, key: &Key, pod: Pod) -> Option<u64> {
        let mut inner = self.inner();
        let enforcer = inner.enforcer.clone()?;
        // An address is one pod's at a time.
        inner.early.retain(|_, (other, _)| !other.ips.iter().any(|ip| pod.ips.contains(ip)));
        inner.early.insert(key.clone(), (pod, Instant::now() + EARLY_MAX));
        inner.asked += 1;
        enforcer.add([key.clone()]);
        Some(inner.asked)
    }

    /// Pods are told here from now on, or need not be told.
    pub(super) fn keep(&self, enforcer: Option<&Notices>) {
        self.inner().enforcer = enforcer.cloned();
    }

    /// The newest question, and the pods whose addresses nothing else shows yet.
    pub(super) fn early(&self, shown: &BTreeMap<Key, Pod>) -> (u64, Vec<(Key, Pod)>) {
        let now = Instant::now();
        let mut inner = self.inner();
        inner.early.retain(|key, (pod, until)| {
            let is_shown = shown.get(key).is_some_and(|shown| shown.ips == pod.ips);
            !is_shown && *until > now
        });
        (inner.asked, inner.early.iter().map(|(key, (pod, _))| (key.clone(), pod.clone())).collect())
    }

    /// The kernel has what was asked for up to here.
    pub(super) fn enforced(&self, asked: u64) {
        self.enforced.send_replace(asked);
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
    async fn nobody_waits_where_nothing_is_limited() {
        let gate = Gate::default();
        gate.pass(&key("a"), pod("10.0.0.1")).await;
        gate.keep(Some(&Notices::new(10)));
        gate.keep(None);
        gate.pass(&key("a"), pod("10.0.0.1")).await;
        assert_eq!(gate.early(&BTreeMap::new()), (0, vec![]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_waits_for_rules_that_know_its_address() {
        let (gate, notices) = (Gate::default(), Notices::new(10));
        gate.keep(Some(&notices));
        let (key, begun) = (key("a"), Instant::now());
        let enforce = async {
            notices.take().await;
            let (asked, early) = gate.early(&BTreeMap::new());
            assert_eq!(early, [(key.clone(), pod("10.0.0.1"))]);
            tokio::time::sleep(Duration::from_millis(5)).await;
            gate.enforced(asked);
        };
        tokio::join!(gate.pass(&key, pod("10.0.0.1")), enforce);
        assert_eq!(begun.elapsed(), Duration::from_millis(5));
    }

    #[tokio::test(start_paused = true)]
    async fn a_kernel_that_takes_no_rules_does_not_hold_pods_up_for_good() {
        let gate = Gate::default();
        gate.keep(Some(&Notices::new(10)));
        let begun = Instant::now();
        gate.pass(&key("a"), pod("10.0.0.1")).await;
        assert_eq!(begun.elapsed(), PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_is_taken_from_here_until_it_is_shown_or_another_pod_has_it() {
        let gate = Gate::default();
        gate.keep(Some(&Notices::new(10)));
        gate.ask(&key("a"), pod("10.0.0.1"));
        gate.ask(&key("b"), pod("10.0.0.2"));
        let early = |shown: &BTreeMap<Key, Pod>| gate.early(shown).1;
        assert_eq!(early(&BTreeMap::from([(key("a"), pod("10.0.0.1"))])), [(key("b"), pod("10.0.0.2"))]);
        let none = BTreeMap::new();
        assert_eq!(early(&none), [(key("b"), pod("10.0.0.2"))], "one that was shown is not taken from here any more");
        gate.ask(&key("c"), pod("10.0.0.2"));
        assert_eq!(early(&none), [(key("c"), pod("10.0.0.2"))]);
        tokio::time::advance(EARLY_MAX).await;
        assert_eq!(early(&none), []);
    }
}
