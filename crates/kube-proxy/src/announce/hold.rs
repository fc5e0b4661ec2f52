//! Announced load balancer addresses of this node: adds them to links, announces them to neighbours, and removes them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use netlink::Cidr;
use netlink::announce::announce;
use netlink::link::{Address, Link, Links, Routes};

use super::{Range, contains};
use crate::userspace;

/// Number of announcements per address: the first may be lost, or ignored because it follows another too closely.
const ANNOUNCEMENTS: u8 = 3;

/// The addresses that this node announces.
#[derive(Debug)]
pub struct Holding {
    pool: Vec<Range>,
    /// Number of announcements sent per address.
    announced: BTreeMap<IpAddr, u8>,
}

impl Holding {
    pub const fn new(pool: Vec<Range>) -> Self {
        Self { pool, announced: BTreeMap::new() }
    }

    /// Announces exactly these addresses with lifetime `life`.
    pub async fn set(mut self, desired: BTreeSet<IpAddr>, life: Duration) -> Self {
        let pool = self.pool.clone();
        let done = tokio::task::spawn_blocking(move || {
            let result = self.keep(&desired, life);
            (self, result)
        });
        match done.await {
            Ok((holding, Ok(()))) => holding,
            Ok((holding, Err(error))) => {
                tracing::warn!(%error, "failed to assign load balancer addresses; retrying");
                holding
            }
            Err(error) => {
                tracing::error!(%error, "the task that assigns load balancer addresses failed");
                Self::new(pool)
            }
        }
    }

    fn keep(&mut self, desired: &BTreeSet<IpAddr>, life: Duration) -> Result<(), netlink::Error> {
        let mut links = Links::open()?;
        let all = links.list()?;
        let addresses = links.addresses()?;
        for old in addresses.iter().filter(|have| is_lent(have, &all, &self.pool) && !desired.contains(&have.ip)) {
            links.delete_address(old)?;
        }
        self.announced.retain(|ip, _| desired.contains(ip));
        let seconds = u32::try_from(life.as_secs()).unwrap_or(u32::MAX).max(1);
        for ip in desired {
            let Some(link) = outward(*ip, &mut links, &all, &addresses)? else {
                tracing::warn!(%ip, "no link is attached to the network of this address");
                continue;
            };
            links.lend_address(link.index, *ip, seconds)?;
            let sent = self.announced.entry(*ip).or_default();
            if *sent < ANNOUNCEMENTS {
                *sent += 1;
                announce(&link, *ip).map_err(netlink::Error::Socket)?;
            }
        }
        Ok(())
    }
}

/// Removes all addresses of the pool from the links.
pub fn release(pool: &[Range]) -> Result<(), netlink::Error> {
    let mut links = Links::open()?;
    let all = links.list()?;
    for address in links.addresses()?.iter().filter(|have| is_lent(have, &all, pool)) {
        links.delete_address(address)?;
    }
    Ok(())
}

/// Returns the networks of this node for the annotation of its Lease; empty if they cannot be listed.
pub fn networks() -> String {
    let addresses = Links::open().and_then(|mut links| links.addresses()).unwrap_or_default();
    let alone = |ip: IpAddr| if ip.is_ipv4() { 32 } else { 128 };
    let own = addresses.iter().filter(|have| have.prefix < alone(have.ip) && !have.ip.is_loopback());
    let networks: BTreeSet<String> = own.map(|have| Cidr::around(have.ip, have.prefix).to_string()).collect();
    networks.into_iter().collect::<Vec<_>>().join(",")
}

/// Whether an address was added by this module: a host address of the pool. The addresses of the userspace proxy's link
/// are excluded.
fn is_lent(address: &Address, links: &[Link], pool: &[Range]) -> bool {
    let alone = address.prefix == if address.ip.is_ipv4() { 32 } else { 128 };
    let proxys = links.iter().any(|link| link.index == address.index && link.name == userspace::LINK);
    alone && !proxys && contains(pool, address.ip)
}

/// Returns the link whose network contains the address, otherwise the link of the default route.
fn outward(ip: IpAddr, links: &mut Links, all: &[Link], addresses: &[Address]) -> Result<Option<Link>, netlink::Error> {
    let alone = if ip.is_ipv4() { 32 } else { 128 };
    let near = addresses.iter().filter(|have| have.ip.is_ipv4() == ip.is_ipv4() && have.prefix < alone);
    let mut near = near.filter(|have| Cidr::around(have.ip, have.prefix).contains(ip)).map(|have| have.index);
    let index = match near.next() {
        Some(index) => Some(index),
        None => {
            let routes = links.routes(Routes::All)?;
            let mut default =
                routes.iter().filter(|route| route.to.prefix() == 0 && route.to.is_ipv4() == ip.is_ipv4());
            default.find_map(|route| route.hop.index())
        }
    };
    Ok(all.iter().find(|link| Some(link.index) == index).cloned())
}
