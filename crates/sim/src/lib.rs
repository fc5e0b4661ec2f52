//! A replicated store from a seed: the real consensus, log, checkpoints and state over a network and disks that fail.
//!
//! One seed is one run: virtual time, so nothing waits, and one source of randomness, so it can be repeated. Members lose power at
//! any disk operation, unsynced sectors survive or not one by one, messages are lost, delayed, doubled and reordered, members
//! are cut off, pause, and tick in bursts, disks fill up. Clients write, read, compare and swap, hold leases and watch meanwhile;
//! operators compact, and add, promote and remove members. Each file of
//! [`invariants`] holds one thing that must be true whatever happens. Then the faults stop, and everything must converge.

mod chronicle;
mod clients;
mod disk;
mod faults;
mod host;
pub mod invariants;
mod network;
mod operator;
mod random;
mod watchers;
mod world;

use std::fmt;

/// What a run may be given besides its seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Mistakes to make on purpose.
    pub bugs: Bugs,
}

/// Mistakes that the harness makes on purpose, to show that the invariants notice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bugs {
    /// Tell consensus that a write is durable before it is.
    pub acknowledge_before_sync: bool,
    /// Answer reads from the state of whoever is asked.
    pub read_without_quorum: bool,
    /// Leave out one event in a watch.
    pub skip_watch_event: bool,
}

/// What a run did.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// Events of the virtual world.
    pub events: u64,
    /// Operations that clients know the outcome of.
    pub known: u64,
    /// Operations that ended in doubt.
    pub unknown: u64,
    /// Crashes of members.
    pub crashes: u64,
    /// Snapshots installed.
    pub snapshots: u64,
    /// Members that joined.
    pub joined: u64,
    /// Members that left.
    pub left: u64,
    /// Times that a disk had no more room.
    pub full: u64,
    /// The last revision that was compacted, or -1.
    pub compacted: i64,
    /// The revision everybody ended with.
    pub revision: i64,
    /// Virtual milliseconds.
    pub milliseconds: u64,
}

/// What went wrong in a run.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// The virtual time.
    pub milliseconds: u64,
    /// The invariant that was broken.
    pub invariant: &'static str,
    /// How.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, milliseconds, invariant, what } = self;
        writeln!(out, "seed {seed}, at {milliseconds} ms, {invariant}: {what}")?;
        write!(out, "again: cargo run -p sim -- --start {seed} --seeds 1")
    }
}

/// Runs one seed.
pub fn run(seed: u64, options: Options) -> Result<Report, Failure> {
    world::World::new(seed, options).run()
}
