//! IP addresses and CIDRs, with the leniency of older Go versions that stored objects rely on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Parses an address. Leading zeros in an IPv4 address are ignored, and an IPv4-mapped IPv6 address (`::ffff:10.0.0.1`)
/// becomes the IPv4 address.
pub fn parse_ip(value: &str) -> Option<IpAddr> {
    if !value.contains(':') {
        return parse_ipv4(value).map(IpAddr::V4);
    }
    let ip: Ipv6Addr = match value.rsplit_once(':') {
        Some((head, tail)) if tail.contains('.') => format!("{head}:{}", parse_ipv4(tail)?).parse().ok()?,
        _ => value.parse().ok()?,
    };
    Some(ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4))
}

/// Parses a CIDR; returns the address as written and the prefix length.
pub fn parse_cidr(value: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = value.split_once('/')?;
    let ip = parse_ip(address)?;
    let written_as_v6 = address.contains(':');
    if bits.is_empty() || bits.len() > 3 || !bits.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let bits: u8 = bits.parse().ok()?;
    (bits <= if written_as_v6 { 128 } else { 32 }).then_some((ip, bits))
}

pub fn ip(value: &str) -> Vec<String> {
    expect(parse_ip(value).is_some(), "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")
}

pub fn ipv4(value: &str) -> Vec<String> {
    expect(matches!(parse_ip(value), Some(IpAddr::V4(_))), "must be a valid IPv4 address")
}

pub fn ipv6(value: &str) -> Vec<String> {
    expect(matches!(parse_ip(value), Some(IpAddr::V6(_))), "must be a valid IPv6 address")
}

pub fn cidr(value: &str) -> Vec<String> {
    expect(parse_cidr(value).is_some(), "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")
}

fn parse_ipv4(value: &str) -> Option<Ipv4Addr> {
    let mut parts = value.split('.');
    let mut octet = || {
        let part = parts.next()?;
        let digits = !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
        let number = part.trim_start_matches('0');
        digits.then(|| if number.is_empty() { Ok(0) } else { number.parse() })?.ok()
    };
    let address = Ipv4Addr::new(octet()?, octet()?, octet()?, octet()?);
    parts.next().is_none().then_some(address)
}

fn expect(right: bool, otherwise: &str) -> Vec<String> {
    if right { Vec::new() } else { vec![otherwise.to_owned()] }
}
