//! Validation of peer messages.
//!
//! Rejects everything that would make the `raft` crate panic or violate an invariant it does not check.

use raft::eraftpb::{self, MessageType};

use super::{Fault, Member};

impl Member {
    pub(super) fn guard(&self, from: u64, message: &eraftpb::Message) -> Result<(), Fault> {
        let nonsense = |what| Err(Fault::Nonsense { from, what });
        if message.from != from || message.to != self.config.id || from == self.config.id || from == 0 {
            return nonsense("it has a wrong sender or receiver");
        }
        let raft = &self.raft.raft;
        let last = raft.raft_log.last_index();
        match message.msg_type {
            MessageType::MsgHeartbeat if message.term >= raft.term && message.commit > last => {
                Err(Fault::LogLost { from, expected: message.commit, last })
            }
            MessageType::MsgHeartbeat | MessageType::MsgAppend | MessageType::MsgSnapshot
                if message.term == raft.term && self.is_leader() =>
            {
                nonsense("it claims leadership in a term that this member leads")
            }
            // `raft` treats an entry beyond its log as one of term 0, and panics when it is committed.
            MessageType::MsgAppend if message.log_term == 0 && message.index != 0 => {
                nonsense("it continues the log after an entry without a term")
            }
            MessageType::MsgSnapshot if message.get_snapshot().get_metadata().term == 0 => {
                nonsense("it offers a snapshot without a term")
            }
            MessageType::MsgAppendResponse if self.is_leader() && message.index > last && !message.reject => {
                nonsense("it acknowledges entries that were never sent")
            }
            MessageType::MsgTimeoutNow if !self.may_campaign_now() => nonsense("it requests an election out of turn"),
            MessageType::MsgReadIndex if !self.is_leader() => nonsense("it requests a read index from a non-leader"),
            _ => Ok(()),
        }
    }

    /// Corrects a rejection of entries so that a leader never goes back before the follower's acknowledged index.
    /// Returns whether anything is left to process.
    ///
    /// A delayed or duplicated rejection arrives after the acknowledgement of the same entries. `raft` 0.7 uses its
    /// hint while probing, and `next_idx` falls to or below `matched` (its issue 555). etcd's raft keeps it above.
    pub(super) fn correct_rejection(&self, message: &mut eraftpb::Message) -> bool {
        let raft = &self.raft.raft;
        let is_rejection = message.msg_type == MessageType::MsgAppendResponse && message.reject;
        if !is_rejection || !self.is_leader() || message.term != raft.term || message.request_snapshot != 0 {
            return true;
        }
        let Some(matched) = raft.prs().get(message.from).map(|progress| progress.matched) else { return true };
        if message.index <= matched {
            return false;
        }
        let probe = match message.log_term {
            0 => message.reject_hint,
            term => raft.raft_log.find_conflict_by_term(message.reject_hint, term).0,
        };
        if probe < matched {
            message.reject_hint = matched;
            message.log_term = 0;
        }
        true
    }

    /// Whether the leader sends every follower the entries after its last acknowledged one.
    pub(super) fn next_is_after_matched(&self) -> bool {
        let raft = &self.raft.raft;
        !self.is_leader() || raft.prs().iter().all(|(_, progress)| progress.next_idx > progress.matched)
    }
}
