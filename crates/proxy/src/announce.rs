//! Who answers for the addresses of load balancers that no machine has: one node for each, and another when that one is gone.
//!
//! Every node that may answer says so by a Lease that it renews. Who of them answers for an address follows from the address and
//! the nodes, so that nobody is asked. The address is lent to the link that leads there, for as long as the Lease holds: the kernel
//! answers ARP and neighbour discovery, and takes the address back by itself when the node cannot renew its Lease any more, which is
//! before another may take it.
//!
//! ```text
//! services ──> addresses in the pool ─┐
//! slices ──> nodes with endpoints ────┼──> holder ──> lent to a link, neighbours are told
//! leases ──> nodes that are there ────┘
//! ```

mod hold;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use client::cache::{Notices, Source};
use client::{Client, DeleteOptions, Patch, Target, WriteOptions};
use machinery::meta::Meta;
use machinery::time::Time;
use machinery::{Key, Resource, Value, value};
use net::Cidr;
use reconcile::kinds;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::follow::Error;
use crate::model::{Service, Slice};
use crate::policy::follow::watch;

pub use hold::{Holding, give_back, networks};

/// Where leases are that cost little.
const NAMESPACE: &str = "kube-node-lease";
/// The label of the leases of those who may answer.
const LABEL: &str = "knarr.dev/load-balancer";
/// The annotation of such a lease that says which networks the node is on.
const NETWORKS: &str = "knarr.dev/networks";
/// How long a node that is silent counts as there, and how often it says that it is.
const DURATION: Duration = Duration::from_secs(10);
const RENEWAL: Duration = Duration::from_secs(3);
/// Changes that may wait; more are looked at all together.
const NOTICES_MAX: usize = 10_000;

/// An unbroken range of addresses, both ends included.
pub type Range = (IpAddr, IpAddr);

/// Which node, and which addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The node's name.
    pub node: String,
    /// The addresses that load balancers are given.
    pub pool: Vec<Range>,
}

/// The nodes that may answer, as far as their leases tell.
#[derive(Debug, Default)]
pub struct Members(BTreeMap<String, Member>);

/// What a node's lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    /// The node.
    pub node: String,
    /// When it was renewed; clocks of others are not compared with ours.
    pub renewed: String,
    /// For how long it holds.
    pub holds: Duration,
    /// The networks that the node is on.
    pub networks: Vec<Cidr>,
}

#[derive(Debug)]
struct Member {
    present: Present,
    until: Instant,
}

/// An address that somebody is to answer for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted {
    /// The address.
    pub ip: IpAddr,
    /// Only these nodes may, where the service's traffic stays on a node; all if there is nothing.
    pub only: Option<BTreeSet<String>>,
}

impl Members {
    /// Leases are so now.
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

    /// Those that are there.
    pub fn alive(&self, now: Instant) -> Vec<&Present> {
        self.0.values().filter(|member| member.until > now).map(|member| &member.present).collect()
    }

    /// When the next of them will be gone if it stays silent.
    fn next_end(&self, now: Instant) -> Option<Instant> {
        self.0.values().map(|member| member.until).filter(|until| *until > now).min()
    }
}

/// Which node answers for an address: one that is on its network, if any is. Each address has an order of nodes of its own, so
/// that they share the work, and that one which goes or comes moves only its own.
pub fn holder<'a>(wanted: &Wanted, alive: &[&'a Present]) -> Option<&'a str> {
    let near = |node: &Present| node.networks.iter().any(|network| network.contains(wanted.ip));
    let is_near = alive.iter().any(|node| near(node));
    let may = |node: &&&Present| {
        (near(node) || !is_near) && wanted.only.as_ref().is_none_or(|only| only.contains(&node.node))
    };
    let nodes = alive.iter().filter(may).map(|node| node.node.as_str());
    nodes.max_by_key(|node| (rank(node, wanted.ip), *node))
}

/// The addresses of the pool that services have.
pub fn wanted<'a>(
    services: impl Iterator<Item = (&'a Key, &'a Service)>,
    slices: &[Slice],
    pool: &[Range],
) -> Vec<Wanted> {
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
    all.into_iter().map(|(ip, only)| Wanted { ip, only }).collect()
}

/// Whether an address is one of the pool's.
pub fn contains(pool: &[Range], ip: IpAddr) -> bool {
    pool.iter().any(|(first, last)| first.is_ipv4() == ip.is_ipv4() && *first <= ip && ip <= *last)
}

/// FNV-1a, and then mixed: without that, texts that end the same keep the order of their beginnings.
fn rank(node: &str, ip: IpAddr) -> u64 {
    let text = format!("{node} {ip}");
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, hash);
    let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ (mixed >> 33)
}

/// Answers for addresses for as long as it is polled.
pub async fn run(client: Client, config: Config) -> Result<(), Error> {
    let mut watches = JoinSet::new();
    let notices = Notices::new(NOTICES_MAX);
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
        // Where endpoints are counts only where traffic stays on their nodes.
        if services_now.iter().filter_map(|it| it.value.as_ref()).any(stays) {
            slices_now.extend(slices.snapshot().objects.iter().filter_map(|it| it.value.clone()));
        }
        let known = services_now.iter().filter_map(|it| Some((&it.key, it.value.as_ref()?)));
        let wanted = wanted(known, &slices_now, &config.pool);
        let now = Instant::now();
        // Where there is nothing to answer for nobody needs to be there.
        if !wanted.is_empty() && renew_at <= now {
            match timeout(RENEWAL, renew(&client, &config.node, &networks())).await {
                Ok(Ok(_)) => valid_until = now + DURATION,
                failed => tracing::warn!(?failed, "cannot say that this node answers for load balancers"),
            }
            renew_at = now + RENEWAL;
        }
        let now = Instant::now();
        members.see(leases.snapshot().objects.iter().filter_map(|it| it.value.clone()), now);
        let alive = members.alive(now);
        let ours = wanted.iter().filter(|wanted| holder(wanted, &alive) == Some(config.node.as_str()));
        let left = valid_until.saturating_duration_since(now);
        let ours: BTreeSet<IpAddr> = ours.map(|wanted| wanted.ip).filter(|_| left.as_secs() > 0).collect();
        holding = holding.set(ours, left).await;
        let wake = if wanted.is_empty() { None } else { members.next_end(now).into_iter().chain([renew_at]).min() };
        match wake {
            Some(at) => drop(tokio::time::timeout_at(at, notices.take()).await),
            None => drop(notices.take().await),
        }
    }
}

/// Leaves at once what this node answers for, to whoever is there.
pub async fn leave(client: &Client, config: &Config) {
    let name = lease_name(&config.node);
    let gone = client.delete(&Target::named(&kinds::LEASES, NAMESPACE, &name), &DeleteOptions::default()).await;
    if let Err(error) = gone
        && !error.is_not_found()
    {
        tracing::warn!(%error, "the lease could not be given back; it runs out by itself");
    }
    if let Err(error) = give_back(&config.pool) {
        tracing::warn!(%error, "addresses could not be given back; they run out by themselves");
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

/// Who says that it is there, since when, and for how long.
fn lease(object: &Value) -> Option<Present> {
    let meta = Meta::of(object);
    meta.label(LABEL)?;
    let spec = object.get("spec")?;
    let seconds = spec.get("leaseDurationSeconds").and_then(Value::as_int).and_then(|it| u64::try_from(it).ok())?;
    let networks = meta.annotation(NETWORKS).unwrap_or_default().split(',');
    Some(Present {
        node: spec.str_at(&["holderIdentity"])?.to_owned(),
        renewed: spec.str_at(&["renewTime"])?.to_owned(),
        // However long somebody says it holds: an address may not be nobody's for hours.
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
    fn every_address_has_one_holder_and_only_those_of_a_node_that_goes_move() {
        let all: Vec<Wanted> = (0..100).map(|last| Wanted { ip: ip(&format!("192.0.2.{last}")), only: None }).collect();
        let [a, b, c] = ["a", "b", "c"].map(|name| present(name, "1", "192.0.2.0/24"));
        let far = present("far", "1", "198.51.100.0/24");
        let (four, three) = ([&a, &b, &c, &far], [&a, &c, &far]);
        let mut shares = BTreeMap::<&str, usize>::new();
        for wanted in &all {
            let (before, after) = (holder(wanted, &four).unwrap(), holder(wanted, &three).unwrap());
            *shares.entry(before).or_default() += 1;
            assert!(before == after || before == "b", "{wanted:?} moved from {before}");
        }
        assert!(shares.len() == 3 && shares.values().all(|share| *share > 15), "{shares:?}");
        assert_eq!(holder(&all[0], &[]), None);
        assert_eq!(holder(&all[0], &[&far]), Some("far"), "somebody is better than nobody");
        let only = Wanted { only: Some(BTreeSet::from(["b".to_owned()])), ..all[0].clone() };
        assert_eq!((holder(&only, &four), holder(&only, &three)), (Some("b"), None));
    }

    #[test]
    fn a_node_is_gone_when_it_was_silent_for_as_long_as_it_said() {
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
        assert_eq!(alive(&members, 12), "b", "one left, the other came back");
    }

    #[test]
    fn traffic_that_stays_is_answered_for_where_it_stays() {
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
        let one = |policy: &str| wanted([(&key, &service(policy))].into_iter(), &slices, &pool);
        assert_eq!(one("Cluster"), [Wanted { ip: ip("192.0.2.9"), only: None }]);
        assert_eq!(one("Local"), [Wanted { ip: ip("192.0.2.9"), only: Some(BTreeSet::from(["a".to_owned()])) }]);
    }
}
