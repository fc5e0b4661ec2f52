//! Layer 2 announcement of load balancer addresses: one node answers for each, and another takes over if it fails.
//!
//! Every node that can answer holds a Lease and renews it. The owner of an address is a function of the address and the
//! live nodes, so the nodes need no coordination. The owner puts the address on the link to its network with a lifetime
//! equal to the Lease's. The kernel answers ARP and neighbour discovery. It removes the address when the node cannot
//! renew its Lease, before another node may take over.
//!
//! ```text
//! services ──> addresses in the pool ─┐
//! slices ──> nodes with endpoints ────┼──> holder ──> put on a link, announced to neighbours
//! leases ──> live nodes ──────────────┘
//! ```

mod hold;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use apimachinery::meta::Meta;
use apimachinery::time::Time;
use apimachinery::{Key, Resource, Value, value};
use client::cache::{ChangeQueue, Source};
use client::{Client, DeleteOptions, Patch, Target, WriteOptions};
use controller::kinds;
use netlink::Cidr;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::policy::sync::watch;
use crate::run::Error;
use crate::service::{Service, Slice};

pub use hold::{Holding, networks, release};

/// Namespace of the Leases: the one of node heartbeats, whose writes are cheap.
const NAMESPACE: &str = "kube-node-lease";
/// Label of the Leases of nodes that can answer.
const LABEL: &str = "knarr.dev/load-balancer";
/// Annotation with the networks that the node is attached to.
const NETWORKS: &str = "knarr.dev/networks";
/// `DURATION` is the lifetime of a Lease, `RENEWAL` the interval of its renewal.
const DURATION: Duration = Duration::from_secs(10);
const RENEWAL: Duration = Duration::from_secs(3);
/// Maximum pending change notices; beyond that everything is evaluated.
const NOTICES_MAX: usize = 10_000;

/// An address range, both ends included.
pub type Range = (IpAddr, IpAddr);

/// Configuration of the announcer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Name of this node.
    pub node: String,
    /// Addresses that load balancers get.
    pub pool: Vec<Range>,
}

/// Nodes that can answer, according to their Leases.
#[derive(Debug, Default)]
pub struct Members(BTreeMap<String, Member>);

/// The content of a node's Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    pub node: String,
    /// `renewTime` as text: only its changes matter, because clocks of nodes are not compared.
    pub renewed: String,
    /// Lifetime after a renewal.
    pub holds: Duration,
    /// Networks that the node is attached to.
    pub networks: Vec<Cidr>,
}

#[derive(Debug)]
struct Member {
    present: Present,
    until: Instant,
}

/// An address that a node must answer for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AnnouncedAddress {
    pub ip: IpAddr,
    /// Candidate nodes under `externalTrafficPolicy: Local`; `None` for all nodes.
    pub only: Option<BTreeSet<String>>,
}

impl Members {
    /// Updates the members from the current Leases.
    pub fn see(&mut self, leases: impl IntoIterator<Item = Present>, now: Instant) {
        let mut before = std::mem::take(&mut self.0);
        for present in leases {
            let until = match before.remove(&present.node) {
                Some(same) if same.present.renewed == present.renewed => same.until,
                _ => now + present.holds,
            };
            self.0.insert(present.node.clone(), Member { present, until });
        }
    }

    /// Returns the nodes whose Lease has not expired.
    pub fn alive(&self, now: Instant) -> Vec<&Present> {
        self.0.values().filter(|member| member.until > now).map(|member| &member.present).collect()
    }

    /// Returns the next expiry of a Lease.
    fn next_end(&self, now: Instant) -> Option<Instant> {
        self.0.values().map(|member| member.until).filter(|until| *until > now).min()
    }
}

/// Returns the node that answers for an address, preferably one attached to its network. Rendezvous hashing: addresses
/// are spread over nodes, and a node that joins or leaves moves only its own addresses.
pub fn holder<'a>(address: &AnnouncedAddress, alive: &[&'a Present]) -> Option<&'a str> {
    let near = |node: &Present| node.networks.iter().any(|network| network.contains(address.ip));
    let is_near = alive.iter().any(|node| near(node));
    let may = |node: &&&Present| {
        (near(node) || !is_near) && address.only.as_ref().is_none_or(|only| only.contains(&node.node))
    };
    let nodes = alive.iter().filter(may).map(|node| node.node.as_str());
    nodes.max_by_key(|node| (rank(node, address.ip), *node))
}

/// Returns the addresses of the pool that services use.
pub fn announced_addresses<'a>(
    services: impl Iterator<Item = (&'a Key, &'a Service)>,
    slices: &[Slice],
    pool: &[Range],
) -> Vec<AnnouncedAddress> {
    let mut all = BTreeMap::new();
    for (key, service) in services {
        for ip in service.load_balancer_ips.iter().filter(|ip| contains(pool, **ip)) {
            let only = service.external_local.then(|| {
                let own = slices.iter().filter(|slice| slice.service == *key).flat_map(|slice| &slice.endpoints);
                own.filter(|endpoint| endpoint.ready).map(|endpoint| endpoint.node.clone()).collect()
            });
            all.insert(*ip, only);
        }
    }
    all.into_iter().map(|(ip, only)| AnnouncedAddress { ip, only }).collect()
}

/// Whether an address is in the pool.
pub fn contains(pool: &[Range], ip: IpAddr) -> bool {
    pool.iter().any(|(first, last)| first.is_ipv4() == ip.is_ipv4() && *first <= ip && ip <= *last)
}

/// FNV-1a with a final mix: without it, texts with equal suffixes keep the order of their prefixes.
fn rank(node: &str, ip: IpAddr) -> u64 {
    let text = format!("{node} {ip}");
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, hash);
    let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ (mixed >> 33)
}

/// Announces addresses for as long as the future is polled.
pub async fn run(client: Client, config: Config) -> Result<(), Error> {
    let mut watches = JoinSet::new();
    let notices = ChangeQueue::new(NOTICES_MAX);
    let all = |resource: &Resource| Source::all(client.clone(), resource.clone());
    let services = watch(&mut watches, all(&kinds::SERVICES), &notices, |object| Service::read(&object));
    let slices = watch(&mut watches, all(&kinds::ENDPOINT_SLICES), &notices, |object| Slice::read(&object));
    let leases = Source { namespace: NAMESPACE.into(), label_selector: LABEL.to_owned(), ..all(&kinds::LEASES) };
    let leases = watch(&mut watches, leases, &notices, |object| lease(&object));
    services.synced().await?;
    slices.synced().await?;
    leases.synced().await?;
    let mut members = Members::default();
    let mut holding = Holding::new(config.pool.clone());
    let (mut renew_at, mut valid_until) = (Instant::now(), Instant::now());
    loop {
        let services_now = services.snapshot().objects;
        let stays = |service: &Service| service.external_local && !service.load_balancer_ips.is_empty();
        let mut slices_now = Vec::new();
        // Endpoints matter only to services with `externalTrafficPolicy: Local`.
        if services_now.iter().filter_map(|it| it.value.as_ref()).any(stays) {
            slices_now.extend(slices.snapshot().objects.iter().filter_map(|it| it.value.clone()));
        }
        let known = services_now.iter().filter_map(|it| Some((&it.key, it.value.as_ref()?)));
        let announced = announced_addresses(known, &slices_now, &config.pool);
        let now = Instant::now();
        // Without addresses to announce no Lease is needed.
        if !announced.is_empty() && renew_at <= now {
            match timeout(RENEWAL, renew(&client, &config.node, &networks())).await {
                Ok(Ok(_)) => valid_until = now + DURATION,
                failed => tracing::warn!(?failed, "failed to renew the Lease for load balancer addresses"),
            }
            renew_at = now + RENEWAL;
        }
        let now = Instant::now();
        members.see(leases.snapshot().objects.iter().filter_map(|it| it.value.clone()), now);
        let alive = members.alive(now);
        let own = announced.iter().filter(|announced| holder(announced, &alive) == Some(config.node.as_str()));
        let left = valid_until.saturating_duration_since(now);
        let own: BTreeSet<IpAddr> = own.map(|announced| announced.ip).filter(|_| left.as_secs() > 0).collect();
        holding = holding.set(own, left).await;
        let wake = if announced.is_empty() { None } else { members.next_end(now).into_iter().chain([renew_at]).min() };
        match wake {
            Some(at) => drop(tokio::time::timeout_at(at, notices.take()).await),
            None => drop(notices.take().await),
        }
    }
}

/// Releases the addresses of this node immediately, so that other nodes can take over.
pub async fn leave(client: &Client, config: &Config) {
    let name = lease_name(&config.node);
    let result = client.delete(&Target::named(&kinds::LEASES, NAMESPACE, &name), &DeleteOptions::default()).await;
    if let Err(error) = result
        && !error.is_not_found()
    {
        tracing::warn!(%error, "failed to release the Lease; it will expire");
    }
    if let Err(error) = release(&config.pool) {
        tracing::warn!(%error, "failed to remove the load balancer addresses; they will expire");
    }
}

fn lease_name(node: &str) -> String {
    format!("load-balancer-{node}")
}

async fn renew(client: &Client, node: &str, networks: &str) -> Result<Value, client::Error> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Time::from_unix(since.as_secs().try_into().unwrap_or(i64::MAX), since.subsec_nanos());
    let name = lease_name(node);
    let lease = value!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": (name.as_str()),
            "namespace": NAMESPACE,
            "labels": {"knarr.dev/load-balancer": ""},
            "annotations": {"knarr.dev/networks": networks},
        },
        "spec": {
            "holderIdentity": node,
            "leaseDurationSeconds": (i64::try_from(DURATION.as_secs()).unwrap_or(i64::MAX)),
            "renewTime": (now.micro().to_string()),
        },
    });
    let options = WriteOptions { field_manager: "knarr-network".to_owned(), force: true, ..WriteOptions::default() };
    client.patch(&Target::named(&kinds::LEASES, NAMESPACE, &name), &Patch::Apply(lease), &options).await
}

/// Parses the Lease of a node; `None` if it is not valid.
fn lease(object: &Value) -> Option<Present> {
    let meta = Meta::of(object);
    meta.label(LABEL)?;
    let spec = object.get("spec")?;
    let seconds = spec.get("leaseDurationSeconds").and_then(Value::as_int).and_then(|it| u64::try_from(it).ok())?;
    let networks = meta.annotation(NETWORKS).unwrap_or_default().split(',');
    Some(Present {
        node: spec.str_at(&["holderIdentity"])?.to_owned(),
        renewed: spec.str_at(&["renewTime"])?.to_owned(),
        // The lifetime is capped: a Lease with a wrong duration must not leave an address unanswered for hours.
        holds: Duration::from_secs(seconds).min(6 * DURATION),
        networks: networks.filter_map(|text| text.parse().ok()).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn present(node: &str, renewed: &str, network: &str) -> Present {
        let networks = Cidr::parse_list(network).unwrap();
        Present { node: node.to_owned(), renewed: renewed.to_owned(), holds: DURATION, networks }
    }

    #[test]
    fn every_address_has_one_holder_and_a_leaving_node_moves_only_its_own() {
        let all: Vec<AnnouncedAddress> =
            (0..100).map(|last| AnnouncedAddress { ip: ip(&format!("192.0.2.{last}")), only: None }).collect();
        let [a, b, c] = ["a", "b", "c"].map(|name| present(name, "1", "192.0.2.0/24"));
        let far = present("far", "1", "198.51.100.0/24");
        let (four, three) = ([&a, &b, &c, &far], [&a, &c, &far]);
        let mut shares = BTreeMap::<&str, usize>::new();
        for address in &all {
            let (before, after) = (holder(address, &four).unwrap(), holder(address, &three).unwrap());
            *shares.entry(before).or_default() += 1;
            assert!(before == after || before == "b", "{address:?} moved from {before}");
        }
        assert!(shares.len() == 3 && shares.values().all(|share| *share > 15), "{shares:?}");
        assert_eq!(holder(&all[0], &[]), None);
        assert_eq!(holder(&all[0], &[&far]), Some("far"), "a node outside of the network is better than none");
        let only = AnnouncedAddress { only: Some(BTreeSet::from(["b".to_owned()])), ..all[0].clone() };
        assert_eq!((holder(&only, &four), holder(&only, &three)), (Some("b"), None));
    }

    #[test]
    fn node_is_dead_after_its_lease_duration_without_renewal() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let lease = |node: &str, renewed: &str| present(node, renewed, "");
        let alive = |members: &Members, seconds| {
            members.alive(at(seconds)).iter().map(|it| it.node.as_str()).collect::<Vec<_>>().join(" ")
        };
        let mut members = Members::default();
        members.see([lease("a", "1"), lease("b", "1")], at(0));
        members.see([lease("a", "2"), lease("b", "1")], at(6));
        assert_eq!(alive(&members, 9), "a b");
        assert_eq!(alive(&members, 11), "a");
        assert_eq!(members.next_end(at(11)), Some(at(16)));
        members.see([lease("b", "2")], at(12));
        assert_eq!(alive(&members, 12), "b", "one node expired, another returned");
    }

    #[test]
    fn external_traffic_policy_local_restricts_holders_to_nodes_with_endpoints() {
        let service = |policy: &str| {
            Service::read(&value!({"spec": {"clusterIP": "10.96.0.1", "externalTrafficPolicy": policy},
                "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}, {"ip": "198.51.100.1"}]}}}))
            .unwrap()
        };
        let slice = value!({"metadata": {"namespace": "x", "labels": {"kubernetes.io/service-name": "web"}}, "endpoints": [
            {"addresses": ["10.1.0.1"], "nodeName": "a"},
            {"addresses": ["10.1.0.2"], "nodeName": "b", "conditions": {"ready": false}}]});
        let slices = [Slice::read(&slice).unwrap()];
        let pool = [(ip("192.0.2.0"), ip("192.0.2.255"))];
        let key = Key::new("x", "web");
        let one = |policy: &str| announced_addresses([(&key, &service(policy))].into_iter(), &slices, &pool);
        assert_eq!(one("Cluster"), [AnnouncedAddress { ip: ip("192.0.2.9"), only: None }]);
        assert_eq!(
            one("Local"),
            [AnnouncedAddress { ip: ip("192.0.2.9"), only: Some(BTreeSet::from(["a".to_owned()])) }]
        );
    }
}
