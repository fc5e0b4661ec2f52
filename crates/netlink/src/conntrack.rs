//! Conntrack: lists connections and deletes stale entries.

use std::net::IpAddr;

use crate::Protocol;
use crate::cidr::Cidr;
use crate::socket::{ACK, DUMP, Error, Protocol as Netlink, Reply, Request, Socket, attribute, attributes, read_ip};

const SUBSYSTEM: u16 = 1 << 8;
const GET: u16 = 1;
const DELETE: u16 = 2;
const HEADER_LEN: usize = 4;
const TUPLE_ORIGINAL: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const ZONE: u16 = 18;

/// A conntrack entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Original source.
    pub from: (IpAddr, u16),
    /// Original destination.
    pub to: (IpAddr, u16),
    /// Source of replies, that is, the translated destination.
    pub reply_source: (IpAddr, u16),
    /// IP protocol number.
    pub protocol: u8,
}

/// Deletes the entries of a protocol for which `stale` returns true; returns their number.
pub fn delete_flows(protocol: Protocol, stale: impl Fn(&Flow) -> bool) -> Result<usize, Error> {
    let mut socket = Socket::open(Netlink::Netfilter)?;
    let everything = Request::of(SUBSYSTEM | GET, DUMP, &[0; HEADER_LEN], |_| {});
    let mut count = 0;
    for reply in socket.query("list conntrack entries", everything)? {
        let Some(flow) = read(&reply).filter(|flow| flow.protocol == protocol.number()) else { continue };
        if !stale(&flow) {
            continue;
        }
        match socket.execute("delete a conntrack entry", deletion(&reply)) {
            Ok(()) => count += 1,
            // The entry has expired meanwhile.
            Err(error) if error.errno() == Some(libc::ENOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// Deletes entries left by pods and services: connections of pods, and translated connections whose destination is not
/// an address of this node (`own`). Returns their number.
pub fn delete_pod_flows(pods: &[Cidr], own: &[IpAddr]) -> Result<usize, Error> {
    let is_pod = |ip: IpAddr| pods.iter().any(|block| block.contains(ip));
    let of_service = |flow: &Flow| flow.to.0 != flow.reply_source.0 && !own.contains(&flow.to.0);
    let stale =
        |flow: &Flow| [flow.from, flow.to, flow.reply_source].iter().any(|(ip, _)| is_pod(*ip)) || of_service(flow);
    let mut count = 0;
    for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
        count += delete_flows(protocol, stale)?;
    }
    Ok(count)
}

fn deletion(reply: &Reply) -> Request {
    let family = reply.payload.first().copied().unwrap_or_default();
    Request::of(SUBSYSTEM | DELETE, ACK, &[family, 0, 0, 0], |it| {
        for (kind, value) in reply.attributes(HEADER_LEN).filter(|(kind, _)| [TUPLE_ORIGINAL, ZONE].contains(kind)) {
            if kind == TUPLE_ORIGINAL {
                it.nest(kind, |it| {
                    it.raw(value);
                });
            } else {
                it.put(kind, value);
            }
        }
    })
}

fn read(reply: &Reply) -> Option<Flow> {
    let rest = reply.payload.get(HEADER_LEN..)?;
    let original = tuple(attribute(rest, TUPLE_ORIGINAL)?)?;
    let back = tuple(attribute(rest, TUPLE_REPLY)?)?;
    Some(Flow { from: original.from, to: original.to, reply_source: back.from, protocol: original.protocol })
}

struct Tuple {
    from: (IpAddr, u16),
    to: (IpAddr, u16),
    protocol: u8,
}

fn tuple(bytes: &[u8]) -> Option<Tuple> {
    let (addresses, ports) = (attribute(bytes, 1)?, attribute(bytes, 2)?);
    // Attribute types: odd for sources, even for destinations; IPv4 first, then IPv6.
    let ip =
        |kinds: [u16; 2]| attributes(addresses).find(|(kind, _)| kinds.contains(kind)).and_then(|it| read_ip(it.1));
    let port = |kind| Some(u16::from_be_bytes(attribute(ports, kind)?.try_into().ok()?));
    Some(Tuple { from: (ip([1, 3])?, port(2)?), to: (ip([2, 4])?, port(3)?), protocol: *attribute(ports, 1)?.first()? })
}
