//! Interface between the etcd server and a member of the cluster.

mod node;

use std::future::Future;

use mvcc::{Alarm, AlarmChange, Command, LeaseId, Outcome, State};

pub use node::NodeBackend;

use crate::member::DiskStats;
use crate::peer::PeerTraffic;
use crate::sessions::Sessions;
use crate::watch::Hub;

/// Interval for polling whether a compaction has finished.
const FORGETTING: std::time::Duration = std::time::Duration::from_millis(10);

/// A member of the cluster. Clones are handles to the same member.
pub trait Backend: Clone + Send + Sync + 'static {
    fn id(&self) -> u64;
    fn cluster_id(&self) -> u64;
    /// Calls `read` with the applied state. The call must be short, because applying waits for it: clone the state for
    /// anything long.
    fn view<R>(&self, look: impl FnOnce(&State) -> R) -> R;
    /// Returns the hub that notifies watchers of changes.
    fn hub(&self) -> &Hub;
    fn sessions(&self) -> &Sessions;
    /// Appends a command to the log. Returns its outcome after a majority has it on disk and this member applied it.
    fn propose(&self, command: Command) -> impl Future<Output = Result<Outcome, BackendError>> + Send;
    /// Returns when [`Backend::view`] sees everything that was acknowledged before the call.
    fn read_index(&self) -> impl Future<Output = Result<(), BackendError>> + Send;
    fn status(&self) -> Status;
    /// Returns the traffic with each peer.
    fn peer_traffic(&self) -> Vec<PeerTraffic>;
    /// Returns the members known to this member, which may be stale.
    fn members(&self) -> Vec<Member>;
    /// Changes the membership. Returns the member concerned, unless it was removed.
    fn change_members(&self, change: MemberChange)
    -> impl Future<Output = Result<Option<Member>, BackendError>> + Send;
    /// Transfers the leadership to another member.
    fn move_leader(&self, to: u64) -> impl Future<Output = Result<(), BackendError>> + Send;
    /// Renews a lease at the leader and returns its TTL in seconds, or `None` if the lease does not exist.
    fn lease_renew(&self, id: LeaseId) -> impl Future<Output = Result<Option<i64>, BackendError>> + Send;
    /// Returns the remaining seconds of a lease by the leader's clock, or `None` if the lease does not exist.
    fn lease_remaining(&self, id: LeaseId) -> impl Future<Output = Result<Option<i64>, BackendError>> + Send;
}

/// Proposes a command. A command that would grow a store over its quota raises the NOSPACE alarm and fails.
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

/// Returns when the compacted history has been removed on this member.
pub(crate) async fn forgotten<B: Backend>(backend: &B) {
    while backend.view(State::is_forgetting) {
        tokio::time::sleep(FORGETTING).await;
    }
}

/// Status of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The leader's ID, 0 if unknown.
    pub leader: u64,
    pub term: u64,
    pub commit_index: u64,
    pub applied_index: u64,
    pub learner: bool,
    /// Disk usage of log and checkpoints.
    pub disk_bytes: u64,
    /// Number of leader changes since this member started.
    pub leader_changes: u64,
    /// Number of committed entries that this member has not applied yet.
    pub pending: u64,
    pub disk: DiskStats,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    pub id: u64,
    /// Empty until the member has started.
    pub name: String,
    pub peer_urls: Vec<String>,
    pub client_urls: Vec<String>,
    pub learner: bool,
}

/// A membership change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberChange {
    Add {
        peer_urls: Vec<String>,
        /// Whether the member is added as a non-voting learner.
        learner: bool,
    },
    Remove(u64),
    /// New peer URLs of a member.
    Update(u64, Vec<String>),
    /// Makes a learner a voter.
    Promote(u64),
}

/// The cluster could not execute a request. The messages are etcd's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
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
