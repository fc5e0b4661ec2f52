//! What a disk that fills up means for the cluster: an alarm that every member hears, and no growth until there is room again.

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
#[derive(Debug, Default)]
pub(super) struct Space {
    room: Room,
    /// Whether the alarm that is raised, or about to be, is for want of room. One that was raised for a quota is for an operator to lower.
    alarmed: bool,
    /// Ticks until the alarm is spoken of again: what was said may have been lost.
    silent_ticks: u32,
}

const REPEAT_TICKS: u32 = 10;

impl Replica {
    /// How much room the log has, from now on.
    pub fn set_room(&mut self, room: Room) {
        self.space.room = room;
        self.space.alarmed |= room != Room::Ample;
        self.space.silent_ticks = 0;
        self.tell_space();
    }

    /// How much room the log has.
    pub fn room(&self) -> Room {
        self.space.room
    }

    /// Whether an alarm is to be raised or lowered: time must go on for it.
    pub fn minds_space(&self) -> bool {
        self.space.alarmed
    }

    /// Raises the alarm of this member while its disk is full, and lowers it when it is not anymore.
    // DEVIATION: a member that raised the alarm for want of room on its disk lowers it itself; etcd does not survive a full disk.
    pub(super) fn tell_space(&mut self) {
        if !self.space.alarmed || self.space.silent_ticks > 0 {
            self.space.silent_ticks = self.space.silent_ticks.saturating_sub(1);
            return;
        }
        let id = self.id;
        let is_raised = self.view(|state: &State| state.alarms().contains(&(id, Alarm::NoSpace)));
        let change = match (self.space.room, is_raised) {
            (Room::Ample, true) => AlarmChange::Lower,
            (Room::Low | Room::None, false) => AlarmChange::Raise,
            (Room::Low | Room::None, true) => return,
            (Room::Ample, false) => {
                self.space.alarmed = false;
                return;
            }
        };
        self.space.silent_ticks = REPEAT_TICKS;
        self.propose(Command::Alarm { change, alarm: Alarm::NoSpace, member: id }.encode());
    }
}
