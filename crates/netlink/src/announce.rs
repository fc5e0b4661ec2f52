//! Announces an address to neighbours: gratuitous ARP for IPv4, unsolicited neighbour advertisement for IPv6.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::link::Link;

const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const EVERYONE: [u8; 6] = [0xff; 6];
/// The all-nodes multicast group, as IPv6 and as Ethernet address.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_HARDWARE: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
const ICMPV6: u8 = 58;
/// Required for neighbour discovery: proves that no router forwarded the message.
const HOP_LIMIT: u8 = 255;

/// Announces to all hosts on a link that the address is at this link, so that they update their neighbour caches.
pub fn announce(link: &Link, ip: IpAddr) -> io::Result<()> {
    let hardware: [u8; 6] =
        link.hardware.as_slice().try_into().map_err(|_| io::Error::other("the link has no hardware address"))?;
    match ip {
        IpAddr::V4(ip) => sys::send_frame(link.index, ARP, EVERYONE, &arp(hardware, ip)),
        IpAddr::V6(ip) => sys::send_frame(link.index, IPV6, ALL_NODES_HARDWARE, &advertisement(hardware, ip)),
    }
}

/// Builds a gratuitous ARP reply: sender and target address are equal.
fn arp(hardware: [u8; 6], ip: Ipv4Addr) -> Vec<u8> {
    // Ethernet, IPv4, their address lengths, and the operation "reply".
    let mut bytes = vec![0, 1, 8, 0, 6, 4, 0, 2];
    for address in [hardware, EVERYONE] {
        bytes.extend_from_slice(&address);
        bytes.extend_from_slice(&ip.octets());
    }
    bytes
}

/// Builds an unsolicited neighbour advertisement with the override flag.
fn advertisement(hardware: [u8; 6], ip: Ipv6Addr) -> Vec<u8> {
    const ADVERTISEMENT: u8 = 136;
    const OVERRIDE: u8 = 0x20;
    const TARGET_HARDWARE: [u8; 2] = [2, 1];
    let mut message = vec![ADVERTISEMENT, 0, 0, 0, OVERRIDE, 0, 0, 0];
    message.extend_from_slice(&ip.octets());
    message.extend_from_slice(&TARGET_HARDWARE);
    message.extend_from_slice(&hardware);
    let sum = checksum(ip, ALL_NODES, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let length = u16::try_from(message.len()).expect("it is 32 bytes long");
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend_from_slice(&length.to_be_bytes());
    packet.extend_from_slice(&[ICMPV6, HOP_LIMIT]);
    packet.extend_from_slice(&ip.octets());
    packet.extend_from_slice(&ALL_NODES.octets());
    packet.extend_from_slice(&message);
    packet
}

/// Computes the ICMPv6 checksum with its pseudo header.
fn checksum(from: Ipv6Addr, to: Ipv6Addr, message: &[u8]) -> u16 {
    let length = u32::try_from(message.len()).expect("messages are short");
    let head = [from.octets().as_slice(), &to.octets(), &length.to_be_bytes(), &[0, 0, 0, ICMPV6], message].concat();
    let pairs = head.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)));
    let mut sum: u32 = pairs.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("it was folded")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_conform_to_the_standards() {
        let hardware = [2, 0, 0, 0, 0, 1];
        let bytes = arp(hardware, Ipv4Addr::new(192, 0, 2, 9));
        assert_eq!(bytes.len(), 28);
        assert_eq!(&bytes[8..18], &[2, 0, 0, 0, 0, 1, 192, 0, 2, 9]);
        assert_eq!(&bytes[24..], &[192, 0, 2, 9]);
        let packet = advertisement(hardware, "2001:db8::9".parse().unwrap());
        assert_eq!((packet.len(), packet[6], packet[7], packet[40]), (72, ICMPV6, HOP_LIMIT, 136));
        // A message including its checksum sums up to zero.
        assert_eq!(checksum("2001:db8::9".parse().unwrap(), ALL_NODES, &packet[40..]), 0);
    }
}
