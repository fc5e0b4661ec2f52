//! Routes to the pods of other nodes: watches nodes, plans routes and tunnels, and configures the kernel.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use apimachinery::Value;
use apimachinery::meta::Meta;
use client::Client;
use client::cache::{self, ChangeQueue, Source};
use controller::kinds;
use netlink::Cidr;
use netlink::link::{Changes, Links};
use pod_network::mesh::{Peer, apply, plan};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::run::Error;

/// Maximum pending change notices; beyond that all nodes are evaluated.
const NOTICES_MAX: usize = 1_000;
/// Interval between retries after the kernel rejected the routes.
const RETRY: Duration = Duration::from_secs(5);

/// Maintains routes to the pods of all other nodes, for as long as the future is polled. `mtu` is the MTU of tunnels;
/// `None` derives it from the uplink.
pub async fn run(client: Client, node_name: &str, mtu: Option<u32>) -> Result<(), Error> {
    let source = Source::all(client, kinds::NODES.clone());
    // Node heartbeats cause no notice.
    let (reflector, reader) = cache::new(source, cache::Settings::default(), Vec::new(), |object| {
        (Meta::of(&object).name() != "").then(|| (Meta::of(&object).name().to_owned(), peer(&object)))
    });
    let notices = ChangeQueue::new(NOTICES_MAX);
    reader.subscribe(&notices, |change, keys| {
        if change.old != change.new {
            keys.push(change.key.clone());
        }
    });
    let mut watch = JoinSet::new();
    watch.spawn(reflector.run().in_current_span());
    reader.synced().await?;
    let used = Arc::new(TrackedLinks::default());
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
                tracing::warn!(?failed, "failed to set the routes to other nodes; retrying");
                // Retries after the interval or the next change, whichever is first.
                tokio::select! {
                    _ = tokio::time::timeout(RETRY, notices.take()) => {}
                    () = used.changed.notified() => {}
                }
            }
        }
    }
}

/// Configures the routes in the kernel; returns the indexes of the links that they depend on.
fn keep(peers: &[Peer], own: &[Cidr], mtu: Option<u32>) -> Result<BTreeSet<u32>, netlink::Error> {
    let addresses = Links::open()?.addresses()?;
    apply(&plan(&addresses, peers), own, mtu)?;
    let alone = |ip: IpAddr| if ip.is_ipv4() { 32 } else { 128 };
    Ok(addresses.iter().filter(|have| have.prefix < alone(have.ip)).map(|have| have.index).collect())
}

/// Links whose changes matter: a link that was down has lost its routes, and a changed address may be on another
/// segment. Pod links change constantly and are ignored.
#[derive(Default)]
struct TrackedLinks {
    links: Mutex<BTreeSet<u32>>,
    changed: Notify,
}

/// Listens for link changes until the process exits or `used` is dropped.
fn listen(used: &Arc<TrackedLinks>) {
    let mut changes = match Changes::open() {
        Ok(changes) => changes,
        Err(error) => {
            tracing::warn!(%error, "failed to subscribe to link changes");
            return;
        }
    };
    let used = Arc::downgrade(used);
    // A dedicated thread that is never joined: a blocking netlink read cannot be interrupted.
    std::thread::spawn(move || {
        while let Ok(changed) = changes.wait() {
            let Some(used) = used.upgrade() else { return };
            let known = used.links.lock().unwrap_or_else(PoisonError::into_inner);
            let is_relevant = changed.is_none_or(|changed| changed.iter().any(|index| known.contains(index)));
            drop(known);
            if is_relevant {
                used.changed.notify_one();
            }
        }
    });
}

/// Extracts addresses and pod CIDRs of a node.
fn peer(node: &Value) -> Peer {
    let texts = |path: &[&str]| node.list_at(path);
    let internal = texts(&["status", "addresses"]).iter().filter(|it| it.str_at(&["type"]) == Some("InternalIP"));
    let addresses: Vec<IpAddr> = internal.filter_map(|it| it.str_at(&["address"])?.parse().ok()).collect();
    let blocks = texts(&["spec", "podCIDRs"]).iter().filter_map(Value::as_str);
    Peer { addresses, pod_cidrs: blocks.filter_map(|text| text.parse().ok()).collect() }
}

#[cfg(test)]
mod tests {
    use apimachinery::json;

    use super::*;

    #[test]
    fn peer_has_the_addresses_and_pod_cidrs_of_the_node() {
        let node = json::parse(
            br#"{"spec": {"podCIDRs": ["10.244.1.0/24", "fd00::/64"]}, "status": {"addresses": [
                {"type": "Hostname", "address": "a"}, {"type": "InternalIP", "address": "192.0.2.1"}]}}"#,
        );
        let peer = peer(&node.unwrap());
        assert_eq!((peer.addresses.len(), peer.pod_cidrs.len()), (1, 2));
    }
}
