//! Who may ask, and how much: pods, the nodes of the cluster and this machine, each within a rate.
//!
//! A resolver that answers everybody is used to flood others with answers, so the server ignores packets of anybody else. The rate
//! keeps one pod from using up the server, and the resolvers behind it, for all others.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use net::Cidr;
use net::link::Links;

/// What a client may spend a second. An answer from the cluster's zone costs one, a question for another resolver [`FORWARD_COST`].
const UNITS_PER_SECOND: u32 = 10_000;
/// What a client that was silent may spend at once.
const UNITS_MAX: u32 = 2 * UNITS_PER_SECOND;
/// What a question costs that is passed on to another resolver.
pub const FORWARD_COST: u32 = 10;
/// What an answer from the cluster's zone costs.
pub const ANSWER_COST: u32 = 1;
/// How many connections one client has at once.
const CONNECTIONS_MAX: u32 = 64;
/// How many clients are remembered. Beyond it those are forgotten that have spent nothing lately.
const CLIENTS_MAX: usize = 16_384;

/// Whom the server answers.
#[derive(Debug, Default)]
pub struct Clients {
    /// Where pods are; nothing to answer everybody.
    pods: Option<Vec<Cidr>>,
    /// The addresses of this machine that the server listens on.
    own: Vec<IpAddr>,
    state: Mutex<State>,
}

/// How often the kernel is asked for this machine's other addresses at most.
const LOCAL_SPAN: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct State {
    /// The other machines of the cluster.
    nodes: BTreeMap<String, Vec<IpAddr>>,
    /// Their addresses.
    node_ips: BTreeSet<IpAddr>,
    /// All addresses of this machine, and when the kernel was asked for them.
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

/// A place among a client's connections, until it is dropped.
#[derive(Debug)]
pub struct Place<'a> {
    clients: &'a Clients,
    ip: IpAddr,
}

impl Clients {
    /// Everybody may ask.
    pub fn everybody() -> Self {
        Self::default()
    }

    /// Only pods with these addresses, nodes and this machine, which listens on these addresses, may ask.
    pub fn of_cluster(pods: Vec<Cidr>, listeners: &[SocketAddr]) -> Self {
        let own = listeners.iter().map(SocketAddr::ip).collect();
        Self { pods: Some(pods), own, state: Mutex::default() }
    }

    /// A node has these addresses; none if it is gone.
    pub fn set_node(&self, name: &str, addresses: Vec<IpAddr>) {
        let mut state = self.state();
        if addresses.is_empty() {
            state.nodes.remove(name);
        } else {
            state.nodes.insert(name.to_owned(), addresses);
        }
        state.node_ips = state.nodes.values().flatten().copied().collect();
    }

    /// The names of all nodes that are known.
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

    /// Whether a client may spend so much now; if it may, it is spent.
    pub fn spend(&self, ip: IpAddr, units: u32, now: Instant) -> bool {
        let ip = ip.to_canonical();
        // This machine may do to itself what it likes.
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

    /// A place for one more connection of a client, if it does not have too many.
    pub fn connect(&self, ip: IpAddr, now: Instant) -> Option<Place<'_>> {
        let ip = ip.to_canonical();
        let mut state = self.state();
        let spending = state.of(ip, now)?;
        if spending.connections >= CONNECTIONS_MAX {
            return None;
        }
        spending.connections += 1;
        Some(Place { clients: self, ip })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether this machine has the address, on whichever link: its processes may ask from any of them.
    fn is_local(&mut self, ip: IpAddr, now: Instant) -> bool {
        if self.local_since.is_none_or(|since| now.saturating_duration_since(since) >= LOCAL_SPAN) {
            self.local_since = Some(now);
            match Links::open().and_then(|mut links| links.addresses()) {
                Ok(addresses) => self.local = addresses.iter().map(|address| address.ip).collect(),
                Err(error) => tracing::warn!(%error, "failed to list this machine's addresses"),
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
        // Less than one unit is left for the next time.
        if earned > 0 {
            self.units = u32::try_from(earned).unwrap_or(u32::MAX).saturating_add(self.units).min(UNITS_MAX);
            self.since = now;
        }
    }
}

impl Drop for Place<'_> {
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
    fn only_pods_nodes_and_this_machine_may_ask() {
        let (clients, now) = (cluster(), Instant::now());
        clients.set_node("two", vec![ip("192.0.2.2")]);
        // What the kernel says of the machine that runs the test is not asked.
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
            assert!(Clients::everybody().includes(ip(text), now));
        }
        clients.set_node("two", Vec::new());
        assert!(!clients.includes(ip("192.0.2.2"), now), "a node that was removed");
    }

    #[test]
    fn a_client_spends_no_more_than_its_rate_and_others_are_not_held_up() {
        let (clients, begun) = (cluster(), Instant::now());
        let spent = |from: &str, after_ms: u64| {
            let now = begun + Duration::from_millis(after_ms);
            std::iter::repeat_with(|| clients.spend(ip(from), FORWARD_COST, now)).take_while(|may| *may).count()
        };
        let all = (UNITS_MAX / FORWARD_COST) as usize;
        assert_eq!(spent("10.244.0.2", 0), all);
        assert_eq!(spent("10.244.0.3", 0), all, "another pod");
        assert_eq!(spent("10.244.0.2", 100), all / 20, "a tenth of a second's worth");
        assert_eq!(spent("10.244.0.2", 60_000), all);
        assert!((0..2 * all).all(|_| clients.spend(ip("192.0.2.1"), FORWARD_COST, begun)), "this machine");
    }

    #[test]
    fn a_client_has_no_more_connections_than_its_share() {
        let (clients, now) = (cluster(), Instant::now());
        let mut places: Vec<_> =
            (0..CONNECTIONS_MAX).map(|_| clients.connect(ip("10.244.0.2"), now).unwrap()).collect();
        assert!(clients.connect(ip("10.244.0.2"), now).is_none());
        assert!(clients.connect(ip("10.244.0.3"), now).is_some());
        places.pop();
        assert!(clients.connect(ip("10.244.0.2"), now).is_some());
    }

    #[test]
    fn the_number_of_remembered_clients_is_bounded() {
        let (clients, now) = (cluster(), Instant::now());
        for number in 0..CLIENTS_MAX + 10 {
            let ip = IpAddr::from((0x0af4_0000 + u32::try_from(number).unwrap()).to_be_bytes());
            assert_eq!(clients.spend(ip, 1, now), number < CLIENTS_MAX, "all of them have spent something just now");
        }
        assert!(clients.spend(ip("10.244.255.255"), 1, now + Duration::from_secs(9)), "those at rest are forgotten");
        assert_eq!(clients.state().spending.len(), 1);
    }
}
