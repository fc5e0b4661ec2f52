//! Random UIDs and name suffixes of new objects.

use std::cell::RefCell;

use api_registry::strategy::GeneratedIds;

/// Returns random values for a new object: its UID and its name suffix.
pub(crate) fn generate_ids() -> GeneratedIds {
    GeneratedIds { uid: generate_uid(), suffix: apimachinery::meta::name_suffix(u64::from_le_bytes(random())) }
}

/// Returns a random version 4 UUID.
pub(crate) fn generate_uid() -> String {
    uuid(random())
}

/// Returns random bytes from a per-thread buffer, because a call of the generator costs as much for few bytes as for
/// many.
fn random<const N: usize>() -> [u8; N] {
    const AHEAD: usize = 512;
    thread_local! {
        static LEFT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    LEFT.with_borrow_mut(|left| {
        if left.len() < N {
            left.resize(AHEAD.max(N), 0);
            // The generator of the TLS provider fails only if the kernel cannot provide randomness.
            aws_lc_rs::rand::fill(left).expect("the kernel gives random bytes");
        }
        let rest = left.len() - N;
        let drawn = left[rest..].try_into().expect("enough bytes are left");
        left.truncate(rest);
        drawn
    })
}

fn uuid(mut id: [u8; 16]) -> String {
    id[6] = (id[6] & 0x0f) | 0x40;
    id[8] = (id[8] & 0x3f) | 0x80;
    let mut text = String::with_capacity(36);
    for (at, byte) in id.into_iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for digit in [byte >> 4, byte & 0x0f] {
            text.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_unique_version_4_uuids() {
        assert_eq!(uuid([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(uuid([0; 16]), "00000000-0000-4000-8000-000000000000");
        let drawn: std::collections::BTreeSet<String> = (0..1000).map(|_| generate_uid()).collect();
        assert_eq!(drawn.len(), 1000);
    }
}
