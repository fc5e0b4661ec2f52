//! What a peer may say: everything that would make the `raft` crate panic is turned away here.

use raft::eraftpb::{self, MessageType};

use super::{Fault, Member};

impl Member {
    pub(super) fn guard(&self, from: u64, message: &eraftpb::Message) -> Result<(), Fault> {
        let nonsense = |what| Err(Fault::Nonsense { from, what });
        if message.from != from || message.to != self.config.id || from == self.config.id || from == 0 {
            return nonsense("its addresses are wrong");
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
                nonsense("it claims to lead in the term this member leads in")
            }
            MessageType::MsgAppendResponse if self.is_leader() && message.index > last && !message.reject => {
                nonsense("it acknowledges entries that were never sent")
            }
            MessageType::MsgTimeoutNow if !self.may_campaign_now() => nonsense("it asks for an election out of turn"),
            MessageType::MsgReadIndex if !self.is_leader() => nonsense("it takes this member for the leader"),
            _ => Ok(()),
        }
    }
}
