//! The table of sessions: a pure state machine. Time and identifiers are arguments.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};

/// Limits of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// A session without requests ends after this time.
    pub idle: Duration,
    /// A session ends after this time in any case.
    pub absolute: Duration,
    pub sessions_max: usize,
    /// A user's oldest session ends when the user has more.
    pub per_user_max: usize,
}

/// The hash of a session's secrets. The table contains no secrets, and the duration of a lookup depends only on the
/// hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionKey([u8; 32]);

pub(crate) struct Sessions<T> {
    limits: Limits,
    entries: BTreeMap<SessionKey, Entry<T>>,
}

struct Entry<T> {
    user: String,
    value: Arc<T>,
    started: Instant,
    used: Instant,
}

/// Sessions of other users have reached the limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SessionLimitReached;

impl SessionKey {
    pub(crate) fn of(id: &str) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, id.as_bytes()).as_ref());
        Self(hash)
    }
}

impl<T> Sessions<T> {
    pub(crate) const fn new(limits: Limits) -> Self {
        Self { limits, entries: BTreeMap::new() }
    }

    /// Adds a session. Returns the sessions that end because of it.
    pub(crate) fn add(
        &mut self,
        now: Instant,
        key: SessionKey,
        user: &str,
        value: Arc<T>,
    ) -> Result<Vec<Arc<T>>, SessionLimitReached> {
        let mut ended = self.expire(now);
        let own = || self.entries.iter().filter(|(_, entry)| entry.user == user);
        if own().count() >= self.limits.per_user_max {
            let oldest = own().min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key);
            ended.extend(oldest.and_then(|key| self.remove(key)));
        }
        if self.entries.len() >= self.limits.sessions_max {
            return Err(SessionLimitReached);
        }
        self.entries.insert(key, Entry { user: user.to_owned(), value, started: now, used: now });
        Ok(ended)
    }

    /// Returns a live session and marks it as used.
    pub(crate) fn find(&mut self, now: Instant, key: SessionKey) -> Option<Arc<T>> {
        let ends = self.ends(key)?;
        if now >= ends {
            return None;
        }
        let entry = self.entries.get_mut(&key)?;
        entry.used = entry.used.max(now);
        Some(Arc::clone(&entry.value))
    }

    pub(crate) fn remove(&mut self, key: SessionKey) -> Option<Arc<T>> {
        self.entries.remove(&key).map(|entry| entry.value)
    }

    /// Removes and returns the sessions that have ended.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<Arc<T>> {
        let limits = self.limits;
        let ended = self.entries.extract_if(.., |_, entry| entry.ends(&limits) <= now);
        ended.map(|(_, entry)| entry.value).collect()
    }

    /// Returns the time at which a session ends if it is not used again.
    pub(crate) fn ends(&self, key: SessionKey) -> Option<Instant> {
        self.entries.get(&key).map(|entry| entry.ends(&self.limits))
    }
}

impl<T> Entry<T> {
    fn ends(&self, limits: &Limits) -> Instant {
        (self.started + limits.absolute).min(self.used + limits.idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn sessions() -> Sessions<&'static str> {
        let limits = Limits { idle: MINUTE * 10, absolute: MINUTE * 60, sessions_max: 3, per_user_max: 2 };
        Sessions::new(limits)
    }

    fn added(sessions: &mut Sessions<&'static str>, now: Instant, id: &'static str, user: &str) -> Vec<&'static str> {
        let ended = sessions.add(now, SessionKey::of(id), user, Arc::new(id)).expect("room");
        ended.into_iter().map(|value| *value).collect()
    }

    #[test]
    fn sessions_expire() {
        let (mut sessions, start) = (sessions(), Instant::now());
        added(&mut sessions, start, "a", "jane");
        let is_live = |sessions: &mut Sessions<_>, minutes: u32| {
            sessions.find(start + MINUTE * minutes, SessionKey::of("a")).is_some()
        };
        assert!(is_live(&mut sessions, 9));
        for minutes in (18..60).step_by(9) {
            assert!(is_live(&mut sessions, minutes), "used {minutes} minutes after its start");
        }
        assert!(!is_live(&mut sessions, 60), "the absolute timeout");
        added(&mut sessions, start, "b", "jane");
        assert_eq!(sessions.find(start + MINUTE * 10, SessionKey::of("b")), None, "the idle timeout");
        assert_eq!(sessions.expire(start + MINUTE * 60).len(), 2);
        assert!(sessions.entries.is_empty());
    }

    #[test]
    fn clock_that_stands_still_does_not_prolong_a_session() {
        let (mut sessions, start) = (sessions(), Instant::now());
        added(&mut sessions, start + MINUTE, "a", "jane");
        assert!(sessions.find(start, SessionKey::of("a")).is_some());
        assert_eq!(sessions.ends(SessionKey::of("a")), Some(start + MINUTE * 11));
    }

    #[test]
    fn number_of_sessions_is_limited() {
        let (mut sessions, now) = (sessions(), Instant::now());
        assert_eq!(added(&mut sessions, now, "a", "jane"), [""; 0]);
        assert_eq!(added(&mut sessions, now + MINUTE, "b", "jane"), [""; 0]);
        assert_eq!(added(&mut sessions, now + MINUTE, "c", "jane"), ["a"], "the user's oldest session ends");
        added(&mut sessions, now + MINUTE, "d", "joe");
        assert_eq!(sessions.add(now + MINUTE, SessionKey::of("e"), "jim", Arc::new("e")), Err(SessionLimitReached));
        let mut ended = added(&mut sessions, now + MINUTE * 11, "e", "jim");
        ended.sort_unstable();
        assert_eq!(ended, ["b", "c", "d"], "expired sessions make room");
    }

    #[test]
    fn removed_session_is_not_found() {
        let (mut sessions, now) = (sessions(), Instant::now());
        added(&mut sessions, now, "a", "jane");
        assert_eq!(sessions.find(now, SessionKey::of("A")), None);
        assert_eq!(sessions.remove(SessionKey::of("a")).as_deref(), Some(&"a"));
        assert_eq!(sessions.find(now, SessionKey::of("a")), None);
    }
}
