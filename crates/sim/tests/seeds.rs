//! A thousand seeds pass, and injected bugs are detected.

use std::sync::atomic::{AtomicU64, Ordering};

use sim::{Bugs, Failure, Options, run};

const SEEDS: u64 = 1000;

/// Returns the first failure among the first seeds, using one thread per CPU.
fn first_failure(seeds: u64, options: Options) -> Option<Failure> {
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let found = std::thread::scope(|scope| {
        let search = || {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds {
                    return None;
                }
                if let Err(failure) = run(seed, options) {
                    next.store(seeds, Ordering::Relaxed);
                    return Some(failure);
                }
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(search)).collect();
        workers.into_iter().filter_map(|worker| worker.join().expect("a run does not panic")).collect::<Vec<_>>()
    });
    found.into_iter().min_by_key(|failure| failure.seed)
}

#[test]
fn thousand_seeds_pass() {
    if let Some(failure) = first_failure(SEEDS, Options::default()) {
        panic!("{failure}");
    }
}

#[test]
fn seed_is_deterministic() {
    for seed in 0..20 {
        let (one, other) = (run(seed, Options::default()), run(seed, Options::default()));
        assert_eq!(one.ok(), other.ok(), "seed {seed}");
    }
}

#[test]
fn acknowledging_before_sync_is_detected() {
    let bugs = Bugs { acknowledge_before_sync: true, ..Bugs::default() };
    let failure = first_failure(SEEDS, Options { bugs }).expect("the planted bug is found");
    println!("found: {failure}");
}

#[test]
fn reading_without_quorum_is_detected() {
    let bugs = Bugs { read_without_quorum: true, ..Bugs::default() };
    let failure = first_failure(SEEDS, Options { bugs }).expect("the planted bug is found");
    assert!(["linearizable", "revisions grow"].contains(&failure.invariant), "{failure}");
}

#[test]
fn skipping_a_watch_event_is_detected() {
    let bugs = Bugs { skip_watch_event: true, ..Bugs::default() };
    let failure = first_failure(SEEDS, Options { bugs }).expect("the planted bug is found");
    assert_eq!(failure.invariant, "a watch receives every change", "{failure}");
}
