//! CIDR library.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::opaque::Opaque;
use super::{Args, Row, ip, row};
use crate::cost::Cost;
use crate::eval::Failure;
use crate::value::Val;

type Result<T> = std::result::Result<T, Failure>;

pub const ROWS: &[Row] = &[
    row("cidr(string) -> CIDR", Cost::Scan, cidr),
    row("isCIDR(string) -> bool", Cost::Scan, is_cidr),
    row("string(CIDR) -> string", Cost::Unit, |args| of(args, |cidr| Val::text(cidr.to_string()))),
    row("CIDR.ip() -> IP", Cost::Unit, |args| of(args, |cidr| Val::Opaque(Opaque::Ip(cidr.address)))),
    row("CIDR.masked() -> CIDR", Cost::Unit, |args| of(args, |cidr| Val::Opaque(Opaque::Cidr(cidr.masked())))),
    row("CIDR.prefixLength() -> int", Cost::Unit, |args| of(args, |cidr| Val::Int(i64::from(cidr.bits)))),
    row("CIDR.containsIP(IP) -> bool", Cost::ContainsIp, contains_ip),
    row("CIDR.containsIP(string) -> bool", Cost::ContainsIpText, contains_ip),
    row("CIDR.containsCIDR(CIDR) -> bool", Cost::ContainsCidr, contains_cidr),
    row("CIDR.containsCIDR(string) -> bool", Cost::ContainsCidrText, contains_cidr),
];

/// An address and a prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// The address as written.
    pub address: IpAddr,
    /// The prefix length.
    pub bits: u8,
}

impl Cidr {
    /// Parses a CIDR such as `10.0.0.0/8`.
    ///
    /// # Errors
    /// Upstream's error message.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let fail = |message: &str| {
            format!(
                "CIDR {text:?} parse error during conversion from string: network address parse error during conversion from string: {message}"
            )
        };
        let (address, bits) =
            text.rsplit_once('/').ok_or_else(|| fail(&format!("netip.ParsePrefix({text:?}): no '/'")))?;
        let address: IpAddr =
            address.parse().map_err(|_| fail(&format!("netip.ParsePrefix({text:?}): unable to parse IP")))?;
        if matches!(address, IpAddr::V6(v6) if ip::is_mapped(v6)) {
            return Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"));
        }
        let most = if address.is_ipv4() { 32 } else { 128 };
        let plain =
            !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit()) && (bits == "0" || !bits.starts_with('0'));
        match bits.parse::<u8>() {
            Ok(bits) if plain && bits <= most => Ok(Self { address, bits }),
            _ => Err(fail(&format!("netip.ParsePrefix({text:?}): bad bits after slash: {bits:?}"))),
        }
    }

    /// Returns the block with the host bits of its address cleared.
    pub fn masked(self) -> Self {
        let address = match self.address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from(u32::from(v4) & mask))
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from(u128::from(v6) & mask))
            }
        };
        Self { address, ..self }
    }

    fn contains(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4()
            && Self { address, bits: self.bits }.masked().address == self.masked().address
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.address, self.bits)
    }
}

fn cidr<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Cidr::parse(args.str(0)?).map(|cidr| Val::Opaque(Opaque::Cidr(cidr))).map_err(Failure::message)
}

fn is_cidr<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    Ok(Val::Bool(Cidr::parse(args.str(0)?).is_ok()))
}

fn of<'a>(args: Args<'_, 'a>, of: impl Fn(Cidr) -> Val<'a>) -> Result<Val<'a>> {
    match args.args {
        [Val::Opaque(Opaque::Cidr(cidr))] => Ok(of(*cidr)),
        _ => Err(Failure::no_overload()),
    }
}

fn contains_ip<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let address = match &args.args[1] {
        Val::Opaque(Opaque::Ip(address)) => *address,
        other => ip::parse(other.as_str().ok_or_else(Failure::no_overload)?).map_err(Failure::message)?,
    };
    of(Args { args: &args.args[..1], ..args }, |cidr| Val::Bool(cidr.contains(address)))
}

fn contains_cidr<'a>(args: Args<'_, 'a>) -> Result<Val<'a>> {
    let inner = match &args.args[1] {
        Val::Opaque(Opaque::Cidr(cidr)) => *cidr,
        other => Cidr::parse(other.as_str().ok_or_else(Failure::no_overload)?).map_err(Failure::message)?,
    };
    of(Args { args: &args.args[..1], ..args }, |cidr| {
        Val::Bool(cidr.bits <= inner.bits && cidr.contains(inner.masked().address))
    })
}
