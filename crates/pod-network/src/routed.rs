//! The built-in pod network: a veth pair between each pod and the node, and a route to the pod.
//!
//! A pod has a host address (`/32`, `/128`) and the node as its gateway. Every packet between pods passes the node's
//! routing and packet rules, whether they share a node or not. Services, policies and connection tracking therefore
//! work without bridge netfilter.
//!
//! ```text
//!   pod: eth0 10.244.1.7/32 ── default via 10.244.1.1 ──┐
//!                                                       │ veth pair
//!   node: kn… 10.244.1.1/32, route 10.244.1.7 ──────────┴── routing, rules ── other nodes, external networks
//! ```

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use netlink::Protocol;
use netlink::bandwidth::{self, Bandwidth};
use netlink::cidr::Cidr;
use netlink::conntrack;
use netlink::link::{Address, Hop, Links, Peer, Route, Routes, hardware_of};
use netlink::namespace::{set_sysctl, within};

use crate::ipam::{Lease, Leases, LockedLeases, gateway, host_name, shaping_name};
use crate::network::{Attachment, Network, NetworkError, NetworkFuture};
use crate::port_mapping::PortMapping;
use crate::{mesh, pod_rules};

pub const INTERFACE: &str = "eth0";

/// Configuration of the built-in network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Pod CIDRs of the node, one per address family, primary first; empty until set.
    pub pod_cidrs: Vec<Cidr>,
    /// Destinations that pods reach with their own address: pods of other nodes.
    pub cluster_cidrs: Vec<Cidr>,
    /// MTU of pods; `None` uses the uplink's.
    pub mtu: Option<u32>,
    /// Bytes that a tunnel between nodes adds to a packet.
    pub overhead: u32,
    /// Whether traffic from pods to external networks is masqueraded.
    pub masquerade: bool,
    /// Whether a link accepts only packets with its own source addresses. Must be false for links to namespace nodes,
    /// which forward packets of their pods and bind the links of those pods themselves.
    pub bind_sources: bool,
    /// Whether an owner gets its previous addresses again until it is removed. Intended for few, permanent owners.
    pub keep_addresses: bool,
    /// Name of the nftables table.
    pub table: String,
    /// Directory of the lease file.
    pub state: PathBuf,
}

#[derive(Clone)]
pub struct RoutedNetwork(Arc<Inner>);

struct Inner {
    config: Config,
    /// Set by the kubelet, or loaded from the last run.
    pod_cidrs: Mutex<Vec<Cidr>>,
    /// Pod CIDRs and MTU for which routes and rules are set up, so that a new pod adds only its own.
    ready_for: Mutex<Option<(Vec<Cidr>, u32)>>,
}

impl Config {
    /// Creates the default configuration with this state directory.
    pub fn new(state: &Path) -> Self {
        Self {
            pod_cidrs: Vec::new(),
            cluster_cidrs: Vec::new(),
            mtu: None,
            overhead: 0,
            masquerade: true,
            bind_sources: true,
            keep_addresses: false,
            table: "knarr-pods".to_owned(),
            state: state.to_owned(),
        }
    }
}

impl RoutedNetwork {
    /// Creates the network; makes no changes to the kernel.
    pub fn new(config: Config) -> Self {
        let mut pod_cidrs = config.pod_cidrs.clone();
        if pod_cidrs.is_empty()
            && let Ok(locked) = LockedLeases::open(&config.state)
        {
            pod_cidrs = locked.leases.pod_cidrs.iter().filter_map(|text| text.parse().ok()).collect();
        }
        let shared = Inner { config, pod_cidrs: Mutex::new(pod_cidrs), ready_for: Mutex::new(None) };
        Self(Arc::new(shared))
    }

    /// Attaches one interface of a sandbox.
    pub fn add(
        &self,
        netns: &Path,
        sandbox: &str,
        interface: &str,
        ports: &[PortMapping],
    ) -> Result<Lease, NetworkError> {
        let blocks = self.pod_cidrs();
        if blocks.is_empty() {
            return Err(NetworkError::NoAddresses);
        }
        let owner = owner(sandbox, interface);
        let mut locked = LockedLeases::open(&self.0.config.state)?;
        self.disconnect(&mut locked, &owner)?;
        let mtu = self.prepare(&blocks, &locked.leases)?;
        // Saved before use: an address is never allocated twice, even after a crash.
        let lease = locked.leases.take(&owner, &blocks, ports)?;
        locked.save()?;
        // The rules come first: the pod can never send from an address that it does not have.
        let guarded = self.change_rules(&pod_rules::added(&self.0.config.table, &owner, &lease), &locked);
        let connected = guarded.and_then(|()| self.connect(netns, &owner, interface, &lease, &blocks, mtu));
        if let Err(error) = connected {
            self.disconnect(&mut locked, &owner)?;
            return Err(error);
        }
        delete_udp_flows(&lease);
        Ok(lease)
    }

    /// Limits the bandwidth of a sandbox.
    pub fn limit(&self, sandbox: &str, interface: &str, bandwidth: Bandwidth) -> Result<(), NetworkError> {
        let owner = owner(sandbox, interface);
        let mut links = Links::open()?;
        let missing = || NetworkError::Damaged("its link on the node does not exist".to_owned());
        let index = links.find(&host_name(&owner))?.ok_or_else(missing)?.index;
        if let Some(rate) = bandwidth.ingress {
            bandwidth::limit(index, rate)?;
        }
        if let Some(rate) = bandwidth.egress {
            let through = links.ensure_ifb(&shaping_name(&owner))?.index;
            links.set_up(through)?;
            bandwidth::limit(through, rate)?;
            bandwidth::redirect(index, through)?;
        }
        Ok(())
    }

    /// Detaches one interface of a sandbox, even if it is only partially attached.
    pub fn remove(&self, sandbox: &str, interface: &str) -> Result<(), NetworkError> {
        let mut locked = LockedLeases::open(&self.0.config.state)?;
        self.detach_and_release(&mut locked, &owner(sandbox, interface))
    }

    /// Checks that an interface is as it was set up.
    pub fn inspect(&self, netns: &Path, sandbox: &str, interface: &str) -> Result<(), NetworkError> {
        let owner = owner(sandbox, interface);
        let lease = LockedLeases::open(&self.0.config.state)?.leases.owners.get(&owner).cloned();
        let lease = lease.ok_or_else(|| NetworkError::Damaged("it has no address lease".to_owned()))?;
        let mut links = Links::open()?;
        if links.find(&host_name(&owner))?.is_none_or(|link| !link.up) {
            return Err(NetworkError::Damaged("its link on the node does not exist or is down".to_owned()));
        }
        let there = within(netns, || interface_addresses(interface))
            .map_err(NetworkError::io("enter the sandbox's network namespace"))??;
        match lease.ips.iter().find(|ip| !there.contains(ip)) {
            Some(ip) => Err(NetworkError::Damaged(format!("its interface lacks the address {ip}"))),
            None => Ok(()),
        }
    }

    /// Returns the lease of an interface.
    pub fn lease(&self, sandbox: &str, interface: &str) -> Result<Option<Lease>, NetworkError> {
        Ok(LockedLeases::open(&self.0.config.state)?.leases.owners.get(&owner(sandbox, interface)).cloned())
    }

    /// Detaches all sandboxes for which `alive` returns false.
    pub fn retain(&self, alive: impl Fn(&str) -> bool) -> Result<(), NetworkError> {
        let mut locked = LockedLeases::open(&self.0.config.state)?;
        let stale = |owner: &&String| !alive(owner.split('/').next().unwrap_or_default());
        let stale: Vec<String> = locked.leases.owners.keys().filter(stale).cloned().collect();
        for owner in stale {
            self.detach_and_release(&mut locked, &owner)?;
        }
        Ok(())
    }

    /// Sets up the node's side now instead of with the first pod.
    pub fn start(&self) -> Result<(), NetworkError> {
        let blocks = self.pod_cidrs();
        if blocks.is_empty() {
            return Ok(());
        }
        let locked = LockedLeases::open(&self.0.config.state)?;
        self.prepare(&blocks, &locked.leases).map(drop)
    }

    /// Removes everything that this network created, including the links of pods.
    pub fn clean_up(&self) -> Result<(), NetworkError> {
        let mut locked = LockedLeases::open(&self.0.config.state)?;
        let owners: Vec<String> = locked.leases.owners.keys().cloned().collect();
        let mut links = Links::open()?;
        for owner in owners {
            links.delete(&host_name(&owner))?;
            links.delete(&shaping_name(&owner))?;
            self.release_or_reserve(&mut locked.leases, &owner);
        }
        let mut pods = self.pod_cidrs();
        for route in links.routes(Routes::Managed)? {
            // Our routes lead to pods, also of other nodes, except the default route of a node that itself runs in a
            // namespace.
            pods.extend(Some(route.to).filter(|to| to.prefix() > 0));
            links.delete_route(&route)?;
        }
        links.delete(mesh::TUNNEL)?;
        pod_rules::no_rules(&self.0.config.table).commit()?;
        let own: Vec<IpAddr> = links.addresses()?.iter().map(|address| address.ip).collect();
        conntrack::delete_pod_flows(&pods, &own)?;
        *self.0.ready_for.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(locked.save()?)
    }

    pub fn pod_cidrs(&self) -> Vec<Cidr> {
        self.0.pod_cidrs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stores the pod CIDRs; routes and rules are set up with the first pod.
    pub fn remember_pod_cidrs(&self, blocks: Vec<Cidr>) -> Result<(), NetworkError> {
        let mut locked = LockedLeases::open(&self.0.config.state)?;
        let pod_cidrs: Vec<String> = blocks.iter().map(ToString::to_string).collect();
        if locked.leases.pod_cidrs != pod_cidrs {
            locked.leases.pod_cidrs = pod_cidrs;
            locked.save()?;
        }
        *self.0.pod_cidrs.lock().unwrap_or_else(PoisonError::into_inner) = blocks;
        Ok(())
    }

    fn set_pod_cidrs(&self, blocks: Vec<Cidr>) -> Result<(), NetworkError> {
        self.remember_pod_cidrs(blocks)?;
        self.start()
    }

    /// Sets up forwarding, routes and rules, once for the same blocks. Returns the MTU.
    fn prepare(&self, blocks: &[Cidr], leases: &Leases) -> Result<u32, NetworkError> {
        let mut ready = self.0.ready_for.lock().unwrap_or_else(PoisonError::into_inner);
        let config = &self.0.config;
        if let Some((done, mtu)) = &*ready
            && done == blocks
        {
            return Ok(*mtu);
        }
        let mut links = Links::open()?;
        let mtu = match config.mtu {
            Some(mtu) => mtu,
            None => links.outward_mtu()?.saturating_sub(config.overhead),
        };
        forward(blocks).map_err(NetworkError::io("enable IP forwarding"))?;
        // Addresses of our blocks without a pod are unreachable instead of following the default route.
        let nowhere: Vec<Route> = blocks.iter().map(|to| Route { to: *to, hop: Hop::Unreachable }).collect();
        for route in &nowhere {
            links.add_route(route)?;
        }
        for old in links.routes(Routes::Managed)? {
            if old.hop == Hop::Unreachable && !nowhere.contains(&old) {
                links.delete_route(&old)?;
            }
        }
        self.rules(leases).commit()?;
        // Links of an earlier run may have been created by an earlier version.
        for owner in leases.owners.keys() {
            ignore_routing_messages(&host_name(owner))?;
        }
        *ready = Some((blocks.to_vec(), mtu));
        Ok(mtu)
    }

    fn rules(&self, leases: &Leases) -> netlink::nft::Batch {
        let config = &self.0.config;
        let pod_cidrs = self.pod_cidrs();
        let rules = pod_rules::Rules {
            table: &config.table,
            pod_cidrs: &pod_cidrs,
            unmasqueraded: &config.cluster_cidrs,
            masquerade: config.masquerade,
            bind_sources: config.bind_sources,
        };
        pod_rules::rules(&rules, leases)
    }

    /// Changes the rules; if they are not in the expected state, replaces all of them.
    fn change_rules(&self, change: &netlink::nft::Batch, locked: &LockedLeases) -> Result<(), NetworkError> {
        match change.clone().commit() {
            Ok(()) => Ok(()),
            Err(_) => Ok(self.rules(&locked.leases).commit()?),
        }
    }

    fn connect(
        &self,
        netns: &Path,
        owner: &str,
        interface: &str,
        lease: &Lease,
        blocks: &[Cidr],
        mtu: u32,
    ) -> Result<(), NetworkError> {
        let file = File::open(netns).map_err(NetworkError::io("open the sandbox's network namespace"))?;
        let name = host_name(owner);
        let gateways: Vec<IpAddr> = blocks.iter().filter_map(gateway).collect();
        let mut links = Links::open()?;
        let peer = Peer { name: interface, hardware: hardware_of(lease.ips[0]), netns: file.as_fd() };
        links.add_veth(&name, mtu, &peer)?;
        ignore_routing_messages(&name)?;
        let index = switch_on(&mut links, &name)?;
        if lease.ports.iter().any(|port| port.host_port > 0) {
            // Required for host ports on loopback; packet rules block other sources.
            set_sysctl(&format!("ipv4/conf/{name}/route_localnet"), "1")
                .map_err(NetworkError::io("set the sysctl route_localnet"))?;
        }
        for (ip, gateway) in lease.ips.iter().zip(&gateways) {
            links.add_address(&Address { index, ip: *gateway, prefix: alone(*gateway).prefix() })?;
            links.add_route(&Route { to: alone(*ip), hop: Hop::Link { index, source: Some(*gateway) } })?;
        }
        let configure = || configure(interface, &lease.ips, &gateways);
        within(netns, configure).map_err(NetworkError::io("enter the sandbox's network namespace"))?
    }

    /// Detaches an owner and releases its addresses.
    fn detach_and_release(&self, locked: &mut LockedLeases, owner: &str) -> Result<(), NetworkError> {
        self.disconnect(locked, owner)?;
        if self.0.config.keep_addresses {
            locked.leases.release(owner);
            locked.save()?;
        }
        Ok(())
    }

    fn release_or_reserve(&self, leases: &mut Leases, owner: &str) {
        if self.0.config.keep_addresses {
            leases.reserve(owner);
        } else {
            leases.release(owner);
        }
    }

    fn disconnect(&self, locked: &mut LockedLeases, owner: &str) -> Result<(), NetworkError> {
        let mut links = Links::open()?;
        links.delete(&host_name(owner))?;
        links.delete(&shaping_name(owner))?;
        let Some(lease) = locked.leases.owners.get(owner).cloned() else { return Ok(()) };
        self.release_or_reserve(&mut locked.leases, owner);
        // The release is saved only after the link and the rules are deleted.
        self.change_rules(&pod_rules::removed(&self.0.config.table, owner, &lease), locked)?;
        delete_udp_flows(&lease);
        Ok(locked.save()?)
    }
}

impl Network for RoutedNetwork {
    fn ready(&self) -> NetworkFuture<'_, ()> {
        let known = if self.pod_cidrs().is_empty() { Err(NetworkError::NoAddresses) } else { Ok(()) };
        Box::pin(async move { known })
    }

    fn attach<'a>(&'a self, netns: &'a Path, sandbox: &'a Attachment) -> NetworkFuture<'a, Vec<IpAddr>> {
        let (network, netns, sandbox) = (self.clone(), netns.to_owned(), sandbox.clone());
        blocking(move || {
            let bandwidth = Bandwidth::of(&sandbox.annotations)?;
            let lease = network.add(&netns, &sandbox.id, INTERFACE, &sandbox.ports)?;
            match network.limit(&sandbox.id, INTERFACE, bandwidth) {
                Ok(()) => Ok(lease.ips),
                Err(error) => {
                    network.remove(&sandbox.id, INTERFACE)?;
                    Err(error)
                }
            }
        })
    }

    fn detach<'a>(&'a self, _netns: Option<&'a Path>, sandbox: &'a Attachment) -> NetworkFuture<'a, ()> {
        let (network, id) = (self.clone(), sandbox.id.clone());
        blocking(move || network.remove(&id, INTERFACE))
    }

    fn check<'a>(&'a self, netns: &'a Path, sandbox: &'a Attachment) -> NetworkFuture<'a, ()> {
        let (network, netns, id) = (self.clone(), netns.to_owned(), sandbox.id.clone());
        blocking(move || network.inspect(&netns, &id, INTERFACE))
    }

    fn collect<'a>(&'a self, alive: &'a [String]) -> NetworkFuture<'a, ()> {
        let (network, alive) = (self.clone(), alive.to_vec());
        blocking(move || network.retain(|id| alive.iter().any(|have| have == id)))
    }

    fn set_pod_cidr(&self, cidr: &str) {
        let parsed = Cidr::parse_list(cidr).map_err(|error| error.to_string());
        let set = parsed.and_then(|blocks| self.set_pod_cidrs(blocks).map_err(|error| error.to_string()));
        if let Err(error) = set {
            tracing::warn!(cidr, error, "failed to apply the pod CIDR");
        }
    }
}

/// Runs netlink calls, which block briefly, on a blocking thread.
fn blocking<'a, T: Send + 'static>(
    work: impl FnOnce() -> Result<T, NetworkError> + Send + 'static,
) -> NetworkFuture<'a, T> {
    Box::pin(async move {
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|error| Err(NetworkError::io("run the network task")(std::io::Error::other(error))))
    })
}

fn owner(sandbox: &str, interface: &str) -> String {
    format!("{sandbox}/{interface}")
}

/// Configures the pod's side: host addresses, the node as default gateway, and the loopback interface.
fn configure(interface: &str, ips: &[IpAddr], gateways: &[IpAddr]) -> Result<(), NetworkError> {
    let mut links = Links::open()?;
    if let Some(loopback) = links.find("lo")? {
        links.set_up(loopback.index)?;
    }
    let index = switch_on(&mut links, interface)?;
    for ip in ips {
        links.add_address(&Address { index, ip: *ip, prefix: alone(*ip).prefix() })?;
    }
    for via in gateways {
        links.add_route(&Route { to: Cidr::around(*via, 0), hop: Hop::Via { index, neighbour: *via } })?;
    }
    Ok(())
}

/// Sets an end of a veth pair up; returns its index.
fn switch_on(links: &mut Links, name: &str) -> Result<u32, NetworkError> {
    let missing = || NetworkError::Damaged(format!("link {name} does not exist"));
    let index = links.find(name)?.ok_or_else(missing)?.index;
    // The address is unique; duplicate address detection would delay the first packets by one to two seconds.
    let detect = format!("ipv6/conf/{name}/accept_dad");
    set_sysctl(&detect, "0").map_err(NetworkError::io("disable IPv6 duplicate address detection"))?;
    links.set_up(index)?;
    Ok(index)
}

/// Prevents a pod from changing the node's routes by router advertisements or redirects. The kernel accepts both from
/// every link while forwarding is off for the family.
fn ignore_routing_messages(link: &str) -> Result<(), NetworkError> {
    for (family, setting) in [("ipv6", "accept_ra"), ("ipv6", "accept_redirects"), ("ipv4", "accept_redirects")] {
        set_sysctl(&format!("{family}/conf/{link}/{setting}"), "0")
            .map_err(NetworkError::io("disable router advertisements and redirects on the pod's link"))?;
    }
    Ok(())
}

/// Returns a block with a single address.
fn alone(ip: IpAddr) -> Cidr {
    Cidr::around(ip, if ip.is_ipv4() { 32 } else { 128 })
}

/// Returns the addresses of an interface in the calling thread's namespace.
fn interface_addresses(interface: &str) -> Result<Vec<IpAddr>, NetworkError> {
    let mut links = Links::open()?;
    let Some(link) = links.find(interface)?.filter(|link| link.up) else {
        return Err(NetworkError::Damaged(format!("interface {interface} does not exist or is down")));
    };
    Ok(links.addresses()?.into_iter().filter(|have| have.index == link.index).map(|have| have.ip).collect())
}

fn forward(blocks: &[Cidr]) -> std::io::Result<()> {
    if blocks.iter().any(Cidr::is_ipv4) {
        set_sysctl("ipv4/ip_forward", "1")?;
    }
    if blocks.iter().any(|block| !block.is_ipv4()) {
        set_sysctl("ipv6/conf/all/forwarding", "1")?;
    }
    Ok(())
}

/// Deletes the conntrack entries of UDP flows to the host ports of a lease, which may refer to another or a removed
/// pod.
fn delete_udp_flows(lease: &Lease) {
    let ports: Vec<&PortMapping> = lease.ports.iter().filter(|port| port.protocol == Protocol::Udp).collect();
    if ports.is_empty() {
        return;
    }
    let forgotten = Links::open().and_then(|mut links| links.addresses()).and_then(|own| {
        conntrack::delete_flows(Protocol::Udp, |flow| {
            let (ip, number) = flow.to;
            let at = |port: &&PortMapping| match port.host_ip.filter(|ip| !ip.is_unspecified()) {
                Some(host) => host == ip,
                None => ip.is_loopback() || own.iter().any(|own| own.ip == ip),
            };
            ports.iter().any(|port| port.host_port == number && at(port))
        })
    });
    if let Err(error) = forgotten {
        tracing::warn!(%error, "failed to delete stale conntrack entries of host ports");
    }
}
