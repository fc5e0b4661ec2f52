//! CIDR blocks.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An IPv4 or IPv6 CIDR block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    base: IpAddr,
    prefix: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid CIDR such as 10.244.0.0/24")]
pub struct CidrError(pub String);

impl Cidr {
    /// Returns the block of this prefix length that contains an address.
    pub fn around(ip: IpAddr, prefix: u8) -> Self {
        let prefix = prefix.min(width(ip));
        let shift = u32::from(width(ip) - prefix);
        let bits = bits(ip).checked_shr(shift).unwrap_or(0).checked_shl(shift).unwrap_or(0);
        Self { base: address(ip, bits), prefix }
    }

    /// Returns the first address.
    pub const fn base(&self) -> IpAddr {
        self.base
    }

    /// Returns the prefix length.
    pub const fn prefix(&self) -> u8 {
        self.prefix
    }

    pub const fn is_ipv4(&self) -> bool {
        self.base.is_ipv4()
    }

    pub fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.is_ipv4() && Self::around(ip, self.prefix) == *self
    }

    /// Returns the address at an offset from the first; `None` if it is outside the block.
    pub fn nth(&self, offset: u128) -> Option<IpAddr> {
        let last = bits(self.last());
        let target = bits(self.base).checked_add(offset)?;
        (target <= last).then(|| address(self.base, target))
    }

    pub fn last(&self) -> IpAddr {
        let rest = u32::from(width(self.base) - self.prefix);
        let ones = 1_u128.checked_shl(rest).map_or(u128::MAX, |end| end - 1);
        address(self.base, bits(self.base) | ones)
    }

    /// Returns the offset of an address from the first; `None` if it is outside the block.
    pub fn offset(&self, ip: IpAddr) -> Option<u128> {
        self.contains(ip).then(|| bits(ip) - bits(self.base))
    }

    /// Returns the netmask in network byte order.
    pub fn mask(&self) -> Vec<u8> {
        let shift = u32::from(width(self.base) - self.prefix);
        let ones = u128::MAX.checked_shl(shift).unwrap_or(0);
        match self.base {
            // The bits of an IPv4 address are the low 32.
            IpAddr::V4(_) => (ones as u32).to_be_bytes().to_vec(),
            IpAddr::V6(_) => ones.to_be_bytes().to_vec(),
        }
    }

    /// Removes blocks that are contained in others; two blocks are either disjoint or nested.
    pub fn outermost(blocks: impl IntoIterator<Item = Self>) -> Vec<Self> {
        // A block sorts before the blocks that it contains, because the shorter prefix is first.
        let mut sorted: Vec<Self> = blocks.into_iter().collect();
        sorted.sort_unstable();
        let mut outermost: Vec<Self> = Vec::with_capacity(sorted.len());
        for block in sorted {
            if !outermost.last().is_some_and(|last| last.contains(block.base)) {
                outermost.push(block);
            }
        }
        outermost
    }

    /// Parses a comma-separated list.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, CidrError> {
        text.split(',').map(str::trim).filter(|text| !text.is_empty()).map(str::parse).collect()
    }
}

/// Returns the bytes of an address in network order.
pub fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let error = || CidrError(text.to_owned());
        let (ip, prefix) = text.split_once('/').ok_or_else(error)?;
        let ip: IpAddr = ip.parse().map_err(|_| error())?;
        let prefix: u8 = prefix.parse().map_err(|_| error())?;
        if prefix > width(ip) {
            return Err(error());
        }
        Ok(Self::around(ip, prefix))
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.base, self.prefix)
    }
}

fn width(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).into(),
        IpAddr::V6(ip) => ip.into(),
    }
}

fn address(like: IpAddr, bits: u128) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::from(u32::try_from(bits).expect("an IPv4 address stays within 32 bits")).into(),
        IpAddr::V6(_) => Ipv6Addr::from(bits).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    #[test]
    fn cidr_block_addresses_and_offsets() {
        let block = cidr("10.1.2.3/24");
        assert_eq!(block.to_string(), "10.1.2.0/24");
        assert_eq!(block.last().to_string(), "10.1.2.255");
        assert_eq!(block.nth(1).unwrap().to_string(), "10.1.2.1");
        assert_eq!(block.nth(256), None);
        assert!(block.contains("10.1.2.77".parse().unwrap()) && !block.contains("10.1.3.1".parse().unwrap()));
        assert!(!block.contains("::1".parse().unwrap()));
        assert_eq!(block.mask(), [255, 255, 255, 0]);
        assert_eq!(cidr("0.0.0.0/0").last().to_string(), "255.255.255.255");
        assert_eq!(cidr("::/0").last().to_string(), "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
        assert_eq!(cidr("fd00::/64").nth(258).unwrap().to_string(), "fd00::102");
        assert_eq!(cidr("10.0.0.1/32").nth(0).unwrap().to_string(), "10.0.0.1");
    }

    #[test]
    fn invalid_cidr_is_rejected() {
        for text in ["", "10.0.0.0", "10.0.0.0/33", "fd00::/129", "10.0.0/8", "a/8", "10.0.0.0/-1"] {
            assert_eq!(text.parse::<Cidr>(), Err(CidrError(text.to_owned())));
        }
        assert_eq!(Cidr::parse_list("10.0.0.0/8, fd00::/64").unwrap().len(), 2);
    }
}
