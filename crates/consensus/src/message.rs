//! Messages between members and their encoding.
//!
//! Version 1 of a message is a version byte, a kind byte and the fields of that kind in order, little-endian. An
//! unknown version is rejected; fields are added by new versions. Snapshot messages contain no state, which is streamed
//! separately.

use bytes::{BufMut, Bytes, BytesMut};
use raft::eraftpb;
use raft::eraftpb::MessageType;

use crate::change::{Change, ChangeError};
use crate::codec::{DecodeError, Reader, put_bytes, put_count};
use crate::entry::{ENTRY_BYTES_MIN, Entry, Payload, RequestId, number};
use crate::group::Group;

/// A proposal was not appended to the log.
///
/// A rejection from the network refers to one copy of the proposal: a duplicated message may have brought another copy
/// into a log. The proposal is therefore repeated with the same [`RequestId`], of which at most one copy is applied.
/// Only [`ProposeError::Superseded`] guarantees that no copy will be applied, provided that this member has applied
/// every entry itself and skipped none by a snapshot.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ProposeError {
    /// There is no leader, or the contacted member is no longer the leader.
    #[error("no leader")]
    NoLeader,
    /// A later proposal of the same member was applied first; this one will never be applied.
    #[error("the proposal was overtaken by a later one")]
    Superseded,
    #[error("leadership is being transferred")]
    Transferring,
    /// Too many proposals are in progress.
    #[error("too many requests")]
    Overloaded,
    /// The learner is too far behind to vote.
    #[error("can only promote a learner member which is in sync with leader")]
    LearnerNotReady,
    #[error("the member has been removed from the cluster")]
    Stopped,
    /// The membership change is invalid.
    #[error(transparent)]
    Change(ChangeError),
}

/// A message between members.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// A Raft message.
    Raft(RaftMessage),
    /// The announcement of a snapshot whose state was streamed separately, with the group at that point.
    Snapshot(RaftMessage, Group),
    /// Proposals received by a member that is not the leader.
    Forward(Vec<Payload>),
    /// Forwarded proposals that the receiver could not accept; they are in no log.
    Rejected(Vec<(RequestId, ProposeError)>),
}

/// A Raft message, opaque outside this crate.
#[derive(Clone, Debug, PartialEq)]
pub struct RaftMessage(pub(crate) eraftpb::Message);

const VERSION: u8 = 1;
const KIND_RAFT: u8 = 1;
const KIND_SNAPSHOT: u8 = 2;
const KIND_FORWARD: u8 = 3;
const KIND_REJECTED: u8 = 4;

/// Message types that a peer may send, with their wire numbers. Other types are local to a member; a proposal, for
/// example, is sent as [`Message::Forward`].
const STEPS: [(u8, MessageType); 12] = [
    (1, MessageType::MsgAppend),
    (2, MessageType::MsgAppendResponse),
    (3, MessageType::MsgRequestVote),
    (4, MessageType::MsgRequestVoteResponse),
    (5, MessageType::MsgSnapshot),
    (6, MessageType::MsgHeartbeat),
    (7, MessageType::MsgHeartbeatResponse),
    (8, MessageType::MsgTimeoutNow),
    (9, MessageType::MsgReadIndex),
    (10, MessageType::MsgReadIndexResp),
    (11, MessageType::MsgRequestPreVote),
    (12, MessageType::MsgRequestPreVoteResponse),
];

impl Message {
    /// Whether the loss of this message costs more than the next heartbeat repairs.
    pub fn is_vital(&self) -> bool {
        !matches!(self, Self::Raft(RaftMessage(message)) if message.entries.is_empty())
    }

    pub fn is_heartbeat(&self) -> bool {
        self.is_step(MessageType::MsgHeartbeat)
    }

    /// Whether this is the response to a heartbeat: each heartbeat gets one, in order.
    pub fn is_heartbeat_response(&self) -> bool {
        self.is_step(MessageType::MsgHeartbeatResponse)
    }

    fn is_step(&self, step: MessageType) -> bool {
        matches!(self, Self::Raft(RaftMessage(message)) if message.msg_type == step)
    }

    /// Encodes the message for [`Message::decode`].
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(128 + self.size());
        out.put_u8(VERSION);
        match self {
            Self::Raft(message) => {
                out.put_u8(KIND_RAFT);
                message.encode(&mut out);
            }
            Self::Snapshot(message, group) => {
                out.put_u8(KIND_SNAPSHOT);
                message.encode(&mut out);
                put_bytes(&mut out, &group.encode());
            }
            Self::Forward(payloads) => {
                out.put_u8(KIND_FORWARD);
                put_count(&mut out, payloads.len());
                for payload in payloads {
                    Entry { index: 0, term: 0, payload: payload.clone() }.encode(&mut out);
                }
            }
            Self::Rejected(rejections) => {
                out.put_u8(KIND_REJECTED);
                put_count(&mut out, rejections.len());
                for (request, reason) in rejections {
                    request.encode(&mut out);
                    out.put_u8(reason_number(reason));
                }
            }
        }
        out.freeze()
    }

    /// Decodes a message that claims to be from `from` to `to`.
    pub fn decode(bytes: Bytes, from: u64, to: u64) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.u8("message.version")? != VERSION {
            return Err(DecodeError::Invalid("message.version"));
        }
        let message = match reader.u8("message.kind")? {
            KIND_RAFT => {
                let message = RaftMessage::decode(&mut reader, from, to)?;
                if message.0.msg_type == MessageType::MsgSnapshot {
                    return Err(DecodeError::Invalid("message.step"));
                }
                Self::Raft(message)
            }
            KIND_SNAPSHOT => decode_snapshot(&mut reader, from, to)?,
            KIND_FORWARD => decode_forward(&mut reader, from)?,
            KIND_REJECTED => decode_rejected(&mut reader)?,
            _ => return Err(DecodeError::Invalid("message.kind")),
        };
        reader.finish("message")?;
        Ok(message)
    }

    /// Returns the approximate size in bytes.
    pub fn size(&self) -> usize {
        match self {
            Self::Raft(message) | Self::Snapshot(message, _) => {
                message.0.entries.iter().map(|entry| entry.data.len() + entry.context.len() + 32).sum()
            }
            Self::Forward(payloads) => payloads
                .iter()
                .map(|payload| match payload {
                    Payload::Command { data, .. } => data.len() + 48,
                    _ => 512,
                })
                .sum(),
            Self::Rejected(rejections) => rejections.len() * 17,
        }
    }
}

impl RaftMessage {
    /// Returns index and term of the announced snapshot.
    pub fn snapshot_position(&self) -> (u64, u64) {
        let metadata = self.0.get_snapshot().get_metadata();
        (metadata.index, metadata.term)
    }

    fn encode(&self, out: &mut BytesMut) {
        let message = &self.0;
        let step = STEPS.iter().find(|(_, step)| *step == message.msg_type).map(|(number, _)| *number);
        out.put_u8(step.expect("a member sends only the steps of the table"));
        out.put_u8(u8::from(message.reject));
        for field in [
            message.term,
            message.log_term,
            message.index,
            message.commit,
            message.commit_term,
            message.request_snapshot,
            message.reject_hint,
        ] {
            out.put_u64_le(field);
        }
        put_bytes(out, &message.context);
        if matches!(message.msg_type, MessageType::MsgReadIndex | MessageType::MsgReadIndexResp) {
            put_bytes(out, &message.entries[0].data);
            return;
        }
        if message.msg_type == MessageType::MsgSnapshot {
            let metadata = message.get_snapshot().get_metadata();
            out.put_u64_le(metadata.index);
            out.put_u64_le(metadata.term);
            return;
        }
        put_count(out, message.entries.len());
        message.entries.iter().for_each(|entry| Entry::from_raft(entry).encode(out));
    }

    fn decode(reader: &mut Reader, from: u64, to: u64) -> Result<Self, DecodeError> {
        let step = reader.u8("message.step")?;
        let (_, step) = STEPS.iter().find(|(number, _)| *number == step).ok_or(DecodeError::Invalid("message.step"))?;
        let mut message = eraftpb::Message::default();
        message.set_msg_type(*step);
        message.from = from;
        message.to = to;
        message.reject = match reader.u8("message.reject")? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError::Invalid("message.reject")),
        };
        message.term = number(reader, "message.term")?;
        message.log_term = number(reader, "message.log_term")?;
        message.index = number(reader, "message.index")?;
        message.commit = number(reader, "message.commit")?;
        message.commit_term = number(reader, "message.commit_term")?;
        message.request_snapshot = number(reader, "message.request_snapshot")?;
        message.reject_hint = number(reader, "message.reject_hint")?;
        message.context = reader.bytes("message.context")?;
        let is_read = *step == MessageType::MsgReadIndex;
        // Raft treats a message without a term as local; only a forwarded read may have none.
        if (message.term == 0) != is_read {
            return Err(DecodeError::Invalid("message.term"));
        }
        match step {
            MessageType::MsgReadIndex | MessageType::MsgReadIndexResp => {
                let entry = eraftpb::Entry { data: reader.bytes("message.read")?, ..Default::default() };
                message.set_entries(vec![entry].into());
            }
            MessageType::MsgSnapshot => {
                let metadata = message.mut_snapshot().mut_metadata();
                metadata.index = number(reader, "message.snapshot.index")?;
                metadata.term = number(reader, "message.snapshot.term")?;
            }
            _ => decode_entries(reader, &mut message)?,
        }
        Ok(Self(message))
    }
}

/// Decodes entries, which must follow the message's index without gaps, with non-decreasing terms up to the message's.
fn decode_entries(reader: &mut Reader, message: &mut eraftpb::Message) -> Result<(), DecodeError> {
    let count = reader.count(ENTRY_BYTES_MIN, "message.entries")?;
    if count > 0 && message.msg_type != MessageType::MsgAppend {
        return Err(DecodeError::Invalid("message.entries"));
    }
    let mut entries = Vec::with_capacity(count);
    let (mut index, mut term) = (message.index, message.log_term);
    for _ in 0..count {
        let entry = Entry::decode(reader)?;
        if entry.index != index + 1 || entry.term < term || entry.term > message.term {
            return Err(DecodeError::Invalid("message.entries"));
        }
        (index, term) = (entry.index, entry.term);
        entries.push(entry.into_raft());
    }
    message.set_entries(entries.into());
    Ok(())
}

fn decode_snapshot(reader: &mut Reader, from: u64, to: u64) -> Result<Message, DecodeError> {
    let mut message = RaftMessage::decode(reader, from, to)?;
    if message.0.msg_type != MessageType::MsgSnapshot {
        return Err(DecodeError::Invalid("message.step"));
    }
    let group = Group::decode(reader.bytes("message.group")?)?;
    if !group.members().any(|peer| !peer.learner) {
        return Err(DecodeError::Invalid("message.group"));
    }
    message.0.mut_snapshot().mut_metadata().set_conf_state(group.conf_state());
    Ok(Message::Snapshot(message, group))
}

fn decode_forward(reader: &mut Reader, from: u64) -> Result<Message, DecodeError> {
    let count = reader.count(ENTRY_BYTES_MIN, "message.proposals")?;
    let mut payloads = Vec::with_capacity(count);
    for _ in 0..count {
        let payload = Entry::decode(reader)?.payload;
        // A member may propose only under its own ID: sequences under another ID would block that member's proposals.
        match payload.request() {
            Some(request) if request.origin == from => payloads.push(payload),
            _ => return Err(DecodeError::Invalid("message.proposals")),
        }
    }
    Ok(Message::Forward(payloads))
}

fn decode_rejected(reader: &mut Reader) -> Result<Message, DecodeError> {
    let count = reader.count(RequestId::BYTES + 1, "message.refusals")?;
    let mut rejections = Vec::with_capacity(count);
    for _ in 0..count {
        let request = RequestId::decode(reader)?;
        let number = reader.u8("message.reason")?;
        let (_, reason) =
            REASONS.iter().find(|(known, _)| *known == number).ok_or(DecodeError::Invalid("message.reason"))?;
        rejections.push((request, reason.clone()));
    }
    Ok(Message::Rejected(rejections))
}

const REASONS: [(u8, ProposeError); 15] = [
    (1, ProposeError::NoLeader),
    (2, ProposeError::Superseded),
    (3, ProposeError::Transferring),
    (4, ProposeError::Overloaded),
    (5, ProposeError::LearnerNotReady),
    (6, ProposeError::Stopped),
    (16, ProposeError::Change(ChangeError::IdExists)),
    (17, ProposeError::Change(ChangeError::Removed)),
    (18, ProposeError::Change(ChangeError::PeerUrlExists)),
    (19, ProposeError::Change(ChangeError::NotFound)),
    (20, ProposeError::Change(ChangeError::NotLearner)),
    (21, ProposeError::Change(ChangeError::TooManyLearners)),
    (22, ProposeError::Change(ChangeError::LastVoter)),
    (23, ProposeError::Change(ChangeError::TooLarge)),
    (24, ProposeError::Change(ChangeError::InProgress)),
];

fn reason_number(reason: &ProposeError) -> u8 {
    let known = REASONS.iter().find(|(_, known)| known == reason);
    known.map(|(number, _)| *number).expect("every reason is in the table")
}

impl Payload {
    /// Returns the ID of the proposal.
    pub fn request(&self) -> Option<RequestId> {
        match self {
            Self::Empty => None,
            Self::Command { request, .. } | Self::Change { request, .. } => Some(*request),
        }
    }

    pub(crate) fn change(&self) -> Option<&Change> {
        match self {
            Self::Change { change, .. } => Some(change),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use protobuf::Message as _;

    use super::*;
    use crate::Peer;

    fn append(index: u64, entries: &[(u64, u64)]) -> Message {
        let mut message = eraftpb::Message::default();
        message.set_msg_type(MessageType::MsgAppend);
        message.from = 1;
        message.to = 2;
        message.term = 5;
        message.log_term = 2;
        message.index = index;
        let request = RequestId { origin: 1, sequence: 4 };
        let payload = Payload::Command { request, data: Bytes::from_static(b"data") };
        let entry = |&(index, term): &(u64, u64)| Entry { index, term, payload: payload.clone() }.into_raft();
        message.set_entries(entries.iter().map(entry).collect::<Vec<_>>().into());
        Message::Raft(RaftMessage(message))
    }

    #[test]
    fn messages_survive_a_round_trip() {
        let rejections =
            REASONS.iter().map(|(n, reason)| (RequestId { origin: 1, sequence: u64::from(*n) }, reason.clone()));
        let request = RequestId { origin: 1, sequence: 1 };
        for message in [
            append(3, &[(4, 2), (5, 5)]),
            append(3, &[]),
            Message::Rejected(rejections.collect()),
            Message::Forward(vec![Payload::Command { request, data: Bytes::from_static(b"x") }]),
        ] {
            assert_eq!(Message::decode(message.encode(), 1, 2), Ok(message));
        }
    }

    #[test]
    fn entries_that_would_make_raft_panic_are_rejected() {
        let expected = Err(DecodeError::Invalid("message.entries"));
        assert_eq!(Message::decode(append(3, &[(5, 5)]).encode(), 1, 2), expected, "a gap");
        assert_eq!(Message::decode(append(3, &[(4, 1)]).encode(), 1, 2), expected, "a falling term");
        assert_eq!(Message::decode(append(3, &[(4, 6)]).encode(), 1, 2), expected, "a term beyond the leader's");
    }

    #[test]
    fn member_proposes_only_under_its_own_id() {
        let request = RequestId { origin: 3, sequence: 1 };
        let message = Message::Forward(vec![Payload::Command { request, data: Bytes::new() }]);
        assert_eq!(Message::decode(message.encode(), 1, 2), Err(DecodeError::Invalid("message.proposals")));
    }

    /// RUSTSEC-2024-0437 concerns the parser of protobuf 2.28, which a leader's `raft` uses on membership changes.
    #[test]
    fn protobuf_parser_reads_only_bytes_generated_here() {
        // A peer's payload in the place of raft's protobuf: nested groups that would exhaust the stack.
        let nested = Bytes::from(vec![0x0b; 100_000]);
        let request = RequestId { origin: 1, sequence: 1 };
        let peer = Peer { id: 9, name: "nine".into(), peer_urls: vec![], client_urls: vec![], learner: true };
        for payload in [
            Payload::Command { request, data: nested },
            Payload::Change { request, change: Change::Add(peer.clone()) },
            Payload::Change { request, change: Change::Promote { id: 9 } },
            Payload::Change { request, change: Change::Remove { id: 9 } },
            Payload::Change { request, change: Change::Update(peer) },
        ] {
            let sent = Message::Forward(vec![payload.clone()]);
            let Ok(Message::Forward(received)) = Message::decode(sent.encode(), 1, 2) else { panic!("{payload:?}") };
            for entry in received.into_iter().map(Payload::into_raft) {
                let parsed = entry.get_entry_type() != eraftpb::EntryType::EntryNormal;
                let own = payload.change().and_then(Change::to_raft).map(|change| change.write_to_bytes().unwrap());
                assert_eq!(parsed, own.is_some());
                if parsed {
                    assert_eq!(Some(&entry.data[..]), own.as_deref());
                }
            }
        }
    }

    #[test]
    fn no_source_of_this_crate_calls_the_protobuf_parser() {
        let sources = [
            include_str!("change.rs"),
            include_str!("codec.rs"),
            include_str!("entry.rs"),
            include_str!("group.rs"),
            include_str!("member.rs"),
            include_str!("member/effects.rs"),
            include_str!("member/election.rs"),
            include_str!("member/guard.rs"),
            include_str!("storage.rs"),
            include_str!("message.rs").split("mod tests").next().unwrap(),
        ];
        for source in sources {
            for call in ["parse_from", "merge_from", "CodedInputStream"] {
                assert!(!source.contains(call), "{call}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode_to_a_message_or_an_error(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 0_u8..6) {
            if bytes.len() > 2 {
                bytes[0] = VERSION;
                bytes[1] = kind;
            }
            let _ = Message::decode(Bytes::from(bytes), 1, 2);
        }
    }
}
