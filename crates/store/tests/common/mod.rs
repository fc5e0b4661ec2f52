//! A member of its own for tests of the protocol: the key space without log or disk.

#![expect(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::sync::{Arc, Mutex, RwLock};
use std::time::Instant;

use mvcc::{Command, LeaseId, Lessor, Outcome, State};
use store::backend::{Backend, BackendError, Member, MemberChange, Status};
use store::watch::Hub;
use tokio::sync::Notify;

/// One member, which agrees with itself at once.
#[derive(Clone)]
pub struct Local {
    inner: Arc<Inner>,
}

struct Inner {
    state: RwLock<State>,
    lessor: Mutex<Lessor>,
    lease_changed: Notify,
    hub: Hub,
    start: Instant,
}

impl Local {
    pub fn start() -> Self {
        let state = State::new();
        let lessor = Lessor::promote(&state, 0, 0);
        let inner = Inner {
            state: RwLock::new(state),
            lessor: Mutex::new(lessor),
            lease_changed: Notify::new(),
            hub: Hub::default(),
            start: Instant::now(),
        };
        let local = Self { inner: Arc::new(inner) };
        tokio::spawn(expire(local.clone()));
        local
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.inner.start.elapsed().as_millis()).unwrap()
    }

    fn apply(&self, command: &Command) -> Outcome {
        let mut state = self.inner.state.write().unwrap();
        let index = state.applied_index() + 1;
        let outcome = state.apply(index, command);
        self.inner.lessor.lock().unwrap().observe(command, &outcome, self.now_ms());
        self.inner.hub.publish(&state);
        self.inner.lease_changed.notify_one();
        outcome
    }
}

async fn expire(local: Local) {
    loop {
        let now = local.now_ms();
        let expired = local.inner.lessor.lock().unwrap().expired(now, 100);
        for id in expired {
            local.apply(&Command::LeaseRevoke { id });
        }
        let next = local.inner.lessor.lock().unwrap().next_deadline();
        let wait = next.map_or(3_600_000, |next| next.saturating_sub(local.now_ms()));
        tokio::select! {
            () = tokio::time::sleep(std::time::Duration::from_millis(wait)) => {}
            () = local.inner.lease_changed.notified() => {}
        }
    }
}

impl Backend for Local {
    fn id(&self) -> u64 {
        0x8e9e_05c5_2164_694d
    }

    fn cluster_id(&self) -> u64 {
        0xcdf8_18b9_5c66_4d02
    }

    fn view<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        look(&self.inner.state.read().unwrap())
    }

    fn hub(&self) -> &Hub {
        &self.inner.hub
    }

    async fn propose(&self, command: Command) -> Result<Outcome, BackendError> {
        Ok(self.apply(&command))
    }

    async fn read_index(&self) -> Result<(), BackendError> {
        Ok(())
    }

    fn status(&self) -> Status {
        let index = self.view(State::applied_index);
        Status { leader: self.id(), term: 2, commit_index: index, applied_index: index, ..Status::default() }
    }

    fn members(&self) -> Vec<Member> {
        vec![Member {
            id: self.id(),
            name: "default".to_owned(),
            peer_urls: vec!["http://127.0.0.1:2380".to_owned()],
            client_urls: vec!["http://127.0.0.1:2379".to_owned()],
            learner: false,
        }]
    }

    async fn change_members(&self, change: MemberChange) -> Result<Option<Member>, BackendError> {
        match change {
            MemberChange::Add { .. } => Err(BackendError::Unhealthy),
            MemberChange::Promote(id) if id == self.id() => Err(BackendError::NotLearner),
            _ => Err(BackendError::MemberNotFound),
        }
    }

    async fn move_leader(&self, _: u64) -> Result<(), BackendError> {
        Err(BackendError::BadTransferee)
    }

    async fn lease_renew(&self, id: LeaseId) -> Result<Option<i64>, BackendError> {
        let now = self.now_ms();
        Ok(self.inner.lessor.lock().unwrap().renew(id, now))
    }

    async fn lease_remaining(&self, id: LeaseId) -> Result<Option<i64>, BackendError> {
        let now = self.now_ms();
        Ok(self.inner.lessor.lock().unwrap().remaining(id, now))
    }
}
