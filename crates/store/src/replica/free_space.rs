//! Handling of a full disk.
//!
//! The member raises an alarm, hands over leadership and rejects growing writes. The others continue while a majority
//! has space; without a majority nothing grows until space is available.

use consensus::Role;
use mvcc::{Alarm, AlarmChange, Command, State};

use super::Replica;

/// Disk space available to the log.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum FreeSpace {
    #[default]
    Ample,
    /// Only the reserve is left: for the alarm and for commands that free space.
    Low,
    /// Nothing can be written.
    None,
}

/// This member's disk state and alarms.
#[derive(Debug)]
pub(super) struct Space {
    free_space: FreeSpace,
    /// Whether the raised alarms may differ from the disk state. True at first, because earlier alarms are unknown.
    is_unsettled: bool,
    /// Ticks until the alarm is proposed again, because the proposal may be lost.
    silent_ticks: u32,
}

impl Default for Space {
    fn default() -> Self {
        Self { free_space: FreeSpace::Ample, is_unsettled: true, silent_ticks: 0 }
    }
}

impl Space {
    /// Marks the alarms as possibly different from the disk state, because a client may have changed them.
    pub(super) fn recheck(&mut self) {
        self.is_unsettled = true;
    }
}

/// Alarms that a member raises about its disk and clears itself.
const OWN: [Alarm; 2] = [Alarm::Low, Alarm::Full];
const REPEAT_TICKS: u32 = 10;

impl Replica {
    /// Sets the available space.
    pub fn set_free_space(&mut self, free_space: FreeSpace) {
        self.space.free_space = free_space;
        self.space.recheck();
        self.space.silent_ticks = 0;
        self.propose_alarms();
    }

    pub fn free_space(&self) -> FreeSpace {
        self.space.free_space
    }

    /// Whether an alarm must be raised or cleared, which requires ticks.
    pub fn minds_space(&self) -> bool {
        self.space.is_unsettled
    }

    /// Raises this member's alarms while its disk is full, and clears them afterwards.
    // DEVIATION: a member with a full disk raises an alarm that does not stop the others while a majority has space,
    // and clears it itself. etcd does not survive a full disk.
    pub(super) fn propose_alarms(&mut self) {
        if !self.space.is_unsettled || self.space.silent_ticks > 0 {
            self.space.silent_ticks = self.space.silent_ticks.saturating_sub(1);
            return;
        }
        let (changes, successor) = self.view(|state| (self.changes(state), self.successor(state)));
        if changes.is_empty() && successor.is_none() {
            self.space.is_unsettled = self.space.free_space != FreeSpace::Ample;
            return;
        }
        self.space.silent_ticks = REPEAT_TICKS;
        for (change, alarm) in changes {
            self.propose(Command::Alarm { change, alarm, member: self.id }.encode());
        }
        if let Some(successor) = successor {
            self.transfer(successor);
        }
    }

    /// Returns the changes from the raised alarms to the desired ones.
    fn changes(&self, state: &State) -> Vec<(AlarmChange, Alarm)> {
        let desired = self.desired_alarms(state);
        let decide = |alarm: Alarm| match (desired.contains(&alarm), state.alarms().contains(&(self.id, alarm))) {
            (true, false) => Some((AlarmChange::Raise, alarm)),
            (false, true) => Some((AlarmChange::Lower, alarm)),
            _ => None,
        };
        OWN.into_iter().filter_map(decide).collect()
    }

    /// Returns the alarms to raise: `Low` because this disk is full, and also `Full` if no majority has space.
    fn desired_alarms(&self, state: &State) -> &'static [Alarm] {
        if self.space.free_space == FreeSpace::Ample {
            return &[];
        }
        let has_space = |id: u64| id != self.id && !state.alarms().contains(&(id, Alarm::Low));
        let voters = self.member.group().members().filter(|peer| !peer.learner);
        let (all, roomy) = voters.fold((0, 0), |(all, roomy), peer| (all + 1, roomy + usize::from(has_space(peer.id))));
        if roomy > all / 2 { &OWN[..1] } else { &OWN }
    }

    /// Returns the member that should become leader: a member that cannot write does not lead if another one can.
    fn successor(&self, state: &State) -> Option<u64> {
        if self.space.free_space == FreeSpace::Ample || self.member.status().role != Role::Leader {
            return None;
        }
        self.member.successor(|id| !state.alarms().contains(&(id, Alarm::Low)))
    }
}
