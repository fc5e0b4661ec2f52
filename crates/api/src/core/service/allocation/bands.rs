//! Address and port ranges, and the selection of free values from them.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use super::{AllocationLookup, Config};
use crate::core::service::addresses::FAMILIES;
use crate::formats::{contains, network};

/// Pseudorandom numbers from a seed.
pub(super) struct GeneratedIds(u64);

impl GeneratedIds {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `end`, which must not be zero.
    fn below(&mut self, end: u128) -> u128 {
        // SplitMix64, twice: an address range may have more than 64 bits.
        let mut next = || {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.0;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            u128::from(mixed ^ (mixed >> 31))
        };
        (next() << 64 | next()) % end
    }
}

/// Returns a free address of a family, if there is one.
pub(super) fn pick_ip(
    config: &Config,
    family: &str,
    taken: &dyn AllocationLookup,
    rng: &mut GeneratedIds,
) -> Option<IpAddr> {
    let is_v4 = family == FAMILIES[0];
    config.ranges.iter().filter(|(ip, _)| ip.is_ipv4() == is_v4).find_map(|range| {
        let (first, last) = usable(*range)?;
        let is_free = |number: u128| taken.ip(address(number, is_v4)).is_none();
        let found = pick_free(first, last, address_offset(*range), is_free, rng)?;
        Some(address(found, is_v4))
    })
}

/// Fails if an address cannot be allocated, regardless of its current owner.
pub(super) fn check_ip(config: &Config, ip: IpAddr) -> Result<(), String> {
    let range = config.ranges.iter().find(|range| contains(**range, ip));
    let range = *range.ok_or("the provided network does not match the current range")?;
    match usable(range) {
        Some((first, last)) if (first..=last).contains(&number(ip)) => Ok(()),
        _ => {
            let valid = format!("{}/{}", network(range.0, range.1), range.1);
            Err(format!("the provided IP ({ip}) is not in the valid range. The range of valid IPs is {valid}"))
        }
    }
}

/// Returns a free port of a range, if there is one.
pub(super) fn pick_port(
    range: &RangeInclusive<u16>,
    is_free: impl Fn(u16) -> bool,
    rng: &mut GeneratedIds,
) -> Option<u16> {
    let (first, last) = (u128::from(*range.start()), u128::from(*range.end()));
    let offset = offset(last.checked_sub(first)? + 1, 128, 32);
    let is_free = |port: u128| u16::try_from(port).is_ok_and(&is_free);
    pick_free(first, last, offset, is_free, rng).and_then(|port| u16::try_from(port).ok())
}

/// Returns a free value from the upper band, or else from the lower one, whose size is `offset`.
fn pick_free(
    first: u128,
    last: u128,
    offset: u128,
    is_free: impl Fn(u128) -> bool,
    rng: &mut GeneratedIds,
) -> Option<u128> {
    let upper = first.saturating_add(offset);
    let bands = [(upper, last), (first, upper.saturating_sub(1).min(last))];
    bands.into_iter().find_map(|(low, high)| {
        let length = high.checked_sub(low)?.checked_add(1)?;
        let start = rng.below(length);
        // Linear probing: at most one step per allocated value.
        (0..length).map(|step| low + (start + step) % length).find(|candidate| is_free(*candidate))
    })
}

/// Returns the first and last allocatable address: without the network address and, for IPv4, the broadcast address.
fn usable((ip, bits): (IpAddr, u8)) -> Option<(u128, u128)> {
    let first = number(network(ip, bits));
    let width: u32 = if ip.is_ipv4() { 32 } else { 128 };
    let hosts = width.checked_sub(bits.into())?;
    let last = if hosts == 128 { u128::MAX } else { first + ((1_u128 << hosts) - 1) };
    let last = if ip.is_ipv4() { last.checked_sub(1)? } else { last };
    (first < last).then_some((first + 1, last))
}

fn address_offset((ip, bits): (IpAddr, u8)) -> u128 {
    let width: u32 = if ip.is_ipv4() { 32 } else { 128 };
    let hosts = width.saturating_sub(bits.into()).min(63);
    offset(1 << hosts, 256, 16)
}

/// Returns the size of the lower band: a fraction of the range, at least 16 and at most `max`. A range of up to 16
/// values has no lower band.
fn offset(size: u128, max: u128, parts: u128) -> u128 {
    const MIN: u128 = 16;
    if size <= MIN { 0 } else { (size / parts).clamp(MIN, max) }
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).into(),
        IpAddr::V6(ip) => ip.into(),
    }
}

fn address(number: u128, is_v4: bool) -> IpAddr {
    match u32::try_from(number) {
        Ok(number) if is_v4 => IpAddr::V4(number.into()),
        _ => IpAddr::V6(number.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_band_is_reserved_for_static_allocation() {
        let check = |size: u128, addresses: u128, ports: u128| {
            assert_eq!((offset(size, 256, 16), offset(size, 128, 32)), (addresses, ports), "{size}");
        };
        check(16, 0, 0);
        check(64, 16, 16);
        check(2768, 173, 86);
        check(1 << 16, 256, 128);
    }

    #[test]
    fn upper_band_is_allocated_first() {
        let mut rng = GeneratedIds::new(7);
        for _ in 0..100 {
            assert!(pick_free(1, 100, 20, |_| true, &mut rng).unwrap() > 20);
        }
        assert_eq!(pick_free(1, 100, 20, |candidate| candidate == 3, &mut rng), Some(3));
        assert_eq!(pick_free(1, 100, 20, |_| false, &mut rng), None);
    }

    #[test]
    fn network_and_broadcast_addresses_are_not_allocated() {
        let check = |range: (&str, u8), expect: Option<(&str, &str)>| {
            let ip: IpAddr = range.0.parse().unwrap();
            let got = usable((ip, range.1)).map(|(first, last)| {
                (address(first, ip.is_ipv4()).to_string(), address(last, ip.is_ipv4()).to_string())
            });
            assert_eq!(got, expect.map(|(first, last)| (first.to_owned(), last.to_owned())));
        };
        check(("10.96.0.0", 16), Some(("10.96.0.1", "10.96.255.254")));
        check(("10.0.0.0", 30), Some(("10.0.0.1", "10.0.0.2")));
        check(("10.0.0.0", 31), None);
        check(("fd00::", 126), Some(("fd00::1", "fd00::3")));
        check(("::", 0), Some(("::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")));
    }
}
