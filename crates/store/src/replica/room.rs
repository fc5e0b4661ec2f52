//! What a disk that fills up means for the cluster. Its member says so to all, leads no longer and refuses what grows; the others go on
//! as long as a majority of them has room. When none has, nothing grows until there is room again.

use consensus::Role;
use mvcc::{Alarm, AlarmChange, Command, State};

use super::Replica;

/// How much room the log has.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Room {
    /// Enough.
    #[default]
    Ample,
    /// Only its reserve: for the alarm, and for what makes room.
    Low,
    /// None: nothing can be written until there is.
    None,
}

/// What this member knows of its disk, and has said of it.
#[derive(Debug)]
pub(super) struct Space {
    room: Room,
    /// Whether what was said may not be what is so. At first nobody knows what was said before.
    is_unsettled: bool,
    /// Ticks until the alarm is spoken of again: what was said may have been lost.
    silent_ticks: u32,
}

impl Default for Space {
    fn default() -> Self {
        Self { room: Room::Ample, is_unsettled: true, silent_ticks: 0 }
    }
}

impl Space {
    /// Somebody may have said something else of this member's disk.
    pub(super) fn look_again(&mut self) {
        self.is_unsettled = true;
    }
}

/// What a member says of its disk; it lowers them itself.
const OWN: [Alarm; 2] = [Alarm::Low, Alarm::Full];
const REPEAT_TICKS: u32 = 10;

impl Replica {
    /// How much room the log has, from now on.
    pub fn set_room(&mut self, room: Room) {
        self.space.room = room;
        self.space.look_again();
        self.space.silent_ticks = 0;
        self.tell_space();
    }

    /// How much room the log has.
    pub fn room(&self) -> Room {
        self.space.room
    }

    /// Whether an alarm is to be raised or lowered: time must go on for it.
    pub fn minds_space(&self) -> bool {
        self.space.is_unsettled
    }

    /// Raises the alarms of this member while its disk is full, and lowers them when it is not anymore.
    // DEVIATION: a member whose disk is full says so by an alarm that stops nobody else while a majority has room, and lowers it itself; etcd does not survive a full disk.
    pub(super) fn tell_space(&mut self) {
        if !self.space.is_unsettled || self.space.silent_ticks > 0 {
            self.space.silent_ticks = self.space.silent_ticks.saturating_sub(1);
            return;
        }
        let (changes, successor) = self.view(|state| (self.changes(state), self.successor(state)));
        if changes.is_empty() && successor.is_none() {
            self.space.is_unsettled = self.space.room != Room::Ample;
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

    /// What must be said for the alarms that are raised to be those that should be.
    fn changes(&self, state: &State) -> Vec<(AlarmChange, Alarm)> {
        let wanted = self.wanted(state);
        let decide = |alarm: Alarm| match (wanted.contains(&alarm), state.alarms().contains(&(self.id, alarm))) {
            (true, false) => Some((AlarmChange::Raise, alarm)),
            (false, true) => Some((AlarmChange::Lower, alarm)),
            _ => None,
        };
        OWN.into_iter().filter_map(decide).collect()
    }

    /// The alarms that should be raised: that this disk is full, and if it takes the last of a majority, that nothing may grow.
    fn wanted(&self, state: &State) -> &'static [Alarm] {
        if self.space.room == Room::Ample {
            return &[];
        }
        let has_room = |id: u64| id != self.id && !state.alarms().contains(&(id, Alarm::Low));
        let voters = self.member.group().members().filter(|peer| !peer.learner);
        let (all, roomy) = voters.fold((0, 0), |(all, roomy), peer| (all + 1, roomy + usize::from(has_room(peer.id))));
        if roomy > all / 2 { &OWN[..1] } else { &OWN }
    }

    /// Who should lead in place of this member: one that cannot write does not, if somebody else can.
    fn successor(&self, state: &State) -> Option<u64> {
        if self.space.room == Room::Ample || self.member.status().role != Role::Leader {
            return None;
        }
        self.member.successor(|id| !state.alarms().contains(&(id, Alarm::Low)))
    }
}
