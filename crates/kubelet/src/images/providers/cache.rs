//! Cached responses of a credential provider.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::exec::{CacheKeyType, Response};
use crate::images::verification::AccountUse;

/// Maximum number of responses per provider. The one that expires first makes room.
const ENTRIES_MAX: usize = 1000;
/// Maximum duration of an entry.
const DURATION_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// Base key of responses for all images. No image or registry has this name.
const GLOBAL: &str = "";

/// The service account that a response is for. Responses for one are not used for another.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    pub account: Option<AccountUse>,
    pub annotations: BTreeMap<String, String>,
    pub token_hash: Option<String>,
}

/// Responses by image, registry or nothing, and identity.
#[derive(Debug, Default)]
pub(super) struct Cache(BTreeMap<(String, Identity), Entry>);

#[derive(Debug)]
struct Entry {
    response: Arc<Response>,
    expires_at: Instant,
}

impl Cache {
    /// Returns the response for an image: the one for exactly this image, for its registry, or for all images.
    pub(super) fn get(&self, image: &str, identity: &Identity, now: Instant) -> Option<Arc<Response>> {
        [image, registry(image), GLOBAL].into_iter().find_map(|base| {
            let entry = self.0.get(&(base.to_owned(), identity.clone()))?;
            (now < entry.expires_at).then(|| Arc::clone(&entry.response))
        })
    }

    pub(super) fn insert(
        &mut self,
        image: &str,
        identity: &Identity,
        response: &Arc<Response>,
        duration: Duration,
        now: Instant,
    ) {
        if duration.is_zero() {
            return;
        }
        self.0.retain(|_, entry| now < entry.expires_at);
        let base = match response.cache_key_type {
            CacheKeyType::Image => image,
            CacheKeyType::Registry => registry(image),
            CacheKeyType::Global => GLOBAL,
        };
        let key = (base.to_owned(), identity.clone());
        if self.0.len() >= ENTRIES_MAX && !self.0.contains_key(&key) {
            let first = self.0.iter().min_by_key(|(_, entry)| entry.expires_at).map(|(key, _)| key.clone());
            first.map(|key| self.0.remove(&key));
        }
        let expires_at = now + duration.min(DURATION_MAX);
        self.0.insert(key, Entry { response: Arc::clone(response), expires_at });
    }
}

/// Returns the registry of a full image name.
fn registry(image: &str) -> &str {
    image.split('/').next().unwrap_or(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(cache_key_type: CacheKeyType) -> Arc<Response> {
        Arc::new(Response { cache_key_type, cache_duration: None, auth: BTreeMap::new() })
    }

    fn of_account(name: &str, token_hash: Option<&str>) -> Identity {
        let account = AccountUse { uid: "u".into(), namespace: "n".into(), name: name.into() };
        Identity { account: Some(account), token_hash: token_hash.map(str::to_owned), ..Identity::default() }
    }

    #[test]
    fn response_is_reused_by_key_type_identity_and_duration() {
        let minute = Duration::from_secs(60);
        let start = Instant::now();
        let check = |kind: CacheKeyType, image: &str, identity: &Identity, at: Duration, expect: bool| {
            let mut cache = Cache::default();
            cache.insert("r.example/a", &of_account("one", None), &response(kind), minute, start);
            let found = cache.get(image, identity, start + at).is_some();
            assert_eq!(found, expect, "{kind:?} {image} {identity:?} {at:?}");
        };
        let one = of_account("one", None);
        check(CacheKeyType::Image, "r.example/a", &one, Duration::ZERO, true);
        check(CacheKeyType::Image, "r.example/b", &one, Duration::ZERO, false);
        check(CacheKeyType::Registry, "r.example/b", &one, Duration::ZERO, true);
        check(CacheKeyType::Registry, "s.example/a", &one, Duration::ZERO, false);
        check(CacheKeyType::Global, "s.example/a", &one, Duration::ZERO, true);
        check(CacheKeyType::Global, "s.example/a", &of_account("two", None), Duration::ZERO, false);
        check(CacheKeyType::Global, "s.example/a", &of_account("one", Some("hash")), Duration::ZERO, false);
        check(CacheKeyType::Global, "s.example/a", &Identity::default(), Duration::ZERO, false);
        check(CacheKeyType::Image, "r.example/a", &one, minute - Duration::from_nanos(1), true);
        check(CacheKeyType::Image, "r.example/a", &one, minute, false);
    }

    #[test]
    fn cache_is_bounded_and_drops_expired_entries() {
        let start = Instant::now();
        let mut cache = Cache::default();
        let none = Identity::default();
        cache.insert("r.example/zero", &none, &response(CacheKeyType::Image), Duration::ZERO, start);
        assert!(cache.0.is_empty(), "a duration of zero means that the response is not cached");
        for index in 0..=ENTRIES_MAX {
            let duration = Duration::from_secs(100 + index as u64);
            cache.insert(&format!("r.example/{index}"), &none, &response(CacheKeyType::Image), duration, start);
        }
        assert_eq!(cache.0.len(), ENTRIES_MAX);
        assert!(cache.get("r.example/0", &none, start).is_none(), "it would have expired first");
        assert!(cache.get("r.example/1", &none, start).is_some());
        let later = start + Duration::from_secs(9999);
        cache.insert("r.example/late", &none, &response(CacheKeyType::Image), Duration::MAX, later);
        assert_eq!(cache.0.len(), 1);
    }
}
