//! What happened, kept whole: every committed command, done once by a state that is never compacted.

use consensus::Committed;
use mvcc::{Command, Range, Revision, Span, State};

/// The history of a run, as whoever applied an entry first saw it.
pub(crate) struct Chronicle {
    state: State,
    index: u64,
    compacted: Revision,
}

impl Chronicle {
    /// Of a cluster whose first entry is agreed on before it starts.
    pub(crate) fn new() -> Self {
        Self { state: State::new(), index: 1, compacted: -1 }
    }

    /// Notes an entry that a member applied; false when another was first.
    pub(crate) fn note(&mut self, entry: &Committed) -> bool {
        let (Committed::Empty { index }
        | Committed::Command { index, .. }
        | Committed::Overtaken { index, .. }
        | Committed::Changed { index, .. }) = *entry;
        if index <= self.index {
            return false;
        }
        assert_eq!(index, self.index + 1, "a snapshot is of what somebody applied");
        self.index = index;
        let Committed::Command { data, .. } = entry else { return true };
        match Command::decode(data).expect("members understand each other") {
            Command::Compact { revision } if revision <= self.state.revision() => {
                self.compacted = self.compacted.max(revision);
            }
            Command::Compact { .. } => {}
            command => {
                self.state.apply(index, &command);
            }
        }
        true
    }

    /// Everything that happened.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// The last compaction; -1 when there was none.
    pub(crate) fn compacted(&self) -> Revision {
        self.compacted
    }

    /// The first revision that a member does not tell as it was, though it may not have forgotten it.
    pub(crate) fn first_difference(&self, state: &State) -> Option<Revision> {
        let read = |state: &State, revision| {
            let reply = state.range(&Range { revision, ..Range::of(Span::all()) });
            reply.map(|reply| (reply.records, reply.count))
        };
        let mut readable = self.compacted.max(1)..=self.state.revision();
        readable.find(|revision| read(state, *revision) != read(&self.state, *revision))
    }
}
