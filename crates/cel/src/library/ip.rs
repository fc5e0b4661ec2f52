//! IP library; IPv4-mapped IPv6 addresses and addresses with a zone are rejected.

use std::net::{IpAddr, Ipv6Addr};

use super::opaque::Opaque;
use super::{Args, Row, row};
use crate::cost::Cost;
use crate::eval::Failure;
use crate::value::Val;

type Result<T> = std::result::Result<T, Failure>;

pub const ROWS: &[Row] = &[
    row("ip(string) -> IP", Cost::Scan, ip),
    row("isIP(string) -> bool", Cost::Scan, is_ip),
    row("ip.isCanonical(string) -> bool", Cost::ScanTwice, is_canonical),
    row("string(IP) -> string", Cost::Unit, |args| of(args, |ip| Val::text(ip.to_string()))),
    row("IP.family() -> int", Cost::Unit, |args| of(args, |ip| Val::Int(if ip.is_ipv4() { 4 } else { 6 }))),
    row("IP.isUnspecified() -> bool", Cost::Unit, |args| of(args, |ip| Val::Bool(ip.is_unspecified()))),
    row("IP.isLoopback() -> bool", Cost::Unit, |args| of(args, |ip| Val::Bool(ip.is_loopback()))),
    row("IP.isLinkLocalMulticast() -> bool", Cost::Unit, |args| of(args, |ip| Val::Bool(link_local_multicast(ip)))),
    row("IP.isLinkLocalUnicast() -> bool", Cost::Unit, |args| of(args, |ip| Val::Bool(link_local_unicast(ip)))),
    row("IP.isGlobalUnicast() -> bool", Cost::Unit, |args| of(args, |ip| Val::Bool(global_unicast(ip)))),
];

/// Parses an address; the error is upstream's message.
pub fn parse(text: &str) -> std::result::Result<IpAddr, String> {
    if text.contains('%') {
        return Err(format!("IP address {text:?} with zone value is not allowed"));
    }
    let address = text.parse::<IpAddr>().map_err(|_| {
        let message = if text.is_empty() {
            "unable to parse IP".to_owned()
        } else {
            format!("ParseAddr({text:?}): unable to parse IP")
        };
        format!("IP Address {text:?} parse error during conversion from string: {message}")
    })?;
    match address {
        IpAddr::V6(v6) if is_mapped(v6) => Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed")),
        address => Ok(address),
    }
}

/// Whether the address is an IPv4-mapped IPv6 address.
pub fn is_mapped(address: Ipv6Addr) -> bool {
    address.to_ipv4_mapped().is_some()
}

fn ip<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    parse(args.str(0)?).map(|ip| Val::Opaque(Opaque::Ip(ip))).map_err(Failure::message)
}

fn is_ip<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(Val::Bool(parse(args.str(0)?).is_ok()))
}

fn is_canonical<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let text = args.str(0)?;
    let address = parse(text).map_err(Failure::message)?;
    Ok(Val::Bool(address.to_string() == text))
}

fn of<'a>(args: Args<'_, 'a>, of: impl Fn(IpAddr) -> Val<'a>) -> Result<Val<'a>> {
    match args.args {
        [Val::Opaque(Opaque::Ip(ip))] => Ok(of(*ip)),
        _ => Err(Failure::no_overload()),
    }
}

fn link_local_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }
}

fn link_local_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    }
}

/// Whether the address is in none of the other classes; private addresses count as global unicast.
fn global_unicast(ip: IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    !(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || link_local_unicast(ip) || broadcast)
}
