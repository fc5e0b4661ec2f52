//! Cluster members and membership changes, one at a time.

use bytes::{BufMut, BytesMut};
use raft::eraftpb;

use crate::codec::{DecodeError, Reader, put_bytes, put_count};

/// A member of the cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Peer {
    /// The member's ID, never 0 and never reused after removal.
    pub id: u64,
    /// The configured name; empty until the member has started.
    pub name: String,
    pub peer_urls: Vec<String>,
    pub client_urls: Vec<String>,
    /// Whether the member receives the log without a vote.
    pub learner: bool,
}

/// A membership change.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Change {
    /// Adds a voter or a learner.
    Add(Peer),
    /// Makes a learner a voter.
    Promote {
        /// The learner.
        id: u64,
    },
    /// Removes a member permanently.
    Remove {
        /// The member to remove.
        id: u64,
    },
    /// Sets a member's addresses and name, on its start or by an operator. The vote does not change.
    Update(Peer),
}

/// A rejected membership change; nothing changed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ChangeError {
    #[error("member ID already exists")]
    IdExists,
    /// The ID belonged to a removed member.
    #[error("the member has been permanently removed from the cluster")]
    Removed,
    /// Another member has one of these peer URLs.
    #[error("Peer URLs already exists")]
    PeerUrlExists,
    #[error("member not found")]
    NotFound,
    #[error("can only promote a learner member")]
    NotLearner,
    /// The cluster already has a learner.
    #[error("too many learner members in cluster")]
    TooManyLearners,
    #[error("the last voting member cannot be removed")]
    LastVoter,
    /// The change exceeds the size limits of the log.
    #[error("the change of membership is too large")]
    TooLarge,
    /// Another membership change was in progress when this one was proposed.
    #[error("another change of membership is in progress")]
    InProgress,
}

const KIND_ADD: u8 = 1;
const KIND_PROMOTE: u8 = 2;
const KIND_REMOVE: u8 = 3;
const KIND_UPDATE: u8 = 4;

/// Limits of addresses and names; larger values are a mistake or an attack.
const URLS_MAX: usize = 64;
const STRING_BYTES_MAX: usize = 2048;

impl Peer {
    /// Whether the peer is small enough for the log.
    pub fn is_bounded(&self) -> bool {
        let urls = || self.peer_urls.iter().chain(&self.client_urls);
        self.name.len() <= STRING_BYTES_MAX
            && urls().all(|url| url.len() <= STRING_BYTES_MAX)
            && self.peer_urls.len() <= URLS_MAX
            && self.client_urls.len() <= URLS_MAX
    }

    pub(crate) fn encode(&self, out: &mut BytesMut) {
        out.put_u64_le(self.id);
        out.put_u8(u8::from(self.learner));
        put_bytes(out, self.name.as_bytes());
        for urls in [&self.peer_urls, &self.client_urls] {
            put_count(out, urls.len());
            urls.iter().for_each(|url| put_bytes(out, url.as_bytes()));
        }
    }

    pub(crate) fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        let id = reader.u64("peer.id")?;
        let learner = match reader.u8("peer.learner")? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError::Invalid("peer.learner")),
        };
        let name = reader.string("peer.name")?;
        let peer_urls = decode_urls(reader, "peer.peer_urls")?;
        let client_urls = decode_urls(reader, "peer.client_urls")?;
        let peer = Self { id, name, peer_urls, client_urls, learner };
        if id == 0 || !peer.is_bounded() { Err(DecodeError::Invalid("peer")) } else { Ok(peer) }
    }
}

impl Change {
    pub(crate) fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Add(peer) => {
                out.put_u8(KIND_ADD);
                peer.encode(out);
            }
            Self::Promote { id } => {
                out.put_u8(KIND_PROMOTE);
                out.put_u64_le(*id);
            }
            Self::Remove { id } => {
                out.put_u8(KIND_REMOVE);
                out.put_u64_le(*id);
            }
            Self::Update(peer) => {
                out.put_u8(KIND_UPDATE);
                peer.encode(out);
            }
        }
    }

    pub(crate) fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        match reader.u8("change.kind")? {
            KIND_ADD => Ok(Self::Add(Peer::decode(reader)?)),
            KIND_PROMOTE => Ok(Self::Promote { id: reader.u64("change.id")? }),
            KIND_REMOVE => Ok(Self::Remove { id: reader.u64("change.id")? }),
            KIND_UPDATE => Ok(Self::Update(Peer::decode(reader)?)),
            _ => Err(DecodeError::Invalid("change.kind")),
        }
    }

    /// Returns the change of the quorum; none for an update of addresses.
    pub(crate) fn to_raft(&self) -> Option<eraftpb::ConfChangeV2> {
        let (kind, id) = match self {
            Self::Add(peer) if peer.learner => (eraftpb::ConfChangeType::AddLearnerNode, peer.id),
            Self::Add(peer) => (eraftpb::ConfChangeType::AddNode, peer.id),
            Self::Promote { id } => (eraftpb::ConfChangeType::AddNode, *id),
            Self::Remove { id } => (eraftpb::ConfChangeType::RemoveNode, *id),
            Self::Update(_) => return None,
        };
        let mut single = eraftpb::ConfChangeSingle::default();
        single.set_change_type(kind);
        single.node_id = id;
        let mut change = eraftpb::ConfChangeV2::default();
        change.set_changes(vec![single].into());
        Some(change)
    }
}

fn decode_urls(reader: &mut Reader, field: &'static str) -> Result<Vec<String>, DecodeError> {
    let count = reader.count(4, field)?;
    if count > URLS_MAX {
        return Err(DecodeError::Invalid(field));
    }
    (0..count).map(|_| reader.string(field)).collect()
}
