//! Entries of the replicated log and the hard state, with their encoding on disk and on the wire.

use bytes::{BufMut, Bytes, BytesMut};
use protobuf::Message as _;
use raft::eraftpb;

use crate::change::Change;
use crate::codec::{DecodeError, Reader, put_bytes};

/// Maximum term and index: larger values would overflow arithmetic, and no real log reaches them.
pub(crate) const NUMBER_MAX: u64 = u64::MAX >> 8;

/// Identifies a proposal for the lifetime of a cluster.
///
/// The sequence of an origin only grows, also across restarts, so every member can drop a proposal that the network
/// delivered twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RequestId {
    /// The member that received the proposal.
    pub origin: u64,
    /// The number of the proposal at that member.
    pub sequence: u64,
}

/// An entry of the replicated log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// The position in the log, from 1.
    pub index: u64,
    /// The term of the leader that appended the entry.
    pub term: u64,
    pub payload: Payload,
}

/// The content of an entry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Payload {
    /// No content: a new leader's first entry.
    Empty,
    /// A command of the state machine, opaque here.
    Command {
        /// The ID of the proposal.
        request: RequestId,
        data: Bytes,
    },
    /// A membership change.
    Change {
        /// The ID of the proposal.
        request: RequestId,
        change: Change,
    },
}

/// The Raft hard state.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct HardState {
    /// The newest term seen.
    pub term: u64,
    /// The member that got this member's vote in the term, or 0.
    pub vote: u64,
    /// A known committed index; a hint that may be old.
    pub commit: u64,
}

const KIND_EMPTY: u8 = 0;
const KIND_COMMAND: u8 = 1;
const KIND_CHANGE: u8 = 2;
/// index, term, kind.
pub(crate) const ENTRY_BYTES_MIN: usize = 8 + 8 + 1;

impl RequestId {
    pub(crate) const BYTES: usize = 16;

    pub(crate) fn encode(self, out: &mut BytesMut) {
        out.put_u64_le(self.origin);
        out.put_u64_le(self.sequence);
    }

    pub(crate) fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { origin: reader.u64("request.origin")?, sequence: reader.u64("request.sequence")? })
    }
}

impl Entry {
    /// Appends the encoding for [`Entry::decode`].
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u64_le(self.index);
        out.put_u64_le(self.term);
        match &self.payload {
            Payload::Empty => out.put_u8(KIND_EMPTY),
            Payload::Command { request, data } => {
                out.put_u8(KIND_COMMAND);
                request.encode(out);
                put_bytes(out, data);
            }
            Payload::Change { request, change } => {
                out.put_u8(KIND_CHANGE);
                request.encode(out);
                change.encode(out);
            }
        }
    }

    /// Decodes an entry; its data is a slice of the reader's bytes.
    pub fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        let index = number(reader, "entry.index")?;
        let term = number(reader, "entry.term")?;
        let payload = match reader.u8("entry.kind")? {
            KIND_EMPTY => Payload::Empty,
            KIND_COMMAND => Payload::Command { request: RequestId::decode(reader)?, data: reader.bytes("entry.data")? },
            KIND_CHANGE => Payload::Change { request: RequestId::decode(reader)?, change: Change::decode(reader)? },
            _ => return Err(DecodeError::Invalid("entry.kind")),
        };
        Ok(Self { index, term, payload })
    }

    /// Returns the approximate size in memory and on disk.
    pub fn size(&self) -> usize {
        match &self.payload {
            Payload::Empty => ENTRY_BYTES_MIN,
            Payload::Command { data, .. } => ENTRY_BYTES_MIN + RequestId::BYTES + 4 + data.len(),
            Payload::Change { .. } => 256,
        }
    }

    pub(crate) fn into_raft(self) -> eraftpb::Entry {
        let mut entry = self.payload.into_raft();
        entry.index = self.index;
        entry.term = self.term;
        entry
    }

    /// The inverse of [`Entry::into_raft`] for entries of this crate.
    pub(crate) fn from_raft(entry: &eraftpb::Entry) -> Self {
        Self { index: entry.index, term: entry.term, payload: Payload::from_raft(entry) }
    }
}

impl Payload {
    /// Converts to the `raft` crate's form: request and membership change are in `context`, in the encoding of this
    /// crate. A change's `data` contains protobuf because a leader's `raft` parses its proposals. It is always
    /// generated here, never read from outside.
    pub(crate) fn into_raft(self) -> eraftpb::Entry {
        let mut entry = eraftpb::Entry::default();
        match self {
            Self::Empty => {}
            Self::Command { request, data } => {
                let mut context = BytesMut::with_capacity(RequestId::BYTES);
                request.encode(&mut context);
                entry.context = context.freeze();
                entry.data = data;
            }
            Self::Change { request, change } => {
                let mut context = BytesMut::new();
                request.encode(&mut context);
                change.encode(&mut context);
                entry.context = context.freeze();
                if let Some(raft_change) = change.to_raft() {
                    entry.set_entry_type(eraftpb::EntryType::EntryConfChangeV2);
                    entry.data = raft_change.write_to_bytes().expect("a change is within protobuf's size limit").into();
                } else {
                    // Distinguished from a command by the length of its context, which is fixed for commands.
                    entry.set_entry_type(eraftpb::EntryType::EntryNormal);
                }
            }
        }
        entry
    }

    fn from_raft(entry: &eraftpb::Entry) -> Self {
        if entry.context.is_empty() {
            return Self::Empty;
        }
        let mut reader = Reader::new(entry.context.clone());
        let request = RequestId::decode(&mut reader).expect("contexts are encoded by this module");
        if reader.remaining() == 0 {
            return Self::Command { request, data: entry.data.clone() };
        }
        let change = Change::decode(&mut reader).expect("contexts are encoded by this module");
        Self::Change { request, change }
    }
}

/// Reads a term or index within [`NUMBER_MAX`].
pub(crate) fn number(reader: &mut Reader, field: &'static str) -> Result<u64, DecodeError> {
    let number = reader.u64(field)?;
    if number > NUMBER_MAX { Err(DecodeError::Invalid(field)) } else { Ok(number) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Peer;

    fn check(payload: Payload) {
        let entry = Entry { index: 7, term: 3, payload };
        let mut out = BytesMut::new();
        entry.encode(&mut out);
        let mut reader = Reader::new(out.freeze());
        assert_eq!(Entry::decode(&mut reader), Ok(entry.clone()));
        assert_eq!(reader.finish("entry"), Ok(()));
        assert_eq!(Entry::from_raft(&entry.clone().into_raft()), entry);
    }

    #[test]
    fn every_payload_survives_its_encoding_and_the_raft_form() {
        let request = RequestId { origin: 1, sequence: 9 };
        let peer = Peer {
            id: 4,
            name: "four".into(),
            peer_urls: vec!["https://four:2380".into()],
            client_urls: vec![],
            learner: true,
        };
        check(Payload::Empty);
        check(Payload::Command { request, data: Bytes::from_static(b"put") });
        check(Payload::Command { request, data: Bytes::new() });
        check(Payload::Change { request, change: Change::Add(peer.clone()) });
        check(Payload::Change { request, change: Change::Promote { id: 4 } });
        check(Payload::Change { request, change: Change::Remove { id: 4 } });
        check(Payload::Change { request, change: Change::Update(peer) });
    }
}
