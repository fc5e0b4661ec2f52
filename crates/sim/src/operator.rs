//! Simulated operators: compaction, membership changes and clearing of alarms.

use consensus::{Change, CommittedEntry, Peer};
use mvcc::{Alarm, AlarmChange, Command, State};

use crate::host::Host;
use crate::simulation::{Event, FAULTS_UNTIL_MS, PendingRequest, Simulation};

/// Maximum number of concurrent members.
const MEMBERS_MAX: usize = 5;
/// Maximum number of revisions that a compaction keeps.
const RETAINED_REVISIONS_MAX: u64 = 15;

impl Simulation {
    /// Compacts up to a revision that some member has.
    pub(crate) fn compact(&mut self) {
        if self.now_ms >= FAULTS_UNTIL_MS {
            return;
        }
        let wait = self.random.between(300, 2000);
        self.after(wait, Event::Compact);
        let host = self.any_host();
        let retained = self.random.between(0, RETAINED_REVISIONS_MAX).cast_signed();
        let revision = self.view(host, State::revision).unwrap_or(0) - retained;
        if revision > 0 {
            self.propose(host, &Command::Compact { revision }, PendingRequest::Nothing);
        }
    }

    /// Adds a learner, promotes one, or removes a member.
    pub(crate) fn reconfigure(&mut self) {
        if self.now_ms >= FAULTS_UNTIL_MS {
            return;
        }
        let wait = self.random.between(400, 1800);
        self.after(wait, Event::Reconfigure);
        let host = self.any_host();
        let Some(live) = &mut self.hosts[host].live else { return };
        let (learners, voters): (Vec<Peer>, Vec<Peer>) =
            live.replica.member().group().members().cloned().partition(|peer| peer.learner);
        let change = if let Some(learner) = learners.first() {
            if self.random.percent(75) { Change::Promote { id: learner.id } } else { Change::Remove { id: learner.id } }
        } else if voters.len() < MEMBERS_MAX && (voters.len() < 3 || self.random.percent(50)) {
            self.next_id += 1;
            Change::Add(Peer { learner: true, ..Host::peer(self.next_id) })
        } else if voters.len() > 1 {
            Change::Remove { id: voters[self.random.index(voters.len())].id }
        } else {
            return;
        };
        let sequence = live.replica.reserve();
        live.replica.change(sequence, change);
        self.run_pending(host);
    }

    /// Reacts to a decided membership change: starts a new member, or shuts down a removed one, which may not know it
    /// yet.
    pub(crate) fn follow_change(&mut self, entry: &CommittedEntry) {
        match entry {
            CommittedEntry::Changed { change: Change::Add(peer), result: Ok(()), .. } => {
                let clock = self.random.between(0, 1 << 40);
                self.hosts.push(Host::joining(peer.id, clock));
                self.report.joined += 1;
                let (host, wait) = (self.hosts.len() - 1, self.random.between(10, 500));
                self.after(wait, Event::Restart { host });
            }
            CommittedEntry::Changed { change: Change::Remove { id }, result: Ok(()), .. } => {
                self.report.left += 1;
                let (host, wait) = (self.host_of(*id), self.random.between(0, 2500));
                self.hosts[host].leaving = true;
                self.after(wait, Event::Retire { host });
            }
            _ => {}
        }
    }

    /// Shuts down a member permanently.
    pub(crate) fn retire(&mut self, host: usize) {
        self.hosts[host].retired = true;
        self.hosts[host].live = None;
        self.watchers.lose(host);
    }

    /// Clears all alarms, repeatedly: the member that raised one may have restarted or been removed.
    pub(crate) fn disarm(&mut self) {
        let host = self.any_host();
        if self.view(host, |state| state.alarms().is_empty()) != Some(true) {
            let lower = Command::Alarm { change: AlarmChange::Lower, alarm: Alarm::NoSpace, member: 0 };
            self.propose(host, &lower, PendingRequest::Nothing);
        }
        self.after(300, Event::Disarm);
    }
}
