//! Deterministic names for new pods.

use std::collections::BTreeSet;

use apimachinery::Value;
use apimachinery::meta::{Meta, generate_name, name_suffix};

/// Returns names for `count` new pods. The names are deterministic: after a crash or a leader change the same decision
/// yields the same names, and the API server rejects duplicates. The owner's resourceVersion is hashed too, so that the
/// name of a deleted pod is not reused.
// DEVIATION: the controller chooses the name; upstream uses generateName. The form is the same, `<owner>-<five
// letters>`, with generateName set.
pub fn fresh(owner: &Value, prefix: &str, owned: &[&Value], count: usize) -> Vec<String> {
    let meta = Meta::of(owner);
    let mut seed = FNV_OFFSET;
    let mut add = |text: &str| seed = text.bytes().chain([0]).fold(seed, fnv);
    add(meta.uid());
    add(meta.resource_version());
    add(prefix);
    owned.iter().for_each(|pod| add(Meta::of(pod).name()));
    let mut taken: BTreeSet<String> = owned.iter().map(|pod| Meta::of(pod).name().to_owned()).collect();
    (0u64..)
        .map(|number| {
            let hash = number.to_le_bytes().into_iter().fold(seed, fnv);
            generate_name(prefix, &name_suffix(mix(hash)))
        })
        .filter(|name| taken.insert(name.clone()))
        .take(count)
        .collect()
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a: fast, and sufficient without adversarial input.
fn fnv(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
}

/// Mixes a hash, because a name uses its lowest bits.
fn mix(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    hash ^ (hash >> 29)
}
