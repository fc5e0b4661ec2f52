//! [`Backend`] implementation on a running [`Node`].

use std::time::Duration;

use consensus::{Change, ChangeError, Peer};
use mvcc::{Alarm, Command, LeaseId, Outcome, State};

use super::{Backend, BackendError, Member, MemberChange, Status};
use crate::member::{LeaseError, MoveError, Node, ProposeError, ReadError};
use crate::peer::PeerTraffic;
use crate::sessions::Sessions;
use crate::watch::Hub;

/// Maximum time to wait until a committed membership change is visible on this member.
const VISIBLE_TIMEOUT: Duration = Duration::from_secs(1);

/// A cluster member with its watchers.
#[derive(Clone)]
pub struct NodeBackend {
    node: Node,
    hub: Hub,
    quota_bytes: Option<u64>,
    /// Minimum connection time of peers before a membership change; none disables the check.
    connected_min: Option<Duration>,
}

impl NodeBackend {
    /// The node's `on_apply` must publish to `hub`.
    pub fn new(node: Node, hub: Hub) -> Self {
        Self { node, hub, quota_bytes: None, connected_min: None }
    }

    /// Sets the quota for requests of clients in this process.
    #[must_use]
    pub fn with_quota(mut self, quota_bytes: Option<u64>) -> Self {
        self.quota_bytes = quota_bytes;
        self
    }

    /// Rejects membership changes unless a majority of the resulting voters has been connected to this member for
    /// `connected_min`.
    #[must_use]
    pub fn with_connected_min(mut self, connected_min: Duration) -> Self {
        self.connected_min = Some(connected_min);
        self
    }

    /// Returns the number of voters connected for at least `connected_min`, including this one.
    fn connected_voters(&self, connected_min: Duration) -> usize {
        let traffic = self.node.peer_traffic();
        let is_connected = |id: u64| {
            let of_peer = traffic.iter().find(|peer| peer.id == id);
            of_peer.and_then(|peer| peer.connected_for).is_some_and(|connected| connected >= connected_min)
        };
        let voters = self.node.members().into_iter().filter(|peer| !peer.learner);
        voters.filter(|peer| peer.id == self.node.id() || is_connected(peer.id)).count()
    }

    /// Checks that a new member, which cannot vote yet, does not cost the quorum.
    fn check_connected_to_add(&self) -> Result<(), BackendError> {
        let Some(connected_min) = self.connected_min else { return Ok(()) };
        let (voters, _) = voters(self.node.members().iter());
        if survives_add(voters, self.connected_voters(connected_min)) { Ok(()) } else { Err(BackendError::Unhealthy) }
    }

    /// Checks that removing a connected member leaves a quorum of connected members.
    fn check_connected_to_remove(&self, id: u64) -> Result<(), BackendError> {
        let Some(connected_min) = self.connected_min else { return Ok(()) };
        let is_up = self.node.peer_traffic().iter().any(|peer| peer.id == id && peer.connected_for.is_some());
        if id != self.node.id() && !is_up {
            return Ok(());
        }
        let (voters, _) = voters(self.node.members().iter());
        if survives_remove(voters, self.connected_voters(connected_min)) {
            Ok(())
        } else {
            Err(BackendError::Unhealthy)
        }
    }

    pub(crate) fn quota_bytes(&self) -> Option<u64> {
        self.quota_bytes
    }

    /// Whether this member's NOSPACE alarm is raised although space is available.
    pub(crate) fn is_alarmed_in_vain(&self) -> bool {
        let within_quota = |state: &State| self.quota_bytes.is_none_or(|quota| state.size_bytes() < quota);
        let own = (self.node.id(), Alarm::NoSpace);
        self.node.view(|state| state.alarms().contains(&own) && within_quota(state)) && !self.node.status().no_space
    }

    fn member(&self, id: u64) -> Result<Peer, BackendError> {
        self.node.members().into_iter().find(|peer| peer.id == id).ok_or(BackendError::MemberNotFound)
    }
}

impl Backend for NodeBackend {
    fn id(&self) -> u64 {
        self.node.id()
    }

    fn cluster_id(&self) -> u64 {
        self.node.cluster_id()
    }

    fn view<R>(&self, read: impl FnOnce(&State) -> R) -> R {
        self.node.view(read)
    }

    fn hub(&self) -> &Hub {
        &self.hub
    }

    fn sessions(&self) -> &Sessions {
        self.node.sessions()
    }

    async fn propose(&self, command: Command) -> Result<Outcome, BackendError> {
        self.node.propose(&command).await.map_err(of_propose)
    }

    async fn read_index(&self) -> Result<(), BackendError> {
        self.node.read_index().await.map_err(|error| match error {
            ReadError::Timeout => BackendError::Timeout,
            ReadError::Stopped => BackendError::Stopped,
        })
    }

    fn status(&self) -> Status {
        let status = self.node.status();
        Status {
            leader: status.leader,
            term: status.term,
            commit_index: status.commit,
            applied_index: status.applied,
            learner: status.is_learner,
            disk_bytes: status.disk_bytes,
            leader_changes: status.leader_changes,
            pending: status.commit.saturating_sub(status.applied),
            disk: status.disk,
        }
    }

    fn peer_traffic(&self) -> Vec<PeerTraffic> {
        self.node.peer_traffic()
    }

    fn members(&self) -> Vec<Member> {
        let mut members: Vec<Member> = self.node.members().into_iter().map(member).collect();
        members.sort_by_key(|member| member.id);
        members
    }

    async fn change_members(&self, change: MemberChange) -> Result<Option<Member>, BackendError> {
        let (id, change) = match change {
            MemberChange::Add { peer_urls, learner } => {
                if !learner && !may_add_voter(&self.node.members()) {
                    return Err(BackendError::NotEnoughStarted);
                }
                self.check_connected_to_add()?;
                let id = new_id().ok_or(BackendError::Unhealthy)?;
                (id, Change::Add(Peer { id, name: String::new(), peer_urls, client_urls: Vec::new(), learner }))
            }
            MemberChange::Remove(id) => {
                let leaving = self.member(id)?;
                if !leaving.learner && !may_remove_voter(&self.node.members(), id) {
                    return Err(BackendError::NotEnoughStarted);
                }
                if !leaving.learner {
                    self.check_connected_to_remove(id)?;
                }
                (id, Change::Remove { id })
            }
            MemberChange::Update(id, peer_urls) => (id, Change::Update(Peer { peer_urls, ..self.member(id)? })),
            MemberChange::Promote(id) => (id, Change::Promote { id }),
        };
        let leaves = matches!(change, Change::Remove { .. });
        self.node.change(change).await.map_err(of_propose)?;
        // The response may arrive before this member has applied the membership change.
        let mut group = self.node.group_watch();
        let visible = group.wait_for(|group| group.members().any(|peer| peer.id == id) != leaves);
        let _ = tokio::time::timeout(VISIBLE_TIMEOUT, visible).await;
        Ok(self.member(id).ok().map(member))
    }

    async fn move_leader(&self, to: u64) -> Result<(), BackendError> {
        self.node.move_leader(to).await.map_err(|error| match error {
            MoveError::NotLeader => BackendError::NotLeader,
            MoveError::BadTransferee => BackendError::BadTransferee,
            MoveError::Timeout => BackendError::Timeout,
        })
    }

    async fn lease_renew(&self, id: LeaseId) -> Result<Option<i64>, BackendError> {
        found(self.node.lease_renew(id).await)
    }

    async fn lease_remaining(&self, id: LeaseId) -> Result<Option<i64>, BackendError> {
        found(self.node.lease_remaining(id).await)
    }
}

fn member(peer: Peer) -> Member {
    Member {
        id: peer.id,
        name: peer.name,
        peer_urls: peer.peer_urls,
        client_urls: peer.client_urls,
        learner: peer.learner,
    }
}

fn found(result: Result<i64, LeaseError>) -> Result<Option<i64>, BackendError> {
    match result {
        Ok(seconds) => Ok(Some(seconds)),
        Err(LeaseError::NotFound) => Ok(None),
        Err(LeaseError::NoLeader) => Err(BackendError::NoLeader),
        Err(LeaseError::Timeout) => Err(BackendError::Timeout),
        Err(LeaseError::Stopped) => Err(BackendError::Stopped),
    }
}

fn of_propose(error: ProposeError) -> BackendError {
    use consensus::ProposeError as Refusal;
    match error {
        ProposeError::Timeout => BackendError::Timeout,
        ProposeError::NoSpace => BackendError::NoSpace,
        ProposeError::Stopped | ProposeError::Rejected(Refusal::Stopped) => BackendError::Stopped,
        ProposeError::Rejected(Refusal::NoLeader) => BackendError::NoLeader,
        ProposeError::Rejected(Refusal::Superseded | Refusal::Transferring) => BackendError::LeaderChanged,
        ProposeError::Rejected(Refusal::Overloaded) => BackendError::TooManyRequests,
        ProposeError::Rejected(Refusal::LearnerNotReady) => BackendError::LearnerNotReady,
        ProposeError::Rejected(Refusal::Change(change)) => match change {
            ChangeError::IdExists | ChangeError::Removed => BackendError::MemberExists,
            ChangeError::PeerUrlExists => BackendError::PeerUrlExists,
            ChangeError::NotFound => BackendError::MemberNotFound,
            ChangeError::NotLearner => BackendError::NotLearner,
            ChangeError::TooManyLearners => BackendError::TooManyLearners,
            ChangeError::LastVoter => BackendError::NotEnoughStarted,
            ChangeError::TooLarge => BackendError::TooLarge,
            ChangeError::InProgress => BackendError::TooManyRequests,
        },
    }
}

/// Whether a cluster with one more unstarted voter would have a quorum of started voters. A single member can always
/// add a second.
fn may_add_voter(peers: &[Peer]) -> bool {
    let (voters, started) = voters(peers.iter());
    (voters == 1 && started == 1) || started > voters.div_ceil(2)
}

/// Whether a cluster without this voter would have a quorum of started voters.
fn may_remove_voter(peers: &[Peer], id: u64) -> bool {
    let (voters, started) = voters(peers.iter().filter(|peer| peer.id != id));
    voters > 0 && started > voters / 2
}

/// Whether the connected voters are a quorum after adding a disconnected voter. A single member can always add a
/// second.
fn survives_add(voters: usize, connected: usize) -> bool {
    voters <= 1 || connected > voters.div_ceil(2)
}

/// Whether the connected voters except one are a quorum of the remaining voters.
fn survives_remove(voters: usize, connected: usize) -> bool {
    connected.saturating_sub(1) > voters.saturating_sub(1) / 2
}

/// Returns the number of voters and of started voters. A member has a name after its first start.
fn voters<'a>(peers: impl Iterator<Item = &'a Peer>) -> (usize, usize) {
    let voters: Vec<_> = peers.filter(|peer| !peer.learner).collect();
    (voters.len(), voters.iter().filter(|peer| !peer.name.is_empty()).count())
}

fn new_id() -> Option<u64> {
    let mut bytes = [0; 8];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    Some(u64::from_be_bytes(bytes).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds members from letters: `s` started voter, `u` unstarted voter, `l` learner.
    fn peers(members: &str) -> Vec<Peer> {
        let peer = |(id, kind)| Peer {
            id,
            name: if kind == 's' { "name".to_owned() } else { String::new() },
            peer_urls: Vec::new(),
            client_urls: Vec::new(),
            learner: kind == 'l',
        };
        (1..).zip(members.chars()).map(peer).collect()
    }

    #[test]
    fn membership_change_keeps_a_quorum_of_connected_members() {
        let check = |voters, connected, add, remove| {
            let survives = (survives_add(voters, connected), survives_remove(voters, connected));
            assert_eq!(survives, (add, remove), "{connected} of {voters} are connected");
        };
        check(1, 1, true, false);
        check(2, 1, false, false);
        check(2, 2, true, true);
        check(3, 1, false, false);
        check(3, 2, false, false);
        check(3, 3, true, true);
        check(4, 3, true, true);
        check(5, 3, false, false);
        check(5, 4, true, true);
    }

    #[test]
    fn membership_change_keeps_a_quorum_of_started_members() {
        for (members, expect) in
            [("s", true), ("su", false), ("ss", true), ("ssu", false), ("sss", true), ("sssu", true), ("sl", true)]
        {
            assert_eq!(may_add_voter(&peers(members)), expect, "adding to {members}");
        }
        for (members, expect) in
            [("s", false), ("ss", true), ("us", true), ("su", false), ("ssu", false), ("sss", true), ("usl", true)]
        {
            assert_eq!(may_remove_voter(&peers(members), 1), expect, "removing the first of {members}");
        }
    }
}
