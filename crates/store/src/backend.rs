//! What the protocol's server needs of a member of the cluster, whatever keeps the log beneath it.

mod node;

use std::future::Future;

use mvcc::{Alarm, AlarmChange, Command, LeaseId, Outcome, State};

pub use node::NodeBackend;

use crate::node::DiskStats;
use crate::peer::PeerTraffic;
use crate::sessions::Sessions;
use crate::watch::Hub;

/// How often it is looked whether all that was compacted is forgotten, for who waits for that.
const FORGETTING: std::time::Duration = std::time::Duration::from_millis(10);

/// A member of the cluster, as those who serve clients see it. Clones are handles to the same member.
pub trait Backend: Clone + Send + Sync + 'static {
    /// This member's id.
    fn id(&self) -> u64;
    /// The cluster's id.
    fn cluster_id(&self) -> u64;
    /// Looks at what was applied so far. Keep it short: applying waits for it. Clone the state for anything long.
    fn view<R>(&self, look: impl FnOnce(&State) -> R) -> R;
    /// Who must look when something changes.
    fn hub(&self) -> &Hub;
    /// The sessions of authenticated users.
    fn sessions(&self) -> &Sessions;
    /// Puts a command into the log and returns what became of it once a majority has it on disk and it was applied here.
    fn propose(&self, command: Command) -> impl Future<Output = Result<Outcome, BackendError>> + Send;
    /// Returns when everything that was acknowledged before the call can be seen by [`Backend::view`].
    fn read_index(&self) -> impl Future<Output = Result<(), BackendError>> + Send;
    /// How the member stands.
    fn status(&self) -> Status;
    /// What went to the other members and came from them.
    fn peer_traffic(&self) -> Vec<PeerTraffic>;
    /// The members as this one knows them.
    fn members(&self) -> Vec<Member>;
    /// Changes the members; returns the member concerned, if it still is one.
    fn change_members(&self, change: MemberChange)
    -> impl Future<Output = Result<Option<Member>, BackendError>> + Send;
    /// Makes another member the leader.
    fn move_leader(&self, to: u64) -> impl Future<Output = Result<(), BackendError>> + Send;
    /// Renews a lease at the leader and returns its time to live in seconds, or none if there is no such lease.
    fn lease_renew(&self, id: LeaseId) -> impl Future<Output = Result<Option<i64>, BackendError>> + Send;
    /// How many seconds a lease has left by the leader's clock, or none if there is no such lease.
    fn lease_remaining(&self, id: LeaseId) -> impl Future<Output = Result<Option<i64>, BackendError>> + Send;
}

/// Proposes a command, unless it would make a store grow that has used up its quota: that raises the alarm, and is refused.
pub(crate) async fn propose_within<B: Backend>(
    backend: &B,
    quota_bytes: Option<u64>,
    command: Command,
) -> Result<Outcome, BackendError> {
    let is_full = quota_bytes.is_some_and(|quota| backend.view(State::size_bytes) >= quota);
    if !is_full || !command.counts_against_quota() {
        return backend.propose(command).await;
    }
    if !backend.view(|state| state.has_alarm(Alarm::NoSpace)) {
        let alarm = Command::Alarm { change: AlarmChange::Raise, alarm: Alarm::NoSpace, member: backend.id() };
        backend.propose(alarm).await?;
    }
    Ok(Outcome { revision: backend.view(State::revision), result: Err(mvcc::Error::NoSpace) })
}

/// Returns when all that was compacted is forgotten here.
pub(crate) async fn forgotten<B: Backend>(backend: &B) {
    while backend.view(State::is_forgetting) {
        tokio::time::sleep(FORGETTING).await;
    }
}

/// How a member stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The leader's id, 0 when none is known.
    pub leader: u64,
    /// The current term.
    pub term: u64,
    /// The last entry a majority has.
    pub commit_index: u64,
    /// The last entry applied here.
    pub applied_index: u64,
    /// Whether this member does not vote.
    pub learner: bool,
    /// What log and checkpoints take on disk.
    pub disk_bytes: u64,
    /// How often the leader has changed since this member started.
    pub leader_changes: u64,
    /// Commands proposed here and not yet applied.
    pub pending: u64,
    /// What the disk did.
    pub disk: DiskStats,
}

/// A member of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: u64,
    /// Its name; empty until it has started.
    pub name: String,
    /// Where other members reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it.
    pub client_urls: Vec<String>,
    /// Whether it does not vote.
    pub learner: bool,
}

/// A change of the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// A new member.
    Add {
        /// Where it will be.
        peer_urls: Vec<String>,
        /// Whether it is not to vote.
        learner: bool,
    },
    /// A member leaves.
    Remove(u64),
    /// A member has moved.
    Update(u64, Vec<String>),
    /// A learner becomes a voter.
    Promote(u64),
}

/// Why the cluster did not do what was asked; the texts are etcd's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum BackendError {
    #[error("etcdserver: no leader")]
    NoLeader,
    #[error("etcdserver: not leader")]
    NotLeader,
    #[error("etcdserver: leader changed")]
    LeaderChanged,
    #[error("etcdserver: request timed out")]
    Timeout,
    #[error("etcdserver: too many requests")]
    TooManyRequests,
    #[error("etcdserver: request is too large")]
    TooLarge,
    #[error("etcdserver: mvcc: database space exceeded")]
    NoSpace,
    #[error("etcdserver: server stopped")]
    Stopped,
    #[error("etcdserver: rpc not supported for learner")]
    Learner,
    #[error("etcdserver: bad leader transferee")]
    BadTransferee,
    #[error("etcdserver: member not found")]
    MemberNotFound,
    #[error("etcdserver: member ID already exist")]
    MemberExists,
    #[error("etcdserver: Peer URLs already exists")]
    PeerUrlExists,
    #[error("etcdserver: given member URLs are invalid")]
    BadUrls,
    #[error("etcdserver: re-configuration failed due to not enough started members")]
    NotEnoughStarted,
    #[error("etcdserver: can only promote a learner member")]
    NotLearner,
    #[error("etcdserver: can only promote a learner member which is in sync with leader")]
    LearnerNotReady,
    #[error("etcdserver: too many learner members in cluster")]
    TooManyLearners,
    #[error("etcdserver: unhealthy cluster")]
    Unhealthy,
}
