//! Sessions of users authenticated by password: the accepted tokens and their users.
//!
//! Sessions are opened through the log, so every member that applies the entry accepts the token. They expire by each
//! member's clock and are not part of checkpoints: a client with an unknown token authenticates again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mvcc::{Command, DirectoryChange, Outcome, Reply};

/// The sessions of one member. Clones are handles to the same sessions.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    inner: Arc<Mutex<Inner>>,
}

/// The effect of an applied command on sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionChange {
    Open { token: String, user: String },
    CloseUser { user: String },
    CloseAll,
}

/// Default lifetime of an unused session.
pub const TTL: Duration = Duration::from_secs(300);
/// Expired sessions are removed when their number has doubled since the last time, and is at least this.
const PRUNE_MIN: usize = 64;

#[derive(Debug)]
struct Inner {
    by_token: HashMap<String, Session>,
    ttl: Duration,
    prune_at: usize,
}

#[derive(Debug)]
struct Session {
    user: String,
    used: Instant,
}

impl Default for Inner {
    fn default() -> Self {
        Self { by_token: HashMap::new(), ttl: TTL, prune_at: PRUNE_MIN }
    }
}

impl SessionChange {
    /// Returns the effect of a command, given its outcome.
    pub fn of(command: &Command, outcome: &Outcome) -> Option<Self> {
        match (command.split().1, outcome.result.as_ref().ok()?) {
            (Command::Authenticate { user, token }, Reply::Authenticated { index, .. }) if !token.is_empty() => {
                Some(Self::Open { token: full_token(token, *index), user: user.clone() })
            }
            (
                Command::Directory(DirectoryChange::DeleteUser { name } | DirectoryChange::SetPassword { name, .. }),
                _,
            ) => Some(Self::CloseUser { user: name.clone() }),
            (Command::Directory(DirectoryChange::Disable), _) => Some(Self::CloseAll),
            _ => None,
        }
    }
}

/// Returns the client's token: the proposer's random part and the index of the entry that opened the session.
pub(crate) fn full_token(random: &str, index: u64) -> String {
    format!("{random}.{index}")
}

/// Returns the index of the entry that opened the token's session, if the token is well-formed.
pub(crate) fn opened_at(token: &str) -> Option<u64> {
    token.split_once('.').and_then(|(_, index)| index.parse().ok())
}

impl Sessions {
    /// Sets the lifetime of an unused session.
    pub fn set_ttl(&self, ttl: Duration) {
        self.lock().ttl = ttl;
    }

    pub fn apply(&self, change: SessionChange, now: Instant) {
        let mut inner = self.lock();
        match change {
            SessionChange::Open { token, user } => {
                if inner.by_token.len() >= inner.prune_at {
                    inner.prune(now);
                }
                inner.by_token.insert(token, Session { user, used: now });
            }
            SessionChange::CloseUser { user } => inner.by_token.retain(|_, session| session.user != user),
            SessionChange::CloseAll => inner.by_token.clear(),
        }
    }

    /// Returns the user of a session and restarts its lifetime.
    pub fn user(&self, token: &str, now: Instant) -> Option<String> {
        let mut inner = self.lock();
        let ttl = inner.ttl;
        let session = inner.by_token.get_mut(token)?;
        if session.is_expired(ttl, now) {
            inner.by_token.remove(token);
            return None;
        }
        session.used = now;
        Some(session.user.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn prune(&mut self, now: Instant) {
        let ttl = self.ttl;
        self.by_token.retain(|_, session| !session.is_expired(ttl, now));
        self.prune_at = PRUNE_MIN.max(2 * self.by_token.len());
    }
}

impl Session {
    fn is_expired(&self, ttl: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.used) > ttl
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(sessions: &Sessions, token: &str, user: &str, now: Instant) {
        sessions.apply(SessionChange::Open { token: token.into(), user: user.into() }, now);
    }

    #[test]
    fn unused_session_expires() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        sessions.set_ttl(Duration::from_secs(10));
        let at = |seconds| start + Duration::from_secs(seconds);
        open(&sessions, "used.1", "alice", at(0));
        open(&sessions, "idle.2", "bob", at(0));
        assert_eq!(sessions.user("used.1", at(9)).as_deref(), Some("alice"));
        assert_eq!(sessions.user("used.1", at(18)).as_deref(), Some("alice"));
        assert_eq!(sessions.user("idle.2", at(18)), None);
        assert_eq!(sessions.user("other.3", at(18)), None);
    }

    #[test]
    fn password_change_closes_sessions_of_the_user_and_disabling_auth_closes_all() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let done = |reply| Outcome { revision: 1, result: Ok(reply) };
        let of = |command: Command, reply| SessionChange::of(&command, &done(reply));
        let password = mvcc::PasswordHash::new("x".into());
        let authenticate = || Command::Authenticate { user: "alice".into(), token: "t".into() };
        let opened = of(authenticate(), Reply::Authenticated { index: 7, revision: 3 });
        assert_eq!(opened, Some(SessionChange::Open { token: "t.7".into(), user: "alice".into() }));
        let failed = Outcome { revision: 1, result: Err(mvcc::DirectoryError::AuthFailed.into()) };
        assert_eq!(SessionChange::of(&authenticate(), &failed), None);
        let signed = Command::Authenticate { user: "alice".into(), token: String::new() };
        assert_eq!(of(signed, Reply::Authenticated { index: 8, revision: 3 }), None, "the token is not registered");

        let is_open = |token| sessions.user(token, now).is_some();
        open(&sessions, "a.1", "alice", now);
        open(&sessions, "b.2", "bob", now);
        let changed = Command::Directory(DirectoryChange::SetPassword { name: "alice".into(), password });
        sessions.apply(of(changed.authorized(mvcc::Caller::Cluster), Reply::Directory).expect("a change"), now);
        assert!(!is_open("a.1") && is_open("b.2"));
        let disabled = of(Command::Directory(DirectoryChange::Disable), Reply::Directory);
        sessions.apply(disabled.expect("a change"), now);
        assert!(!is_open("b.2"));
    }

    #[test]
    fn expired_sessions_are_pruned() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        for number in 0..10 * PRUNE_MIN {
            let now = start + TTL * u32::try_from(number).expect("few");
            open(&sessions, &format!("t.{number}"), "alice", now);
        }
        assert!(sessions.lock().by_token.len() <= PRUNE_MIN + 2);
    }
}
