//! Conversion of raft's ready state to effects.

use bytes::Bytes;
use raft::eraftpb::{self, MessageType};
use raft::{ReadState, Ready};

use super::{CommittedEntry, Effects, Member, Persist, SendSnapshot, SnapshotMeta};
use crate::change::Change;
use crate::codec::Reader;
use crate::entry::{Entry, HardState, Payload};
use crate::message::{Message, RaftMessage};

impl Member {
    /// Returns the next effects, or `None` if all inputs have been processed.
    pub fn effects(&mut self) -> Option<Effects> {
        let mut effects = std::mem::take(&mut self.outbox);
        if !self.removed && self.raft.has_ready() {
            let ready = self.raft.ready();
            self.take_ready(ready, &mut effects);
        }
        self.offered.clear();
        debug_assert!(self.next_is_after_matched(), "a leader decreases an acknowledged index");
        let status = self.status();
        let stands_as = |status: &super::Status| (status.term, status.leader, status.role);
        if self.seen.as_ref().map(stands_as) != Some(stands_as(&status)) {
            self.seen = Some(status.clone());
            effects.changed = Some(status);
        }
        (effects != Effects::default()).then_some(effects)
    }

    fn take_ready(&mut self, mut ready: Ready, effects: &mut Effects) {
        let number = ready.number();
        let sync = ready.must_sync();
        let mut may_wait = ready.take_persisted_messages();
        let mut at_once = ready.take_messages();
        if self.raft.raft.term > self.durable.term {
            // A sole voter becomes leader before its vote is durable. If the vote were lost, it would lead the same
            // term again with other entries. Until then no other member may receive entries of that term.
            may_wait.splice(0..0, std::mem::take(&mut at_once));
        }
        let committed = ready.take_committed_entries();
        let reads = ready.take_read_states();
        let persist = self.persist(&mut ready);
        self.raft.advance_append_async(ready);

        if let Some(persist) = persist {
            if sync {
                self.writing.push_back((number, persist.hard_state));
            }
            effects.persist = Some(persist);
        }
        for entry in &committed {
            let committed = self.hand_out(entry, effects);
            effects.committed.push(committed);
        }
        self.note_snapshot_point();
        effects.reads.extend(reads.iter().filter_map(|read| self.own_read(read)));
        at_once.into_iter().for_each(|message| self.dispatch(message, effects));
        self.hold(number, may_wait, effects);
        if self.writing.is_empty() {
            // Nothing here must be durable: a commit index may be lost.
            self.raft.on_persist_ready(number);
        }
    }

    fn persist(&mut self, ready: &mut Ready) -> Option<Persist> {
        let number = ready.number();
        let mut install = None;
        if !ready.snapshot().is_empty() {
            let metadata = ready.snapshot().get_metadata();
            let position = (metadata.index, metadata.term);
            let chosen = self.offered.iter().position(|offered| (offered.index, offered.term) == position);
            let offered = self.offered.swap_remove(chosen.expect("a snapshot is offered with its group"));
            self.raft.mut_store().reset(position);
            self.handed_out = position;
            self.applied = position.0;
            self.group = offered.group.clone();
            self.installing = Some(number);
            install = Some(offered);
        }
        let entries = ready.take_entries();
        self.raft.mut_store().append(&entries);
        let hard_state = ready.hs().map(|state| HardState { term: state.term, vote: state.vote, commit: state.commit });
        let entries: Vec<Entry> = entries.iter().map(Entry::from_raft).collect();
        let nothing = install.is_none() && entries.is_empty() && hard_state.is_none();
        (!nothing).then_some(Persist { number, install, entries, hard_state, sync: ready.must_sync() })
    }

    /// Records the entry in the group and returns what the state machine must apply.
    fn hand_out(&mut self, entry: &eraftpb::Entry, effects: &mut Effects) -> CommittedEntry {
        self.handed_out = (entry.index, entry.term);
        let index = entry.index;
        match Entry::from_raft(entry).payload {
            Payload::Empty => CommittedEntry::Empty { index },
            Payload::Command { request, .. } | Payload::Change { request, .. } if !self.group.admit(request) => {
                CommittedEntry::Overtaken { index, request }
            }
            Payload::Command { request, data } => CommittedEntry::Command { index, request, data },
            Payload::Change { request, change } => {
                let result = self.group.apply(&change);
                if result.is_ok() {
                    self.reconfigure(&change, effects);
                }
                CommittedEntry::Changed { index, request, change, result }
            }
        }
    }

    fn reconfigure(&mut self, change: &Change, effects: &mut Effects) {
        if matches!(change, Change::Remove { id } if *id == self.config.id) {
            self.removed = true;
            effects.removed = true;
            return;
        }
        if let Some(change) = change.to_raft() {
            self.raft.apply_conf_change(&change).expect("the group has allowed the change");
        }
    }

    fn note_snapshot_point(&mut self) {
        let conf_state = self.group.conf_state();
        let (index, term) = self.handed_out;
        self.raft.mut_store().set_snapshot(index, term, conf_state);
    }

    fn own_read(&self, read: &ReadState) -> Option<(u64, u64)> {
        let mut context = Reader::new(Bytes::copy_from_slice(&read.request_ctx));
        let member = context.u64("read.member").ok()?;
        let boot = context.u64("read.boot").ok()?;
        let id = context.u64("read.id").ok()?;
        ((member, boot) == (self.config.id, self.config.boot)).then_some((id, read.index))
    }

    /// Holds back messages of a non-leader until its disk is synced. Messages that promise nothing about unsynced data
    /// are sent immediately. These are forwarded reads, snapshots, which contain only durable data, and responses to
    /// heartbeats of a durable term. Without such a response a slow disk would cost the leader its quorum.
    fn hold(&mut self, number: u64, messages: Vec<eraftpb::Message>, effects: &mut Effects) {
        let free = |message: &eraftpb::Message| match message.msg_type {
            MessageType::MsgHeartbeatResponse => message.term == self.durable.term,
            MessageType::MsgReadIndex | MessageType::MsgSnapshot => true,
            _ => self.writing.is_empty(),
        };
        let (now, later): (Vec<_>, Vec<_>) = messages.into_iter().partition(free);
        now.into_iter().for_each(|message| self.dispatch(message, effects));
        if !later.is_empty() {
            let later = later.into_iter().map(|message| (message.to, Message::Raft(RaftMessage(message)))).collect();
            let newest = self.writing.back().map_or(number, |(newest, _)| *newest);
            self.pending_messages.push_back((newest, later));
        }
    }

    fn dispatch(&mut self, message: eraftpb::Message, effects: &mut Effects) {
        let to = message.to;
        if message.msg_type == MessageType::MsgSnapshot {
            let message = self.announce(message);
            effects.snapshots.push(SendSnapshot { to, message });
        } else {
            effects.send.push((to, Message::Raft(RaftMessage(message))));
        }
    }

    /// Sets the position of a snapshot message: the snapshot is taken on sending, after everything returned so far.
    fn announce(&self, mut message: eraftpb::Message) -> Message {
        let SnapshotMeta { index, term, group } = self.snapshot_meta();
        let metadata = message.mut_snapshot().mut_metadata();
        metadata.index = index;
        metadata.term = term;
        metadata.set_conf_state(group.conf_state());
        Message::Snapshot(RaftMessage(message), group)
    }
}
