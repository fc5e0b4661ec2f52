//! Replicated group state: the membership, and the proposals that have been applied.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{BufMut, Bytes, BytesMut};
use raft::eraftpb;

use crate::change::{Change, ChangeError, Peer};
use crate::codec::{DecodeError, Reader, put_count};
use crate::entry::RequestId;

/// Group state, replicated with the state machine and part of every checkpoint and snapshot.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Group {
    members: BTreeMap<u64, Peer>,
    removed: BTreeSet<u64>,
    /// The newest applied sequence per origin. A lower sequence was applied or superseded and must not be applied
    /// again; otherwise a duplicated message would write twice.
    sessions: BTreeMap<u64, u64>,
}

const VERSION: u8 = 1;
/// etcd's limit; more than one learner at a time only slows the leader.
const LEARNERS_MAX: usize = 1;
/// IDs of removed members are kept forever; no cluster reaches this number.
const REMOVED_MAX: usize = 1 << 20;

impl Group {
    /// Returns the group of a new cluster.
    pub fn new(members: impl IntoIterator<Item = Peer>) -> Self {
        let members = members.into_iter().map(|peer| (peer.id, peer)).collect();
        Self { members, removed: BTreeSet::new(), sessions: BTreeMap::new() }
    }

    /// Returns all members, ordered by ID.
    pub fn members(&self) -> impl Iterator<Item = &Peer> {
        self.members.values()
    }

    pub fn member(&self, id: u64) -> Option<&Peer> {
        self.members.get(&id)
    }

    /// Whether a member with this ID was removed.
    pub fn is_removed(&self, id: u64) -> bool {
        self.removed.contains(&id)
    }

    /// Whether this member is the only voter.
    pub fn is_sole_voter(&self, id: u64) -> bool {
        self.members.values().filter(|peer| !peer.learner).all(|peer| peer.id == id)
            && self.member(id).is_some_and(|peer| !peer.learner)
    }

    /// Returns the result of applying the change, so that a leader can reject it before proposing.
    pub fn check(&self, change: &Change) -> Result<(), ChangeError> {
        match change {
            Change::Add(peer) => self.check_add(peer),
            Change::Promote { id } => match self.members.get(id) {
                None => Err(self.absent(*id)),
                Some(peer) if !peer.learner => Err(ChangeError::NotLearner),
                Some(_) => Ok(()),
            },
            Change::Remove { id } => {
                self.members.get(id).ok_or_else(|| self.absent(*id))?;
                if self.is_sole_voter(*id) { Err(ChangeError::LastVoter) } else { Ok(()) }
            }
            Change::Update(peer) => {
                self.members.get(&peer.id).ok_or_else(|| self.absent(peer.id))?;
                self.check_urls(peer)
            }
        }
    }

    /// Encodes the group for checkpoints and snapshots.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        put_count(&mut out, self.members.len());
        self.members.values().for_each(|peer| peer.encode(&mut out));
        put_count(&mut out, self.removed.len());
        self.removed.iter().for_each(|id| out.put_u64_le(*id));
        put_count(&mut out, self.sessions.len());
        for (origin, sequence) in &self.sessions {
            out.put_u64_le(*origin);
            out.put_u64_le(*sequence);
        }
        out.freeze()
    }

    /// Decodes the output of [`Group::encode`].
    pub fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.u8("group.version")? != VERSION {
            return Err(DecodeError::Invalid("group.version"));
        }
        let mut group = Self::default();
        for _ in 0..reader.count(21, "group.members")? {
            let peer = Peer::decode(&mut reader)?;
            group.members.insert(peer.id, peer);
        }
        let removed = reader.count(8, "group.removed")?;
        if removed > REMOVED_MAX {
            return Err(DecodeError::Invalid("group.removed"));
        }
        for _ in 0..removed {
            group.removed.insert(reader.u64("group.removed")?);
        }
        for _ in 0..reader.count(16, "group.sessions")? {
            group.sessions.insert(reader.u64("session.origin")?, reader.u64("session.sequence")?);
        }
        reader.finish("group")?;
        Ok(group)
    }

    pub(crate) fn apply(&mut self, change: &Change) -> Result<(), ChangeError> {
        self.check(change)?;
        match change {
            Change::Add(peer) => {
                self.members.insert(peer.id, peer.clone());
            }
            Change::Promote { id } => {
                if let Some(peer) = self.members.get_mut(id) {
                    peer.learner = false;
                }
            }
            Change::Remove { id } => {
                self.members.remove(id);
                self.sessions.remove(id);
                self.removed.insert(*id);
            }
            Change::Update(peer) => {
                if let Some(known) = self.members.get_mut(&peer.id) {
                    let learner = known.learner;
                    *known = Peer { learner, ..peer.clone() };
                }
            }
        }
        Ok(())
    }

    /// Records a request as applied. Returns false if it, or a later one of the same origin, was applied before. Also
    /// returns false if the origin was removed, because its applied sequences are no longer known.
    pub(crate) fn admit(&mut self, request: RequestId) -> bool {
        if self.removed.contains(&request.origin) {
            return false;
        }
        let newest = self.sessions.entry(request.origin).or_default();
        let fresh = request.sequence > *newest;
        if fresh {
            *newest = request.sequence;
        }
        fresh
    }

    pub(crate) fn conf_state(&self) -> eraftpb::ConfState {
        let mut state = eraftpb::ConfState::default();
        let ids = |learner: bool| self.members.values().filter(move |peer| peer.learner == learner).map(|peer| peer.id);
        state.set_voters(ids(false).collect());
        state.set_learners(ids(true).collect());
        state
    }

    fn check_add(&self, peer: &Peer) -> Result<(), ChangeError> {
        if self.removed.contains(&peer.id) {
            return Err(ChangeError::Removed);
        }
        if self.members.contains_key(&peer.id) {
            return Err(ChangeError::IdExists);
        }
        // In etcd's order, so that clients get the same one of several errors.
        self.check_urls(peer)?;
        let learners = self.members.values().filter(|peer| peer.learner).count();
        if peer.learner && learners >= LEARNERS_MAX { Err(ChangeError::TooManyLearners) } else { Ok(()) }
    }

    fn check_urls(&self, peer: &Peer) -> Result<(), ChangeError> {
        if !peer.is_bounded() {
            return Err(ChangeError::TooLarge);
        }
        let mut others = self.members.values().filter(|other| other.id != peer.id);
        let taken = others.any(|other| other.peer_urls.iter().any(|url| peer.peer_urls.contains(url)));
        if taken { Err(ChangeError::PeerUrlExists) } else { Ok(()) }
    }

    fn absent(&self, id: u64) -> ChangeError {
        if self.removed.contains(&id) { ChangeError::Removed } else { ChangeError::NotFound }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(id: u64, learner: bool) -> Peer {
        Peer { id, name: format!("m{id}"), peer_urls: vec![format!("https://{id}:2380")], client_urls: vec![], learner }
    }

    #[expect(clippy::needless_pass_by_value, reason = "a table of cases reads better without references")]
    fn check(change: &Change, expect: Result<(), ChangeError>) {
        let mut group = Group::new([peer(1, false), peer(2, false), peer(3, true)]);
        group.apply(&Change::Remove { id: 2 }).expect("member 2 exists");
        assert_eq!(group.check(change), expect, "{change:?}");
        assert_eq!(Group::decode(group.encode()), Ok(group));
    }

    #[test]
    fn invalid_changes_are_rejected_with_the_reason() {
        check(&Change::Add(peer(4, false)), Ok(()));
        check(&Change::Add(peer(4, true)), Err(ChangeError::TooManyLearners));
        check(&Change::Add(peer(1, false)), Err(ChangeError::IdExists));
        check(&Change::Add(peer(2, false)), Err(ChangeError::Removed));
        check(&Change::Add(Peer { id: 9, ..peer(1, false) }), Err(ChangeError::PeerUrlExists));
        check(&Change::Add(Peer { id: 9, ..peer(1, true) }), Err(ChangeError::PeerUrlExists));
        check(&Change::Promote { id: 3 }, Ok(()));
        check(&Change::Promote { id: 1 }, Err(ChangeError::NotLearner));
        check(&Change::Promote { id: 7 }, Err(ChangeError::NotFound));
        check(&Change::Remove { id: 1 }, Err(ChangeError::LastVoter));
        check(&Change::Remove { id: 2 }, Err(ChangeError::Removed));
        check(&Change::Update(peer(1, false)), Ok(()));
        check(&Change::Update(Peer { id: 1, ..peer(3, false) }), Err(ChangeError::PeerUrlExists));
    }

    #[test]
    fn superseded_request_is_not_admitted() {
        let mut group = Group::default();
        let request = |sequence| RequestId { origin: 1, sequence };
        assert!(group.admit(request(5)));
        assert!(!group.admit(request(5)));
        assert!(!group.admit(request(4)));
        assert!(group.admit(request(6)));
        assert!(group.admit(RequestId { origin: 2, sequence: 1 }));
    }

    #[test]
    fn duplicated_request_of_a_removed_member_is_not_admitted() {
        let mut group = Group::new([peer(1, false), peer(2, false)]);
        let request = RequestId { origin: 2, sequence: 5 };
        assert!(group.admit(request));
        group.apply(&Change::Remove { id: 2 }).expect("member 2 exists");
        assert!(!group.admit(request));
    }
}
