//! Reference history of a run: every committed command, applied once to a state that is never compacted.

use consensus::CommittedEntry;
use mvcc::{Command, Range, Revision, Span, State};

/// The history of a run, recorded from the first member that applies each entry.
pub(crate) struct Chronicle {
    state: State,
    index: u64,
    compacted: Revision,
}

impl Chronicle {
    /// Starts after the bootstrap entry, which the members agree on before the cluster starts.
    pub(crate) fn new() -> Self {
        Self { state: State::new(), index: 1, compacted: -1 }
    }

    /// Records an entry that a member applied. Returns false if another member applied it first.
    pub(crate) fn note(&mut self, entry: &CommittedEntry) -> bool {
        let (CommittedEntry::Empty { index }
        | CommittedEntry::Command { index, .. }
        | CommittedEntry::Overtaken { index, .. }
        | CommittedEntry::Changed { index, .. }) = *entry;
        if index <= self.index {
            return false;
        }
        assert_eq!(index, self.index + 1, "a snapshot follows the last applied entry");
        self.index = index;
        let CommittedEntry::Command { data, .. } = entry else { return true };
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

    /// Returns the uncompacted state.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Returns the last compact revision, or -1.
    pub(crate) fn compacted(&self) -> Revision {
        self.compacted
    }

    /// Returns the first uncompacted revision at which a member's state differs from the history.
    pub(crate) fn first_difference(&self, state: &State) -> Option<Revision> {
        let read = |state: &State, revision| {
            let reply = state.range(&Range { revision, ..Range::of(Span::all()) });
            reply.map(|reply| (reply.records, reply.count))
        };
        let mut readable = self.compacted.max(1)..=self.state.revision();
        readable.find(|revision| read(state, *revision) != read(&self.state, *revision))
    }
}
