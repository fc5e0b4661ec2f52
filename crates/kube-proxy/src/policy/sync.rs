//! The NetworkPolicy sync loop: watches pods, namespaces and policies, and applies each change in one transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use apimachinery::meta::Meta;
use apimachinery::{Key, Object, Resource};
use client::Client;
use client::cache::{self, ChangeQueue, ChangedKeys, Reader, Source};
use controller::kinds;
use tokio::task::{JoinError, JoinSet};
use tracing::Instrument;

use super::gate::Gate;
use super::ruleset::{ExistingTable, Writer, no_rules};
use super::{Cluster, Decision, Pod, Policy, decide};
use crate::run::{Error, chain};

/// Maximum pending change notices; beyond that everything is evaluated.
const NOTICES_MAX: usize = 10_000;
/// Interval between retries after the kernel rejected the rules.
const RETRY: Duration = Duration::from_secs(5);

/// Enforces policies on a node for as long as the future is polled. `dns` are the addresses of the DNS service if nodes
/// serve it themselves.
pub async fn run(client: Client, node: &str, dns: &[IpAddr], gate: &Gate) -> Result<(), Error> {
    let mut watches = JoinSet::new();
    let notices = ChangeQueue::new(NOTICES_MAX);
    let all = |resource: &Resource| Source::all(client.clone(), resource.clone());
    let pods = watch(&mut watches, all(&kinds::PODS), &notices, |object| Pod::read(&object));
    let policies = watch(&mut watches, all(&kinds::NETWORK_POLICIES), &notices, |object| Policy::read(&object));
    let namespaces: Reader<Option<Object>> =
        watch(&mut watches, all(&kinds::NAMESPACES), &notices, |object| Meta::of(&object).labels().cloned());
    pods.synced().await?;
    policies.synced().await?;
    namespaces.synced().await?;
    let mut enforcer = Enforcer::default();
    let mut cluster = Cluster::default();
    let mut changed = ChangedKeys::All;
    loop {
        take(&mut cluster.pods, &pods, &changed);
        cluster.serve_dns(dns);
        take(&mut cluster.policies, &policies, &changed);
        take(&mut cluster.namespaces, &namespaces, &changed);
        gate.keep((!cluster.policies.is_empty()).then_some(&notices));
        let (request, early) = gate.early(&cluster.pods);
        let decision = decide_with(&mut cluster, early, node);
        changed = match enforcer.enforce(&decision).await {
            Ok(()) => {
                gate.enforced(request);
                notices.take().await
            }
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    "failed to write the network policy rules; pods that they select cannot start; retrying"
                );
                gate.rejected(request, decision.pods.keys().copied().collect());
                tokio::time::timeout(RETRY, notices.take()).await.unwrap_or(ChangedKeys::Keys(BTreeSet::new()))
            }
        };
    }
}

/// Decides with these additional pods, without changing the cluster.
fn decide_with(cluster: &mut Cluster, early: Vec<(Key, Pod)>, node: &str) -> Decision {
    let previous: Vec<(Key, Option<Pod>)> =
        early.into_iter().map(|(key, pod)| (key.clone(), cluster.pods.insert(key, pod))).collect();
    let decision = decide(cluster, node);
    for (key, pod) in previous {
        match pod {
            Some(pod) => cluster.pods.insert(key, pod),
            None => cluster.pods.remove(&key),
        };
    }
    decision
}

/// Removes all rules.
pub fn clean_up() -> Result<(), netlink::Error> {
    no_rules().commit()
}

/// Watches a resource type; changes that do not affect the condensed object cause no notice.
pub(crate) fn watch<T: PartialEq + Send + Sync + 'static>(
    watches: &mut JoinSet<()>,
    source: Source,
    notices: &ChangeQueue,
    keep: impl Fn(apimachinery::Value) -> T + Send + Sync + 'static,
) -> Reader<T> {
    let (reflector, reader) = cache::new(source, cache::Settings::default(), Vec::new(), keep);
    reader.subscribe(notices, |change, keys| {
        if change.old != change.new {
            keys.push(change.key.clone());
        }
    });
    watches.spawn(reflector.run().in_current_span());
    reader
}

/// Applies the changes of a resource type; objects that condense to `None` are removed.
fn take<T: Clone>(known: &mut BTreeMap<Key, T>, reader: &Reader<Option<T>>, changed: &ChangedKeys) {
    let objects = reader.snapshot().objects;
    match changed {
        ChangedKeys::All => {
            let all = objects.iter().filter_map(|entry| Some((entry.key.clone(), entry.value.clone()?)));
            *known = all.collect();
        }
        ChangedKeys::Keys(keys) => {
            for key in keys {
                match objects.get(key).and_then(Option::as_ref) {
                    Some(object) => known.insert(key.clone(), object.clone()),
                    None => known.remove(key),
                };
            }
        }
    }
}

/// Applies decisions to the kernel.
#[derive(Debug, Default)]
pub struct Enforcer {
    writer: Writer,
    standing: KernelState,
}

/// Known state of the kernel's policy rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum KernelState {
    /// Unknown: rules of an earlier run, or changed by another process.
    #[default]
    Unknown,
    /// No rules exist, and none are needed until a policy restricts a pod.
    Empty,
    /// The rules written last.
    Written,
}

impl Enforcer {
    /// Makes the kernel enforce the decision, regardless of its earlier state.
    pub async fn enforce(&mut self, decision: &Decision) -> Result<(), EnforceError> {
        if self.standing == KernelState::Written {
            let change = self.writer.change(decision);
            match blocking(move || change.commit()).await {
                Ok(()) => return Ok(()),
                Err(error) => tracing::warn!(
                    error = chain(&error),
                    "network policy rules were changed by another process; replacing all rules"
                ),
            }
        }
        let found = match std::mem::take(&mut self.standing) {
            KernelState::Empty => None,
            KernelState::Unknown | KernelState::Written => blocking(ExistingTable::detect).await?,
        };
        if found.is_none() && decision.pods.is_empty() {
            self.standing = KernelState::Empty;
            return Ok(());
        }
        let batch = self.writer.everything(&found.unwrap_or(ExistingTable::New), decision);
        if blocking(move || batch.commit()).await.is_err() {
            let batch = self.writer.everything(&ExistingTable::New, decision);
            blocking(move || batch.commit()).await?;
        }
        self.standing = KernelState::Written;
        Ok(())
    }
}

/// Policies could not be enforced.
#[derive(Debug, thiserror::Error)]
pub enum EnforceError {
    /// The kernel rejected the transaction.
    #[error("failed to write the packet rules")]
    Kernel(#[from] netlink::Error),
    #[error("the task that writes packet rules failed")]
    Task(#[from] JoinError),
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, netlink::Error> + Send + 'static,
) -> Result<T, EnforceError> {
    Ok(tokio::task::spawn_blocking(work).await??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_pod_is_restricted_without_changing_the_cluster() {
        let policy = apimachinery::value!({"spec": {"podSelector": {}, "policyTypes": ["Egress"]}});
        let policy = Policy::read(&policy).expect("a policy");
        let mut cluster = Cluster::default();
        cluster.policies.insert(Key::new("shop", "closed"), policy);
        let ip = "10.0.0.1".parse().expect("an address");
        let pod = Pod { ips: vec![ip], node: "a".to_owned(), ..Pod::default() };
        let early = vec![(Key::new("shop", "early"), pod)];
        assert!(decide_with(&mut cluster, early, "a").pods.contains_key(&ip));
        assert!(cluster.pods.is_empty());
        assert!(decide_with(&mut cluster, Vec::new(), "a").pods.is_empty());
    }
}
