//! Keeps the ways to other nodes' pods: watches nodes, plans, and makes the kernel know.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use client::Client;
use client::cache::{self, Notices, Source};
use machinery::Value;
use machinery::meta::Meta;
use net::link::{Changes, Links};
use net::mesh::{Peer, apply, plan};
use net::{Cidr, netlink};
use reconcile::kinds;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::follow::Error;

/// Nodes that may change before all are looked at.
const NOTICES_MAX: usize = 1_000;
/// How long after the kernel refused it is asked again.
const RETRY: Duration = Duration::from_secs(5);

/// Keeps routes to the pods of all nodes but this one, for as long as it is polled. `mtu` is what a tunnel takes, if not
/// what the way out allows.
pub async fn run(client: Client, node_name: &str, mtu: Option<u32>) -> Result<(), Error> {
    let source = Source::all(client, kinds::NODES.clone());
    // A heartbeat is no news here.
    let (reflector, reader) = cache::new(source, cache::Settings::default(), Vec::new(), |object| {
        (Meta::of(&object).name() != "").then(|| (Meta::of(&object).name().to_owned(), peer(&object)))
    });
    let notices = Notices::new(NOTICES_MAX);
    reader.subscribe(&notices, |change, keys| {
        if change.old != change.new {
            keys.push(change.key.clone());
        }
    });
    let mut watch = JoinSet::new();
    watch.spawn(reflector.run());
    reader.synced().await?;
    let used = Arc::new(Used::default());
    listen(&used);
    loop {
        let nodes = reader.snapshot().objects;
        let all: Vec<(String, Peer)> = nodes.iter().filter_map(|entry| entry.value.clone()).collect();
        let own = all.iter().find(|(name, _)| name == node_name).map(|(_, peer)| peer.pod_cidrs.clone());
        let peers: Vec<Peer> = all.into_iter().filter(|(name, _)| name != node_name).map(|(_, peer)| peer).collect();
        let done = tokio::task::spawn_blocking(move || keep(&peers, &own.unwrap_or_default(), mtu)).await;
        match done {
            Ok(Ok(links)) => {
                *used.links.lock().unwrap_or_else(PoisonError::into_inner) = links;
                tokio::select! {
                    _ = notices.take() => {}
                    () = used.changed.notified() => {}
                }
            }
            failed => {
                tracing::warn!(?failed, "cannot keep the routes to other nodes; tried again soon");
                // A change is as good a reason to try again as time.
                tokio::select! {
                    _ = tokio::time::timeout(RETRY, notices.take()) => {}
                    () = used.changed.notified() => {}
                }
            }
        }
    }
}

/// Makes the kernel know the ways; gives the links that they depend on.
fn keep(peers: &[Peer], own: &[Cidr], mtu: Option<u32>) -> Result<BTreeSet<u32>, netlink::Error> {
    let addresses = Links::open()?.addresses()?;
    apply(&plan(&addresses, peers), own, mtu)?;
    let alone = |ip: IpAddr| if ip.is_ipv4() { 32 } else { 128 };
    Ok(addresses.iter().filter(|have| have.prefix < alone(have.ip)).map(|have| have.index).collect())
}

/// Links whose changes matter: a link that was off has lost its routes, and another address may be on another segment. Those of pods,
/// which come and go all the time, do not.
#[derive(Default)]
struct Used {
    links: Mutex<BTreeSet<u32>>,
    changed: Notify,
}

/// Hears of changes for as long as the process lives or the other end is there.
fn listen(used: &Arc<Used>) {
    let mut changes = match Changes::open() {
        Ok(changes) => changes,
        Err(error) => {
            tracing::warn!(%error, "changes of links are not heard of");
            return;
        }
    };
    let used = Arc::downgrade(used);
    // The kernel cannot be asked to end a wait, so that this is a thread of its own, which nobody waits for.
    std::thread::spawn(move || {
        while let Ok(changed) = changes.wait() {
            let Some(used) = used.upgrade() else { return };
            let known = used.links.lock().unwrap_or_else(PoisonError::into_inner);
            let matters = changed.is_none_or(|changed| changed.iter().any(|index| known.contains(index)));
            drop(known);
            if matters {
                used.changed.notify_one();
            }
        }
    });
}

/// What a node is to others.
fn peer(node: &Value) -> Peer {
    let texts = |path: &[&str]| node.at(path).and_then(Value::as_array).unwrap_or_default();
    let internal = texts(&["status", "addresses"]).iter().filter(|it| it.str_at(&["type"]) == Some("InternalIP"));
    let addresses: Vec<IpAddr> = internal.filter_map(|it| it.str_at(&["address"])?.parse().ok()).collect();
    let blocks = texts(&["spec", "podCIDRs"]).iter().filter_map(Value::as_str);
    Peer { addresses, pod_cidrs: blocks.filter_map(|text| text.parse().ok()).collect() }
}

#[cfg(test)]
mod tests {
    use machinery::json;

    use super::*;

    #[test]
    fn a_node_is_its_addresses_and_its_pods() {
        let node = json::parse(
            br#"{"spec": {"podCIDRs": ["10.244.1.0/24", "fd00::/64"]}, "status": {"addresses": [
                {"type": "Hostname", "address": "a"}, {"type": "InternalIP", "address": "192.0.2.1"}]}}"#,
        );
        let peer = peer(&node.unwrap());
        assert_eq!((peer.addresses.len(), peer.pod_cidrs.len()), (1, 2));
    }
}
