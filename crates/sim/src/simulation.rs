//! The virtual world: events in order of time, and their effects.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use consensus::{CommittedEntry, Message, ProposeError, Role};
use mvcc::{Command, LeaseId, Put, Range, Span, State};
use store::replica::{FreeSpace, ProposalResult, Step};

use crate::chronicle::Chronicle;
use crate::clients::{KEYS, Kind, Operation, value};
use crate::disk::SimDisk;
use crate::host::{Down, Host, TICK_MS};
use crate::invariants::committed_is_immutable::CommittedIsImmutable;
use crate::invariants::leases_last::LeasesLast;
use crate::invariants::one_leader::OneLeader;
use crate::invariants::revisions_grow::{self, RevisionsGrow};
use crate::invariants::{
    Violation, acknowledged_survives, converges, history_is_retained, linearizable, watch_misses_nothing,
};
use crate::network::Network;
use crate::random::Random;
use crate::watchers::Watchers;
use crate::{Failure, Options, Report};

pub(crate) enum Event {
    Tick { host: usize, life: u64 },
    Deliver { from: u64, to: usize, bytes: Bytes },
    Snapshot { from: usize, life: u64, to: usize, message: Bytes, state: Vec<u8> },
    SnapshotSent { host: usize, life: u64, to: u64, arrived: bool },
    Synced { host: usize, life: u64 },
    Restart { host: usize },
    Client { client: u64 },
    Doubt { operation: usize },
    Lease,
    Hold { lease: LeaseId },
    Compact,
    Reconfigure,
    Retire { host: usize },
    PeerDisconnected { host: usize, peer: u64 },
    Probe { host: usize, life: u64 },
    InjectFault,
    Heal,
    Disarm,
}

/// A pending request to a member.
#[derive(Clone, Copy)]
pub(crate) enum PendingRequest {
    Operation(usize),
    Grant {
        lease: LeaseId,
        ttl_seconds: i64,
        began_ms: u64,
    },
    Renew {
        lease: LeaseId,
        ttl_seconds: i64,
        began_ms: u64,
    },
    /// A request whose response is ignored.
    Nothing,
}

pub(crate) struct Simulation {
    seed: u64,
    options: Options,
    pub(crate) random: Random,
    pub(crate) now_ms: u64,
    pub(crate) hosts: Vec<Host>,
    pub(crate) network: Network,
    events: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    history: Vec<Operation>,
    /// Keyed by member, its life, and the sequence or token it assigned.
    proposed: BTreeMap<(usize, u64, u64), PendingRequest>,
    reading: BTreeMap<(usize, u64, u64), PendingRequest>,
    next_token: u64,
    leases: Vec<(LeaseId, i64)>,
    pub(crate) next_id: u64,
    pub(crate) watchers: Watchers,
    chronicle: Chronicle,
    one_leader: OneLeader,
    committed: CommittedIsImmutable,
    revisions: RevisionsGrow,
    leases_last: LeasesLast,
    broken: Option<Violation>,
    pub(crate) report: Report,
}

const CLIENTS: u64 = 4;
/// Time after the faults for an election and pending work.
const HEALTHY_AFTER_MS: u64 = 5_000;
/// End of the fault phase.
pub(crate) const FAULTS_UNTIL_MS: u64 = 8_000;
const CLIENTS_UNTIL_MS: u64 = FAULTS_UNTIL_MS + HEALTHY_AFTER_MS + 500;
/// Time for the last leases to expire and for all members to converge.
const END_MS: u64 = CLIENTS_UNTIL_MS + 7_000;
const TIMEOUT_MS: u64 = 2_000;
/// Prefix of keys attached to a lease.
const LEASED_PREFIX: &[u8] = b"held/";

impl Simulation {
    pub(crate) fn new(seed: u64, options: Options) -> Self {
        let mut random = Random::new(seed);
        let count = [1, 3, 3, 3, 5, 5, 7][random.index(7)];
        let hosts = (1..=count).map(|id| Host::new(id, count, random.between(0, 1 << 40))).collect();
        Self {
            seed,
            options,
            random,
            now_ms: 0,
            hosts,
            network: Network { delay_ms_max: 5, ..Network::default() },
            events: BTreeMap::new(),
            next_event: 0,
            history: Vec::new(),
            proposed: BTreeMap::new(),
            reading: BTreeMap::new(),
            next_token: 0,
            leases: Vec::new(),
            next_id: count,
            watchers: Watchers::new(options.bugs.skip_watch_event),
            chronicle: Chronicle::new(),
            one_leader: OneLeader::default(),
            committed: CommittedIsImmutable::default(),
            revisions: RevisionsGrow::default(),
            leases_last: LeasesLast::default(),
            broken: None,
            report: Report::default(),
        }
    }

    pub(crate) fn run(mut self) -> Result<Report, Failure> {
        (0..self.hosts.len()).for_each(|host| self.after(0, Event::Restart { host }));
        (0..CLIENTS).for_each(|client| self.after(10 * client, Event::Client { client }));
        self.after(500, Event::Lease);
        self.after(1_000, Event::Compact);
        self.after(1_200, Event::Reconfigure);
        self.after(1_500, Event::InjectFault);
        self.after(FAULTS_UNTIL_MS, Event::Heal);
        while let Some(((at_ms, _), event)) = self.events.pop_first() {
            if at_ms > END_MS {
                break;
            }
            self.now_ms = at_ms;
            self.report.events += 1;
            self.handle(event);
            if self.broken.is_some() {
                break;
            }
        }
        let broken = self.broken.take().map_or_else(|| self.check(), Err);
        let failure = |(invariant, what)| Failure { seed: self.seed, milliseconds: self.now_ms, invariant, what };
        broken.map_err(failure)?;
        Ok(self.report)
    }

    fn handle(&mut self, event: Event) {
        if let Some(later) = self.pause_of(&event) {
            self.at(later, event);
            return;
        }
        match event {
            Event::Tick { host, life } => self.tick(host, life),
            Event::Deliver { from, to, bytes } => {
                let own = self.hosts[to].id;
                let message = Message::decode(bytes, from, own).expect("members understand each other");
                self.with_replica(to, None, |replica, _| {
                    replica.message(from, message).map_err(|error| error.to_string())
                });
            }
            Event::Snapshot { from, life, to, message, state } => self.snapshot(from, life, to, message, &state),
            Event::SnapshotSent { host, life, to, arrived } => self.with_replica(host, Some(life), |replica, _| {
                replica.snapshot_sent(to, arrived);
                Ok(())
            }),
            Event::Synced { host, life } => {
                if self.hosts[host].life == life {
                    let result = self.hosts[host].end_sync();
                    self.survive(host, result);
                    self.run_pending(host);
                }
            }
            Event::Restart { host } => self.restart(host),
            Event::Client { client } => self.client(client),
            Event::Doubt { operation } => self.abandon(operation),
            Event::Lease => self.lease(),
            Event::Hold { lease } => {
                let host = self.any_host();
                self.propose(host, &put_with_lease(lease), PendingRequest::Nothing);
            }
            Event::Compact => self.compact(),
            Event::Reconfigure => self.reconfigure(),
            Event::Retire { host } => self.retire(host),
            Event::PeerDisconnected { host, peer } => self.with_replica(host, None, |replica, _| {
                replica.peer_disconnected(peer);
                Ok(())
            }),
            Event::Probe { host, life } => self.probe(host, life),
            Event::InjectFault => {
                if self.now_ms < FAULTS_UNTIL_MS {
                    let wait = self.harm();
                    self.after(wait, Event::InjectFault);
                }
            }
            Event::Heal => {
                self.heal();
                self.after(HEALTHY_AFTER_MS / 2, Event::Disarm);
            }
            Event::Disarm => self.disarm(),
        }
    }

    /// Returns the time until which an event to a paused member is delayed.
    fn pause_of(&self, event: &Event) -> Option<u64> {
        let (Event::Tick { host, .. } | Event::Deliver { to: host, .. } | Event::Synced { host, .. }) = event else {
            return None;
        };
        Some(self.hosts[*host].paused_until).filter(|until| *until > self.now_ms)
    }

    fn tick(&mut self, host: usize, life: u64) {
        if self.hosts[host].life != life || self.hosts[host].live.is_none() {
            return;
        }
        let clock = self.now_ms + self.hosts[host].clock_offset_ms;
        self.with_replica(host, Some(life), |replica, _| {
            replica.tick(clock);
            Ok(())
        });
        self.poll_watchers(host);
        let jitter = self.random.between(0, 20);
        self.after(TICK_MS - 10 + jitter, Event::Tick { host, life });
    }

    fn with_replica(
        &mut self,
        host: usize,
        life: Option<u64>,
        act: impl FnOnce(&mut store::Replica, &mut Random) -> Result<(), String>,
    ) {
        let same = life.is_none_or(|life| self.hosts[host].life == life);
        let Some(live) = self.hosts[host].live.as_mut().filter(|_| same) else { return };
        match act(&mut live.replica, &mut self.random) {
            Ok(()) => self.run_pending(host),
            Err(error) => self.fault(host, &error),
        }
    }

    /// Executes everything that a member has to do now.
    pub(crate) fn run_pending(&mut self, host: usize) {
        loop {
            match self.hosts[host].step(self.now_ms) {
                Ok(Some(step)) => self.step(host, step),
                Ok(None) => break,
                Err(down) => return self.survive(host, Err(down)),
            }
            if self.hosts[host].live.is_none() {
                return;
            }
        }
        let free_space = self.hosts[host].free_space();
        let checkpointed = self.hosts[host].checkpoint();
        self.survive(host, checkpointed);
        match self.hosts[host].start_sync(self.options.bugs) {
            Ok(true) => {
                let wait = self.random.between(1, self.hosts[host].sync_ms + 2);
                let life = self.hosts[host].life;
                self.after(wait, Event::Synced { host, life });
                if self.options.bugs.acknowledge_before_sync {
                    self.run_pending(host);
                }
            }
            Ok(false) => {}
            Err(down) => return self.survive(host, Err(down)),
        }
        self.handle_free_space_change(host, free_space);
    }

    /// Reacts to a change of disk space: schedules a check for space, and executes the replica's reaction.
    fn handle_free_space_change(&mut self, host: usize, before: FreeSpace) {
        let free_space = self.hosts[host].free_space();
        if free_space == before {
            return;
        }
        if before == FreeSpace::Ample {
            self.report.full += 1;
            let (life, wait) = (self.hosts[host].life, self.random.between(50, 500));
            self.after(wait, Event::Probe { host, life });
        }
        self.run_pending(host);
    }

    fn probe(&mut self, host: usize, life: u64) {
        if self.hosts[host].life != life || self.hosts[host].live.is_none() {
            return;
        }
        let probed = self.hosts[host].probe();
        self.survive(host, probed);
        self.run_pending(host);
        if self.hosts[host].free_space() != FreeSpace::Ample {
            let wait = self.random.between(50, 500);
            self.after(wait, Event::Probe { host, life });
        }
    }

    fn step(&mut self, host: usize, step: Step) {
        let (id, life) = (self.hosts[host].id, self.hosts[host].life);
        if let Some(status) = step.changed.as_ref().filter(|status| status.role == Role::Leader) {
            let led = self.one_leader.leads(status.term, id);
            self.note(led);
        }
        if step.installed {
            self.report.snapshots += 1;
            // The snapshot may contain the proposals, so their outcome is unknown.
            self.proposed.retain(|(other, _, _), _| *other != host);
        }
        for entry in &step.applied {
            let applied = self.committed.applied(id, entry);
            self.note(applied);
            self.note_lease_end(entry);
            if self.chronicle.note(entry) {
                self.follow_change(entry);
            }
        }
        for (to, message) in step.send {
            self.send(id, to, &message);
        }
        for stream in step.streams {
            let mut state = Vec::new();
            stream.state.write_to(&mut state).expect("writing to memory cannot fail");
            let to = self.host_of(stream.to);
            let message = stream.message.encode();
            let wait = self.random.between(5, 200);
            self.after(wait, Event::Snapshot { from: host, life, to, message, state });
        }
        for (sequence, response) in step.responses {
            if let Some(request) = self.proposed.remove(&(host, life, sequence)) {
                self.handle_response(request, response);
            }
        }
        for token in step.reads {
            if let Some(request) = self.reading.remove(&(host, life, token)) {
                self.confirmed(host, request);
            }
        }
        if step.installed || !step.applied.is_empty() {
            let revision = self.view(host, State::revision).unwrap_or(0);
            let grown = self.revisions.stands(id, life, revision);
            self.note(grown);
            self.poll_watchers(host);
        }
        if step.removed {
            self.retire(host);
        }
    }

    fn send(&mut self, from: u64, to: u64, message: &Message) {
        for wait in self.network.deliveries(from, to, &mut self.random) {
            let to = self.host_of(to);
            self.after(wait, Event::Deliver { from, to, bytes: message.encode() });
        }
    }

    fn snapshot(&mut self, from: usize, life: u64, to: usize, message: Bytes, state: &[u8]) {
        let (sender, receiver) = (self.hosts[from].id, self.hosts[to].id);
        // A snapshot needs space for a checkpoint.
        let has_space = self.hosts[to].live.is_some() && self.hosts[to].free_space() == FreeSpace::Ample;
        let arrived = has_space && !self.network.deliveries(sender, receiver, &mut self.random).is_empty();
        if arrived {
            let message = Message::decode(message, sender, receiver).expect("members understand each other");
            let state = State::read_from(&mut &state[..]).expect("a received stream is complete");
            self.with_replica(to, None, |replica, _| {
                replica.snapshot(sender, message, state).map_err(|error| error.to_string())
            });
        }
        self.after(5, Event::SnapshotSent { host: from, life, to: receiver, arrived });
    }

    fn restart(&mut self, host: usize) {
        if self.hosts[host].live.is_some() || self.hosts[host].retired {
            return;
        }
        let seed = self.random.next();
        // A clock may have any value after a restart.
        self.hosts[host].clock_offset_ms = self.random.between(0, 1 << 40);
        let started = self.hosts[host].start(seed);
        let life = self.hosts[host].life;
        let up = started.is_ok();
        self.survive(host, started);
        if up {
            let id = self.hosts[host].id;
            if let Some(live) = &mut self.hosts[host].live
                && live.replica.member().group().is_sole_voter(id)
            {
                live.replica.campaign();
            }
            self.run_pending(host);
            self.handle_free_space_change(host, FreeSpace::Ample);
            self.after(TICK_MS, Event::Tick { host, life });
        }
    }

    /// Simulates a power failure: pending requests to this member get no response.
    pub(crate) fn crash(&mut self, host: usize) {
        let disk: SimDisk = self.hosts[host].disk.clone();
        if self.hosts[host].live.take().is_none() && !disk.is_dead() {
            return;
        }
        self.report.crashes += 1;
        disk.crash(&mut self.random);
        self.watchers.lose(host);
        self.hang_up(host);
        let wait = self.random.between(20, 1500);
        self.after(wait, Event::Restart { host });
    }

    fn survive(&mut self, host: usize, result: Result<(), Down>) {
        match result {
            Ok(()) => {}
            Err(Down::Power) => {
                self.hosts[host].live = None;
                self.crash(host);
            }
            Err(Down::Full) => {
                let wait = self.random.between(100, 1000);
                self.after(wait, Event::Restart { host });
            }
            Err(Down::Fault(error)) => self.fault(host, &error),
        }
    }

    fn fault(&mut self, host: usize, error: &str) {
        let id = self.hosts[host].id;
        self.note(Err(("no member gives up", format!("member {id} stopped: {error}"))));
    }

    fn client(&mut self, client: u64) {
        if self.now_ms >= CLIENTS_UNTIL_MS {
            return;
        }
        let host = self.any_host();
        let known = self.view(host, |state| value(state, self.random.clone().index(KEYS))).flatten();
        let number = self.history.len();
        let mut operation = Operation::random(&mut self.random, number as u64, known, self.now_ms);
        if self.now_ms > FAULTS_UNTIL_MS + HEALTHY_AFTER_MS {
            operation.kind = Kind::Get;
        }
        let life = self.hosts[host].life;
        let wait = self.random.between(30, 400);
        self.after(wait, Event::Client { client });
        // A removed member may respond, but never with a wrong result. At the end, every contacted member must respond.
        let must_respond = self.now_ms >= FAULTS_UNTIL_MS + HEALTHY_AFTER_MS;
        if self.hosts[host].live.is_none() || (must_respond && self.hosts[host].leaving) {
            return;
        }
        self.history.push(operation);
        self.after(TIMEOUT_MS, Event::Doubt { operation: number });
        let request = PendingRequest::Operation(number);
        match operation.command() {
            Some(command) => self.propose(host, &command, request),
            None if self.options.bugs.read_without_quorum => self.confirmed(host, request),
            None if self.hosts[host].live.as_ref().is_some_and(|live| live.replica.can_read_locally()) => {
                self.confirmed(host, request);
            }
            None => {
                self.next_token += 1;
                let token = self.next_token;
                self.reading.insert((host, life, token), request);
                self.with_replica(host, None, |replica, _| {
                    replica.read(token);
                    Ok(())
                });
            }
        }
    }

    pub(crate) fn propose(&mut self, host: usize, command: &Command, request: PendingRequest) {
        let life = self.hosts[host].life;
        let has_space = match self.hosts[host].free_space() {
            FreeSpace::Ample => true,
            FreeSpace::Low => !command.grows(),
            FreeSpace::None => false,
        };
        if !has_space {
            if let PendingRequest::Operation(number) = request {
                self.discard_operation(number);
            }
            return;
        }
        let Some(live) = &mut self.hosts[host].live else { return };
        if let (0, PendingRequest::Operation(number)) = (live.replica.member().status().leader, request) {
            return self.discard_operation(number);
        }
        let sequence = live.replica.propose(command.encode());
        self.proposed.insert((host, life, sequence), request);
        self.run_pending(host);
    }

    fn handle_response(&mut self, request: PendingRequest, response: Result<ProposalResult, ProposeError>) {
        let now = self.now_ms;
        match (request, response) {
            // An alarm rejected the operation, so it is not applied.
            (PendingRequest::Operation(number), Ok(ProposalResult::Outcome(outcome)))
                if outcome.result == Err(mvcc::Error::NoSpace) =>
            {
                self.discard_operation(number);
            }
            (PendingRequest::Operation(number), Ok(ProposalResult::Outcome(outcome)))
                if self.history[number].end.is_none() =>
            {
                self.history[number].record_outcome(&outcome, now);
            }
            // The operation is in no log and never will be, so it is treated as never sent. Any other rejection refers
            // to one copy and leaves the outcome unknown.
            (PendingRequest::Operation(number), Err(ProposeError::Superseded)) => self.discard_operation(number),
            (PendingRequest::Grant { lease, ttl_seconds, began_ms }, Ok(ProposalResult::Outcome(outcome)))
                if outcome.result.is_ok() =>
            {
                self.leases_last.lasts(lease, began_ms, ttl_seconds);
                self.leases.push((lease, ttl_seconds));
                self.after(1, Event::Hold { lease });
            }
            _ => {}
        }
    }

    /// Serves a read that this member may answer now.
    fn confirmed(&mut self, host: usize, request: PendingRequest) {
        let now = self.now_ms;
        match request {
            PendingRequest::Operation(number) => {
                let Some(state) = self.view(host, State::clone) else { return };
                if self.history[number].end.is_none() {
                    self.history[number].read(&state, now);
                }
            }
            PendingRequest::Renew { lease, ttl_seconds, began_ms } => {
                let clock = now + self.hosts[host].clock_offset_ms;
                let Some(live) = &mut self.hosts[host].live else { return };
                if live.replica.renew(lease, clock).is_some() {
                    self.leases_last.lasts(lease, began_ms, ttl_seconds);
                }
            }
            PendingRequest::Grant { .. } | PendingRequest::Nothing => {}
        }
    }

    fn discard_operation(&mut self, number: usize) {
        let operation = &mut self.history[number];
        // An unanswered read imposes no constraint, like an operation that never existed.
        if operation.end.is_none() {
            operation.kind = Kind::Get;
            operation.began_ms = 0;
        }
    }

    /// Stops waiting for an operation, which may still be executed.
    fn abandon(&mut self, number: usize) {
        let pending =
            |request: &PendingRequest| matches!(request, PendingRequest::Operation(other) if *other == number);
        self.proposed.retain(|_, request| !pending(request));
        self.reading.retain(|_, request| !pending(request));
    }

    /// Grants a lease with a key, or renews one at the presumed leader.
    fn lease(&mut self) {
        if self.now_ms >= FAULTS_UNTIL_MS {
            return;
        }
        let wait = self.random.between(100, 700);
        self.after(wait, Event::Lease);
        let host = self.any_host();
        let (life, began_ms) = (self.hosts[host].life, self.now_ms);
        let Some(live) = &self.hosts[host].live else { return };
        let renewing =
            self.leases.last().copied().filter(|_| live.replica.lessor().is_some() && self.random.percent(60));
        if let Some((lease, ttl_seconds)) = renewing {
            self.next_token += 1;
            let token = self.next_token;
            self.reading.insert((host, life, token), PendingRequest::Renew { lease, ttl_seconds, began_ms });
            self.with_replica(host, None, |replica, _| {
                replica.read(token);
                Ok(())
            });
        } else {
            self.next_token += 1;
            let lease = self.next_token.cast_signed();
            let ttl_seconds = self.random.between(1, 4).cast_signed();
            let command = Command::LeaseGrant { id: lease, ttl_seconds };
            self.propose(host, &command, PendingRequest::Grant { lease, ttl_seconds, began_ms });
        }
    }

    fn note_lease_end(&mut self, entry: &CommittedEntry) {
        let CommittedEntry::Command { data, .. } = entry else { return };
        if let Ok(Command::LeaseRevoke { id }) = Command::decode(data) {
            let result = self.leases_last.ends(id, self.now_ms);
            self.note(result);
        }
    }

    fn poll_watchers(&mut self, host: usize) {
        if let Some(state) = self.view(host, State::clone) {
            let eager = self.now_ms > CLIENTS_UNTIL_MS;
            self.watchers.poll(host, &state, &mut self.random, eager);
        }
    }

    fn check(&mut self) -> Result<(), Violation> {
        let members = (0..self.hosts.len()).filter(|host| !self.hosts[*host].retired);
        let states: Vec<(u64, Option<State>)> =
            members.map(|host| (self.hosts[host].id, self.view(host, State::clone))).collect();
        converges::check(&states, &self.history, FAULTS_UNTIL_MS + HEALTHY_AFTER_MS)?;
        history_is_retained::check(&states, &self.chronicle)?;
        let state = states.into_iter().find_map(|(_, state)| state).expect("a member is up");
        let left: Vec<LeaseId> = state.leases().map(|lease| lease.id).collect();
        let leased = state
            .range(&Range::of(Span::prefix(Bytes::from_static(LEASED_PREFIX))))
            .expect("the newest revision is there");
        self.leases_last.check_expired(&left, leased.count)?;
        let (final_state, compacted) = (self.chronicle.state(), self.chronicle.compacted());
        for (number, watcher) in self.watchers.watchers.iter().enumerate() {
            let saw = (&*watcher.seen, &*watcher.gaps);
            watch_misses_nothing::check(number, &watcher.span, saw, final_state, compacted)?;
        }
        revisions_grow::check(&self.history)?;
        acknowledged_survives::check(&self.history, final_state)?;
        linearizable::check(&self.history, &values(final_state))?;
        self.report.compacted = compacted;
        self.report.known = self.history.iter().filter(|operation| operation.end.is_some()).count() as u64;
        self.report.unknown = self.history.len() as u64 - self.report.known;
        self.report.revision = state.revision();
        self.report.milliseconds = self.now_ms;
        Ok(())
    }

    /// Returns a member that was not removed, up or down.
    pub(crate) fn any_host(&mut self) -> usize {
        let members: Vec<usize> = (0..self.hosts.len()).filter(|host| !self.hosts[*host].retired).collect();
        members[self.random.index(members.len())]
    }

    pub(crate) fn view<R>(&self, host: usize, read: impl FnOnce(&State) -> R) -> Option<R> {
        let state = self.hosts[host].live.as_ref()?.replica.state();
        let state = state.read().expect("a run has one thread");
        Some(read(&state))
    }

    pub(crate) fn host_of(&self, id: u64) -> usize {
        self.hosts.iter().position(|host| host.id == id).expect("a member of the cluster")
    }

    fn note(&mut self, result: Result<(), Violation>) {
        if let (Err(broken), None) = (result, &self.broken) {
            self.broken = Some(broken);
        }
    }

    pub(crate) fn after(&mut self, wait_ms: u64, event: Event) {
        self.at(self.now_ms + wait_ms, event);
    }

    fn at(&mut self, at_ms: u64, event: Event) {
        self.next_event += 1;
        self.events.insert((at_ms, self.next_event), event);
    }
}

/// Returns the put of a key that is attached to a lease.
fn put_with_lease(lease: LeaseId) -> Command {
    let key = Bytes::from([LEASED_PREFIX, lease.to_string().as_bytes()].concat());
    Command::Put(Put { key, value: Some(Bytes::from_static(b"held")), lease: Some(lease), want_previous: false })
}

/// Returns every value ever written.
fn values(state: &State) -> BTreeSet<u64> {
    let text = |event: &mvcc::Event| std::str::from_utf8(event.record.value()).ok()?.parse().ok();
    state.all_events(0).filter_map(text).collect()
}
