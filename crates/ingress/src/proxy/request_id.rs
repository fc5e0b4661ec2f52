//! Identifiers of requests: unique among all instances, without random bytes for each request.

use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;

const HEXADECIMAL: &[u8; 16] = b"0123456789abcdef";

/// 64 random bits of the process, and a number of the request that is mixed so that identifiers differ in all digits.
#[derive(Debug)]
pub(super) struct RequestIds {
    process: u64,
    next: AtomicU64,
}

impl Default for RequestIds {
    fn default() -> RequestIds {
        let mut random = [0; 16];
        aws_lc_rs::rand::fill(&mut random).expect("the kernel gives random bytes");
        let random = u128::from_ne_bytes(random);
        RequestIds { process: (random >> 64) as u64, next: AtomicU64::new(random as u64) }
    }
}

impl RequestIds {
    /// Returns an identifier of 32 hexadecimal digits, as nginx does.
    pub(super) fn next(&self) -> HeaderValue {
        let number = mix(self.next.fetch_add(1, Ordering::Relaxed));
        let id = u128::from(self.process ^ number.rotate_left(32)) << 64 | u128::from(number);
        let mut text = [0; 32];
        for (at, digit) in text.iter_mut().enumerate() {
            *digit = HEXADECIMAL[(id >> (124 - 4 * at)) as usize & 15];
        }
        HeaderValue::from_bytes(&text).expect("hexadecimal digits are a header value")
    }
}

/// A bijection that spreads each bit over all bits (the finalizer of SplitMix64).
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn identifiers_are_unique_and_hexadecimal() {
        let ids = [RequestIds::default(), RequestIds::default()];
        let made: BTreeSet<String> =
            (0..1000).map(|number| ids[number % 2].next().to_str().unwrap().to_owned()).collect();
        assert_eq!(made.len(), 1000);
        assert!(made.iter().all(|id| id.len() == 32 && id.bytes().all(|byte| HEXADECIMAL.contains(&byte))));
    }
}
