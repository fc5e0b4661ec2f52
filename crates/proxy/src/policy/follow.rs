//! Policies at work: watches pods, namespaces and policies, and replaces the rules when what they come to has changed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use client::Client;
use client::cache::{self, Changed, Notices, Reader, Source};
use machinery::meta::Meta;
use machinery::{Key, Object, Resource};
use net::netlink;
use reconcile::kinds;
use tokio::task::JoinSet;

use super::{Cluster, Limits, Pod, Policy, decide, table};
use crate::follow::Error;

static NETWORK_POLICIES: Resource = Resource::namespaced("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy");

/// Changes that may wait; more are looked at all together.
const NOTICES_MAX: usize = 10_000;
/// How long after the kernel refused it is asked again.
const RETRY: Duration = Duration::from_secs(5);

/// Enforces policies on a node for as long as it is polled.
pub async fn run(client: Client, node: &str) -> Result<(), Error> {
    let mut watches = JoinSet::new();
    let notices = Notices::new(NOTICES_MAX);
    let all = |resource: &Resource| Source::all(client.clone(), resource.clone());
    let pods = watch(&mut watches, all(&kinds::PODS), &notices, |object| Pod::read(&object));
    let policies = watch(&mut watches, all(&NETWORK_POLICIES), &notices, |object| Policy::read(&object));
    let namespaces: Reader<Option<Object>> =
        watch(&mut watches, all(&kinds::NAMESPACES), &notices, |object| Meta::of(&object).labels().cloned());
    pods.synced().await?;
    policies.synced().await?;
    namespaces.synced().await?;
    let mut enforced: Option<BTreeMap<IpAddr, Limits>> = None;
    loop {
        let cluster = Cluster {
            pods: held(&pods).collect(),
            policies: held(&policies).collect(),
            namespaces: held(&namespaces).map(|(key, labels)| (key.name.to_string(), labels)).collect(),
        };
        let limits = decide(&cluster, node);
        // Where nothing was ever limited there is no need for rules.
        let same = enforced.as_ref() == Some(&limits) || (enforced.is_none() && limits.is_empty());
        if !same {
            let batch = table::rules(&limits);
            match tokio::task::spawn_blocking(move || batch.commit()).await {
                Ok(Ok(())) => enforced = Some(limits),
                failed => {
                    tracing::warn!(?failed, "the kernel does not take the policies' rules; they are sent again soon");
                    drop(tokio::time::timeout(RETRY, notices.take()).await);
                    continue;
                }
            }
        }
        let (Changed::Keys(_) | Changed::Everything) = notices.take().await;
    }
}

/// Takes all rules away.
pub fn clean_up() -> Result<(), netlink::Error> {
    table::no_rules().commit()
}

/// Watches a kind; a change that leaves what we keep of it as it was is no news.
pub(crate) fn watch<T: PartialEq + Send + Sync + 'static>(
    watches: &mut JoinSet<()>,
    source: Source,
    notices: &Notices,
    keep: impl Fn(machinery::Value) -> T + Send + Sync + 'static,
) -> Reader<T> {
    let (reflector, reader) = cache::new(source, cache::Settings::default(), Vec::new(), keep);
    reader.subscribe(notices, |change, keys| {
        if change.old != change.new {
            keys.push(change.key.clone());
        }
    });
    watches.spawn(reflector.run());
    reader
}

fn held<T: Clone>(reader: &Reader<Option<T>>) -> impl Iterator<Item = (Key, T)> {
    let objects = reader.snapshot().objects;
    let held: Vec<(Key, T)> =
        objects.iter().filter_map(|entry| Some((entry.key.clone(), entry.value.clone()?))).collect();
    held.into_iter()
}
