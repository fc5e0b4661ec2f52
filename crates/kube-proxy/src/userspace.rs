//! The userspace backend: this process listens on service addresses and copies the data.
//!
//! Cluster IPs are added to a dummy link, so that the kernel delivers their packets locally. External addresses belong
//! to other nodes or a load balancer; a listener on them serves whenever this host has the address. Each frontend with
//! endpoints has a socket. A frontend without endpoints has none, so the kernel rejects connections.
//!
//! ```text
//! client ──> address on the link `kube-userspace` ──> socket of a frontend ──> balance: selection ──> endpoint
//! ```
// DEVIATION: in userspace mode an external address leads to a service only on a node that has it: packets that are only
// routed through a node are not intercepted.

// DEVIATION: in userspace mode endpoints see the node's address instead of the client's, traffic that would be dropped
// is rejected or closed, and SCTP is not served.

mod balance;
mod carry;
mod socket;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError};

use netlink::Protocol;
use netlink::link::{Address, Links};
use netlink::namespace::set_sysctl;
use tokio::task::JoinHandle;

use crate::service_state::{Changes, Frontend, FrontendKind};
use crate::settings::Settings;

use carry::{Front, packets, streams};
use socket::{datagrams_at, streams_at};
use tracing::Instrument;

/// The dummy link that holds the cluster IPs.
pub const LINK: &str = "kube-userspace";

/// Listening sockets and their backends.
#[derive(Debug, Default)]
pub struct Proxy {
    settings: Arc<Settings>,
    fronts: BTreeMap<Frontend, Arc<Front>>,
    /// Accepting tasks by listen address; aborted on drop.
    listening: BTreeMap<(Frontend, IpAddr), JoinHandle<()>>,
    /// Addresses on the link.
    addresses: BTreeSet<IpAddr>,
}

impl Proxy {
    /// Serves exactly these frontends.
    pub async fn everything(&mut self, settings: Settings, changes: &Changes) -> Result<(), netlink::Error> {
        self.settings = Arc::new(settings);
        self.fronts.retain(|frontend, _| changes.frontends.contains_key(frontend));
        for front in self.fronts.values() {
            *front.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&self.settings);
        }
        self.addresses.clear();
        self.change(changes).await
    }

    /// Applies a change.
    pub async fn change(&mut self, changes: &Changes) -> Result<(), netlink::Error> {
        for (frontend, (_, now)) in &changes.frontends {
            match (now, self.fronts.get(frontend)) {
                (None, _) => drop(self.fronts.remove(frontend)),
                (Some(backend), Some(front)) => front.set(backend.clone()),
                (Some(backend), None) => {
                    let front = Front::new(*frontend, backend.clone(), Arc::clone(&self.settings));
                    self.fronts.insert(*frontend, Arc::new(front));
                }
            }
        }
        self.hold_addresses().await?;
        self.listen().await;
        Ok(())
    }

    /// Makes the link have exactly the cluster IPs.
    async fn hold_addresses(&mut self) -> Result<(), netlink::Error> {
        let own = self.fronts.iter().filter(|(_, front)| front.entrance() == FrontendKind::ClusterIp);
        let desired: BTreeSet<IpAddr> = own.map(|(frontend, _)| frontend.address).collect();
        if desired == self.addresses && !desired.is_empty() {
            return Ok(());
        }
        let next = desired.clone();
        let result = tokio::task::spawn_blocking(move || hold(&next)).await;
        result.unwrap_or_else(|error| Err(netlink::Error::Socket(std::io::Error::other(error))))?;
        self.addresses = desired;
        Ok(())
    }

    /// Listens for exactly the frontends that have endpoints.
    async fn listen(&mut self) {
        let mut desired: BTreeMap<(Frontend, IpAddr), Arc<Front>> = BTreeMap::new();
        for (frontend, front) in self.fronts.iter().filter(|(_, front)| front.leads_somewhere()) {
            let node = self.settings.node_addresses.iter();
            let node = node.filter(|ip| frontend.is_node_port() && ip.is_ipv4() == frontend.address.is_ipv4()).copied();
            let own = (!frontend.is_node_port()).then_some(frontend.address);
            desired.extend(node.chain(own).map(|ip| ((*frontend, ip), Arc::clone(front))));
        }
        let ends = |listener_key: &(Frontend, IpAddr), task: &JoinHandle<()>| {
            !desired.contains_key(listener_key) || task.is_finished()
        };
        let finished: Vec<_> = self.listening.extract_if(.., |listener_key, task| ends(listener_key, task)).collect();
        for (_, task) in finished {
            task.abort();
            // The kernel rejects new connections from now on.
            let _ = task.await;
        }
        for ((frontend, ip), front) in desired {
            if self.listening.contains_key(&(frontend, ip)) {
                continue;
            }
            let at = SocketAddr::new(ip, frontend.port);
            let task = match frontend.protocol {
                Protocol::Tcp => streams_at(at).map(|it| tokio::spawn(streams(it, front).in_current_span())),
                Protocol::Udp => {
                    datagrams_at(at).map(|it| tokio::spawn(packets(Arc::new(it), front).in_current_span()))
                }
                Protocol::Sctp => continue,
            };
            match task {
                Ok(task) => drop(self.listening.insert((frontend, ip), task)),
                Err(error) => {
                    tracing::warn!(%at, %error, service = %self.name(&frontend), "failed to listen for a service");
                }
            }
        }
    }

    fn name(&self, frontend: &Frontend) -> Arc<str> {
        self.fronts.get(frontend).map(|front| front.name()).unwrap_or_default()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.values().for_each(JoinHandle::abort);
    }
}

/// Deletes the link with all its addresses.
pub fn clean_up() -> Result<(), netlink::Error> {
    Links::open()?.delete(LINK).map(drop)
}

/// Makes the link have exactly these addresses, except those that another link has.
fn hold(desired: &BTreeSet<IpAddr>) -> Result<(), netlink::Error> {
    let mut links = Links::open()?;
    let index = links.ensure_dummy(LINK)?.index;
    links.set_up(index)?;
    // Otherwise every node would answer ARP requests for all cluster IPs.
    for (path, value) in [("ipv4/conf/all/arp_ignore", "1"), ("ipv4/conf/all/arp_announce", "2")] {
        set_sysctl(path, value).map_err(netlink::Error::Socket)?;
    }
    let (own, others): (Vec<Address>, Vec<Address>) =
        links.addresses()?.into_iter().partition(|address| address.index == index);
    for ip in desired.iter().filter(|ip| !own.iter().chain(&others).any(|have| have.ip == **ip)) {
        links.add_address(&Address { index, ip: *ip, prefix: if ip.is_ipv4() { 32 } else { 128 } })?;
    }
    let link_local = |ip: IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    for old in own.iter().filter(|have| !desired.contains(&have.ip) && !link_local(have.ip)) {
        links.delete_address(old)?;
    }
    Ok(())
}
