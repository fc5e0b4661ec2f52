//! Cache of authentication and webhook results with a TTL, because a client sends its token with every request.

use std::collections::{BTreeMap, HashMap};

use apimachinery::Str;
use apimachinery::time::{Duration, Time};
use aws_lc_rs::digest;
use aws_lc_rs::hmac;

/// Time for which a result is valid, positive or negative.
pub const TTL: Duration = Duration::from_seconds(10);

/// A bounded cache of results by token and audiences.
///
/// Tokens are not stored. The key is an HMAC with a secret of this process, so that a memory dump reveals no token.
pub struct Cache<T> {
    secret: hmac::Key,
    entries: HashMap<[u8; 32], Entry<T>>,
    /// The keys by expiration, to find the oldest entry without a scan.
    by_end: BTreeMap<(Time, u64), [u8; 32]>,
    made: u64,
    entries_max: usize,
}

struct Entry<T> {
    value: T,
    end: (Time, u64),
}

impl<T> Cache<T> {
    /// Returns an empty cache for at most `entries_max` results. `secret` must be random.
    pub fn new(secret: &[u8; 32], entries_max: usize) -> Self {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
        Self { secret, entries: HashMap::new(), by_end: BTreeMap::new(), made: 0, entries_max }
    }

    /// Returns an empty cache for at most `entries_max` results with a random secret.
    ///
    /// # Panics
    /// If the kernel returns no random bytes.
    pub fn with_random_secret(entries_max: usize) -> Self {
        let mut secret = [0; 32];
        aws_lc_rs::rand::fill(&mut secret).expect("the kernel gives random bytes");
        Self::new(&secret, entries_max)
    }

    /// Returns the unexpired result for the token and audiences.
    pub fn get(&self, token: &str, audiences: &[Str], now: Time) -> Option<&T> {
        let entry = self.entries.get(&self.key(token, audiences))?;
        (now < entry.end.0).then_some(&entry.value)
    }

    /// Stores a result for `ttl`. Expired entries are evicted first, then those that expire next.
    pub fn insert(&mut self, token: &str, audiences: &[Str], value: T, now: Time, ttl: Duration) {
        let key = self.key(token, audiences);
        self.remove(&key);
        while let Some((end, oldest)) = self.by_end.first_key_value().map(|(end, key)| (*end, *key)) {
            if end.0 > now && self.entries.len() < self.entries_max {
                break;
            }
            self.by_end.remove(&end);
            self.entries.remove(&oldest);
        }
        if self.entries_max == 0 {
            return;
        }
        self.made += 1;
        let end = (now.plus(ttl), self.made);
        self.by_end.insert(end, key);
        self.entries.insert(key, Entry { value, end });
    }

    /// Returns the number of entries, including expired ones that were not evicted yet.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn remove(&mut self, key: &[u8; 32]) {
        if let Some(entry) = self.entries.remove(key) {
            self.by_end.remove(&entry.end);
        }
    }

    /// Computes the key. Lengths are hashed too, so that different inputs never have the same encoding.
    fn key(&self, token: &str, audiences: &[Str]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.secret);
        for part in std::iter::once(token).chain(audiences.iter().map(Str::as_str)) {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part.as_bytes());
        }
        let mut key = [0; digest::SHA256_OUTPUT_LEN];
        key.copy_from_slice(context.sign().as_ref());
        key
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: i64) -> Time {
        Time::from_unix(seconds, 0)
    }

    #[test]
    fn result_is_valid_for_ten_seconds_and_its_audiences() {
        let mut cache = Cache::new(&[7; 32], 10);
        cache.insert("t", &["a".into()], 1, at(0), TTL);
        assert_eq!(cache.get("t", &["a".into()], at(9)), Some(&1));
        assert_eq!(cache.get("t", &["a".into()], at(10)), None);
        assert_eq!(cache.get("t", &[], at(0)), None);
        assert_eq!(cache.get("ta", &[], at(0)), None);
        cache.insert("t", &["a".into()], 2, at(5), TTL);
        assert_eq!(cache.get("t", &["a".into()], at(14)), Some(&2));
        assert_eq!(cache.len(), 1);
    }

    #[test]
    fn cache_of_size_zero_stores_nothing() {
        let mut cache = Cache::new(&[7; 32], 0);
        cache.insert("t", &[], 1, at(0), TTL);
        assert!(cache.is_empty());
    }

    proptest! {
        /// For any sequence of operations the cache is bounded and returns the last stored, unexpired result.
        #[test]
        fn cache_is_bounded_and_never_stale(steps in prop::collection::vec((0u8..8, 0i64..4), 0..200)) {
            let mut cache = Cache::new(&[7; 32], 4);
            let mut model: BTreeMap<u8, (usize, i64)> = BTreeMap::new();
            let mut now = 0;
            for (value, (token, pause)) in steps.into_iter().enumerate() {
                now += pause;
                cache.insert(&token.to_string(), &[], value, at(now), TTL);
                model.insert(token, (value, now));
                prop_assert!(cache.len() <= 4 && cache.by_end.len() == cache.entries.len());
                for (token, (value, made)) in &model {
                    let got = cache.get(&token.to_string(), &[], at(now));
                    prop_assert!(got.is_none() || got == Some(value) && now - made < 10);
                }
                prop_assert_eq!(cache.get(&token.to_string(), &[], at(now)), Some(&value));
            }
        }
    }
}
