//! DNS client access: pods, the nodes of the cluster and this host, each with a rate limit.
//!
//! An open resolver can be abused for amplification attacks, so the server ignores packets from all other sources. The
//! rate limit prevents one pod from exhausting the server and its upstream resolvers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use netlink::Cidr;
use netlink::link::Links;

/// Rate limit per client. An answer from the cluster's zone costs [`ANSWER_COST`], a forwarded query [`FORWARD_COST`].
const UNITS_PER_SECOND: u32 = 10_000;
/// Maximum burst of an idle client.
const UNITS_MAX: u32 = 2 * UNITS_PER_SECOND;
/// Cost of a query that is forwarded to another resolver.
pub const FORWARD_COST: u32 = 10;
/// Cost of an answer from the cluster's zone.
pub const ANSWER_COST: u32 = 1;
/// Maximum concurrent connections per client.
const CONNECTIONS_MAX: u32 = 64;
/// Maximum tracked clients; beyond that, clients with a full budget are dropped.
const CLIENTS_MAX: usize = 16_384;

/// Clients that the server answers.
#[derive(Debug, Default)]
pub struct Clients {
    /// Pod CIDRs; `None` answers all clients.
    pods: Option<Vec<Cidr>>,
    /// Listen addresses of the server.
    own: Vec<IpAddr>,
    state: Mutex<State>,
}

/// Minimum interval between queries for the addresses of this host.
const LOCAL_SPAN: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct State {
    /// Addresses of the other nodes, by node name.
    nodes: BTreeMap<String, Vec<IpAddr>>,
    /// All addresses in `nodes`.
    node_ips: BTreeSet<IpAddr>,
    /// All addresses of this host; `local_since` is when they were queried.
    local: BTreeSet<IpAddr>,
    local_since: Option<Instant>,
    spending: BTreeMap<IpAddr, Spending>,
}

#[derive(Clone, Copy, Debug)]
struct Spending {
    units: u32,
    since: Instant,
    connections: u32,
}

/// A connection slot of a client, released on drop.
#[derive(Debug)]
pub struct ConnectionSlot<'a> {
    clients: &'a Clients,
    ip: IpAddr,
}

impl Clients {
    /// Allows all clients.
    pub fn all() -> Self {
        Self::default()
    }

    /// Allows only pods with these addresses, nodes and this host, which listens on these addresses.
    pub fn of_cluster(pods: Vec<Cidr>, listeners: &[SocketAddr]) -> Self {
        let own = listeners.iter().map(SocketAddr::ip).collect();
        Self { pods: Some(pods), own, state: Mutex::default() }
    }

    /// Sets the addresses of a node; an empty list removes the node.
    pub fn set_node(&self, name: &str, addresses: Vec<IpAddr>) {
        let mut state = self.state();
        if addresses.is_empty() {
            state.nodes.remove(name);
        } else {
            state.nodes.insert(name.to_owned(), addresses);
        }
        state.node_ips = state.nodes.values().flatten().copied().collect();
    }

    /// Returns the names of all known nodes.
    pub fn nodes(&self) -> Vec<String> {
        self.state().nodes.keys().cloned().collect()
    }

    /// Whether an address belongs to the cluster.
    pub fn includes(&self, ip: IpAddr, now: Instant) -> bool {
        let ip = ip.to_canonical();
        let Some(pods) = &self.pods else { return true };
        if ip.is_loopback() || self.own.contains(&ip) || pods.iter().any(|block| block.contains(ip)) {
            return true;
        }
        let mut state = self.state();
        state.node_ips.contains(&ip) || state.is_local(ip, now)
    }

    /// Deducts `units` from a client's budget; returns false if the budget does not suffice.
    pub fn spend(&self, ip: IpAddr, units: u32, now: Instant) -> bool {
        let ip = ip.to_canonical();
        // This host is not limited.
        if ip.is_loopback() || self.own.contains(&ip) {
            return true;
        }
        let mut state = self.state();
        let Some(spending) = state.of(ip, now) else { return false };
        spending.refill(now);
        let rest = spending.units.checked_sub(units);
        spending.units = rest.unwrap_or(spending.units);
        rest.is_some()
    }

    /// Allocates a connection slot for a client; `None` if the client has its maximum.
    pub fn connect(&self, ip: IpAddr, now: Instant) -> Option<ConnectionSlot<'_>> {
        let ip = ip.to_canonical();
        let mut state = self.state();
        let spending = state.of(ip, now)?;
        if spending.connections >= CONNECTIONS_MAX {
            return None;
        }
        spending.connections += 1;
        Some(ConnectionSlot { clients: self, ip })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether this host has the address on any link: its processes may use any of them as source.
    fn is_local(&mut self, ip: IpAddr, now: Instant) -> bool {
        if self.local_since.is_none_or(|since| now.saturating_duration_since(since) >= LOCAL_SPAN) {
            self.local_since = Some(now);
            match Links::open().and_then(|mut links| links.addresses()) {
                Ok(addresses) => self.local = addresses.iter().map(|address| address.ip).collect(),
                Err(error) => tracing::warn!(%error, "failed to list the addresses of this host"),
            }
        }
        self.local.contains(&ip)
    }

    fn of(&mut self, ip: IpAddr, now: Instant) -> Option<&mut Spending> {
        if !self.spending.contains_key(&ip) && self.spending.len() >= CLIENTS_MAX {
            self.spending.retain(|_, spending| {
                spending.refill(now);
                spending.connections > 0 || spending.units < UNITS_MAX
            });
            if self.spending.len() >= CLIENTS_MAX {
                return None;
            }
        }
        Some(self.spending.entry(ip).or_insert(Spending { units: UNITS_MAX, since: now, connections: 0 }))
    }
}

impl Spending {
    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since).min(Duration::from_secs(u64::from(UNITS_MAX)));
        let earned = passed.as_micros() * u128::from(UNITS_PER_SECOND) / 1_000_000;
        // A fraction of a unit is carried over to the next update.
        if earned > 0 {
            self.units = u32::try_from(earned).unwrap_or(u32::MAX).saturating_add(self.units).min(UNITS_MAX);
            self.since = now;
        }
    }
}

impl Drop for ConnectionSlot<'_> {
    fn drop(&mut self) {
        if let Some(spending) = self.clients.state().spending.get_mut(&self.ip) {
            spending.connections = spending.connections.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn cluster() -> Clients {
        let pods = Cidr::parse_list("10.244.0.0/16,fd00:244::/48").unwrap();
        Clients::of_cluster(pods, &["192.0.2.1:10053".parse().unwrap()])
    }

    #[test]
    fn only_pods_nodes_and_this_host_are_served() {
        let (clients, now) = (cluster(), Instant::now());
        clients.set_node("two", vec![ip("192.0.2.2")]);
        // The addresses of the host that runs the test are not queried.
        clients.state().local_since = Some(now);
        clients.state().local = BTreeSet::from([ip("198.51.100.7")]);
        for (text, expect) in [
            ("10.244.3.4", true),
            ("fd00:244::9", true),
            ("::ffff:10.244.3.4", true),
            ("127.0.0.1", true),
            ("::1", true),
            ("192.0.2.1", true),
            ("192.0.2.2", true),
            ("198.51.100.7", true),
            ("192.0.2.3", false),
            ("::ffff:192.0.2.3", false),
            ("10.245.0.1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(clients.includes(ip(text), now), expect, "{text}");
            assert!(Clients::all().includes(ip(text), now));
        }
        clients.set_node("two", Vec::new());
        assert!(!clients.includes(ip("192.0.2.2"), now), "a node that was removed");
    }

    #[test]
    fn client_rate_limit_does_not_affect_other_clients() {
        let (clients, started) = (cluster(), Instant::now());
        let spent = |from: &str, after_ms: u64| {
            let now = started + Duration::from_millis(after_ms);
            std::iter::repeat_with(|| clients.spend(ip(from), FORWARD_COST, now)).take_while(|may| *may).count()
        };
        let all = (UNITS_MAX / FORWARD_COST) as usize;
        assert_eq!(spent("10.244.0.2", 0), all);
        assert_eq!(spent("10.244.0.3", 0), all, "another pod");
        assert_eq!(spent("10.244.0.2", 100), all / 20, "tokens of a tenth of a second");
        assert_eq!(spent("10.244.0.2", 60_000), all);
        assert!((0..2 * all).all(|_| clients.spend(ip("192.0.2.1"), FORWARD_COST, started)), "this machine");
    }

    #[test]
    fn connections_per_client_are_limited() {
        let (clients, now) = (cluster(), Instant::now());
        let mut places: Vec<_> =
            (0..CONNECTIONS_MAX).map(|_| clients.connect(ip("10.244.0.2"), now).unwrap()).collect();
        assert!(clients.connect(ip("10.244.0.2"), now).is_none());
        assert!(clients.connect(ip("10.244.0.3"), now).is_some());
        places.pop();
        assert!(clients.connect(ip("10.244.0.2"), now).is_some());
    }

    #[test]
    fn number_of_tracked_clients_is_bounded() {
        let (clients, now) = (cluster(), Instant::now());
        for number in 0..CLIENTS_MAX + 10 {
            let ip = IpAddr::from((0x0af4_0000 + u32::try_from(number).unwrap()).to_be_bytes());
            assert_eq!(clients.spend(ip, 1, now), number < CLIENTS_MAX, "all clients have used tokens recently");
        }
        assert!(clients.spend(ip("10.244.255.255"), 1, now + Duration::from_secs(9)), "idle clients are removed");
        assert_eq!(clients.state().spending.len(), 1);
    }
}
