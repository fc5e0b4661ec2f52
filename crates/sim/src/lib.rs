//! Deterministic simulation of the store: the real consensus, log and state on a faulty network and faulty disks.
//!
//! One seed is one run, which is repeatable: time is virtual and there is one source of randomness. Members lose power
//! at any disk operation; unsynced sectors survive individually or not. Messages are lost, delayed, duplicated and
//! reordered. Members are partitioned, pause, and tick in bursts; disks fill up. Meanwhile clients write, read, compare
//! and swap, hold leases and watch; operators compact, and add, promote and remove members. Each file of [`invariants`]
//! checks one property that must always hold. Then the faults end, and everything must converge.

mod chronicle;
mod clients;
mod disk;
mod faults;
mod host;
pub mod invariants;
mod network;
mod operator;
mod random;
mod simulation;
mod watchers;

use std::fmt;

/// Options of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    pub bugs: Bugs,
}

/// Bugs injected on purpose, to test that the invariants detect them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bugs {
    /// Reports a write as durable before it is.
    pub acknowledge_before_sync: bool,
    /// Serves reads from the state of the contacted member.
    pub read_without_quorum: bool,
    /// Omits an event of a watch.
    pub skip_watch_event: bool,
}

/// Statistics of a run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// Number of simulated events.
    pub events: u64,
    /// Number of operations with a known outcome.
    pub known: u64,
    /// Number of operations with an unknown outcome.
    pub unknown: u64,
    pub crashes: u64,
    /// Number of installed snapshots.
    pub snapshots: u64,
    /// Number of members that joined.
    pub joined: u64,
    /// Number of members that were removed.
    pub left: u64,
    /// Number of times a disk became full.
    pub full: u64,
    /// The last compact revision, or -1.
    pub compacted: i64,
    /// The final revision of all members.
    pub revision: i64,
    /// Virtual duration.
    pub milliseconds: u64,
}

/// A violated invariant in a run.
#[derive(Clone, Debug)]
pub struct Failure {
    pub seed: u64,
    /// The virtual time of the violation.
    pub milliseconds: u64,
    pub invariant: &'static str,
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, milliseconds, invariant, what } = self;
        writeln!(out, "seed {seed}, at {milliseconds} ms, {invariant}: {what}")?;
        write!(out, "reproduce: cargo run -p sim -- --start {seed} --seeds 1")
    }
}

pub fn run(seed: u64, options: Options) -> Result<Report, Failure> {
    simulation::Simulation::new(seed, options).run()
}
