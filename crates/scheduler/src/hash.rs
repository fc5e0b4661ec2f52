//! Maps whose hashes are the same in every run: a decision must not depend on the run it is made in.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};

/// A map that is only ever asked for keys: its order means nothing.
pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

/// 128 bits of hash: enough that two different things never share one.
pub fn wide(parts: &[&str]) -> u128 {
    let half = |seed: u8| {
        let mut hasher = DefaultHasher::new();
        seed.hash(&mut hasher);
        parts.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(1) << 64 | half(2)
}
