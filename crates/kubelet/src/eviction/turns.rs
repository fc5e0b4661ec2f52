//! Eviction order among the kubelets of one host that share a disk.
//!
//! A full disk is full for every node with pods on it, and space freed by one node is available to all. The kubelets
//! that share a disk therefore agree on the next eviction. Each kubelet keeps a file with the rank of the pod it would
//! evict. The kubelet whose pod ranks first evicts it; the others wait until that pod is cleaned up. See
//! `docs/decisions/024-nodes-that-share-a-disk.md`.
//!
//! A kubelet holds a lock on its file while it runs. The kernel releases the lock of a killed kubelet, and the others
//! then ignore its statement.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};

use super::Rank;

/// Directory of the kubelets' statements, with one subdirectory per device number.
pub const DIR: &str = "/run/knarr/eviction";
/// Timeout for another kubelet to measure the disk. Kubelets measure every ten seconds and may take longer.
const PEER_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for an eviction by another kubelet, including grace period and cleanup.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(120);
/// Fixed size of a statement, so that a single write replaces the previous one.
const STATEMENT_BYTES: usize = 96;
/// Maximum number of kubelets that share a disk.
const PEERS_MAX: usize = 1024;

/// The state of a kubelet regarding a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EvictionState {
    /// The kubelet has no pod to evict: its thresholds are met, or no eviction would free anything.
    Idle,
    /// The rank of the pod that the kubelet would evict.
    Candidate(Rank),
    /// The kubelet is evicting a pod.
    Evicting,
}

#[derive(Clone, Debug)]
struct Peer {
    name: String,
    statement: Option<EvictionState>,
    stated_at: SystemTime,
}

/// This kubelet's membership in the eviction order.
#[derive(Debug)]
pub struct Turns {
    dir: PathBuf,
    file: File,
    name: String,
    /// Start of the uninterrupted period with a candidate.
    candidate_since: Option<SystemTime>,
}

impl Turns {
    /// Joins the kubelets below `base` whose pods are on the same disk as `path`.
    pub fn enlist(base: &Path, path: &Path, node: &str) -> io::Result<Self> {
        let dir = base.join(format!("{:x}", fs::metadata(path)?.dev()));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        for n in 0..PEERS_MAX {
            let name = format!("{node}-{}-{n}", std::process::id());
            let entry_path = dir.join(&name);
            let file = fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&entry_path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => continue,
                Err(error) => return Err(error.into()),
            }
            // Another kubelet may have removed the file as abandoned before it was locked.
            if fs::metadata(&entry_path).is_ok_and(|found| file.metadata().is_ok_and(|own| own.ino() == found.ino())) {
                let turns = Self { dir, file, name, candidate_since: None };
                turns.write_statement(EvictionState::Idle)?;
                return Ok(turns);
            }
        }
        Err(io::Error::other(format!("{} is full", dir.display())))
    }

    /// States that this node has no pod to evict.
    pub fn pass_turn(&mut self) -> io::Result<()> {
        self.candidate_since = None;
        self.write_statement(EvictionState::Idle)
    }

    /// States the rank of the pod that this node would evict. Returns whether it is this node's turn; if so, the other
    /// nodes wait until its next statement.
    pub fn claim_turn(&mut self, rank: Rank, now: SystemTime) -> io::Result<bool> {
        self.write_statement(EvictionState::Candidate(rank))?;
        let since = *self.candidate_since.get_or_insert(now);
        let first = is_first((&self.name, rank), since, now, &self.read_peers()?);
        if first {
            self.write_statement(EvictionState::Evicting)?;
        }
        Ok(first)
    }

    fn write_statement(&self, statement: EvictionState) -> io::Result<()> {
        self.file.write_all_at(format!("{statement:<STATEMENT_BYTES$}").as_bytes(), 0)
    }

    /// Returns the statements of the other kubelets. Removes the files of kubelets that no longer run.
    fn read_peers(&self) -> io::Result<Vec<Peer>> {
        let mut peers = Vec::new();
        for entry in fs::read_dir(&self.dir)?.flatten().take(PEERS_MAX) {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let Ok(file) = File::open(entry.path()) else { continue };
            if name == self.name {
                continue;
            }
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                let _ = fs::remove_file(entry.path());
                continue;
            }
            let mut text = [0; STATEMENT_BYTES];
            let statement = file.read_exact_at(&mut text, 0).ok().and_then(|()| EvictionState::parse(&text));
            peers.push(Peer { name, statement, stated_at: file.metadata()?.modified()? });
        }
        Ok(peers)
    }
}

/// Whether the candidate of a kubelet ranks before the candidates of all peers. The kubelet has had a candidate since
/// `since`. A peer that has not measured the disk since then may have a better one, so the kubelet waits up to
/// [`PEER_TIMEOUT`] for it.
fn is_first(own: (&str, Rank), since: SystemTime, now: SystemTime, peers: &[Peer]) -> bool {
    let age = |at: SystemTime| now.duration_since(at).unwrap_or_default();
    peers.iter().all(|peer| match peer.statement {
        Some(EvictionState::Evicting) => age(peer.stated_at) > EVICTION_TIMEOUT,
        _ if peer.stated_at < since => age(since) > PEER_TIMEOUT,
        Some(EvictionState::Candidate(other)) => {
            (own.1, own.0) < (other, peer.name.as_str()) || age(peer.stated_at) > PEER_TIMEOUT
        }
        Some(EvictionState::Idle) | None => true,
    })
}

impl fmt::Display for EvictionState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle => out.pad("nothing"),
            Self::Candidate(rank) => out.pad(&format!("candidate {rank}")),
            Self::Evicting => out.pad("evicting"),
        }
    }
}

impl EvictionState {
    fn parse(text: &[u8]) -> Option<Self> {
        let mut tokens = std::str::from_utf8(text).ok()?.split_whitespace();
        match tokens.next()? {
            "nothing" => Some(Self::Idle),
            "evicting" => Some(Self::Evicting),
            "candidate" => Rank::parse(tokens).map(Self::Candidate),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(within_request: bool, priority: i64, excess: i128) -> Rank {
        Rank { within_request, priority, excess: std::cmp::Reverse(excess) }
    }

    #[test]
    fn statements_round_trip() {
        for statement in [
            EvictionState::Idle,
            EvictionState::Evicting,
            EvictionState::Candidate(rank(true, i64::MIN, i128::from(u64::MAX))),
        ] {
            let text = format!("{statement:<STATEMENT_BYTES$}");
            assert_eq!(text.len(), STATEMENT_BYTES, "{text:?}");
            assert_eq!(EvictionState::parse(text.as_bytes()), Some(statement));
        }
        assert_eq!(EvictionState::parse(&[0; STATEMENT_BYTES]), None);
        assert_eq!(EvictionState::parse(b"candidate 2 x"), None);
    }

    #[test]
    fn kubelet_evicts_after_all_peers_measured_without_a_better_candidate() {
        let at = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let check = |now: u64, statement: EvictionState, stated_at: u64, expect: bool| {
            let peer = Peer { name: "b".into(), statement: Some(statement), stated_at: at(stated_at) };
            let found = is_first(("a", rank(false, 0, 100)), at(1000), at(now), &[peer]);
            assert_eq!(found, expect, "{statement:?} of {stated_at} at {now}");
        };
        check(1000, EvictionState::Idle, 995, false);
        check(1010, EvictionState::Idle, 1005, true);
        check(1031, EvictionState::Idle, 995, true);
        check(1010, EvictionState::Candidate(rank(false, 0, 99)), 1005, true);
        check(1010, EvictionState::Candidate(rank(false, 0, 101)), 1005, false);
        check(1010, EvictionState::Candidate(rank(false, 0, 100)), 1005, true);
        check(1010, EvictionState::Candidate(rank(true, 0, 500)), 1005, true);
        check(1010, EvictionState::Candidate(rank(false, -1, 1)), 1005, false);
        check(1040, EvictionState::Candidate(rank(false, 0, 101)), 1005, true);
        check(1010, EvictionState::Evicting, 990, false);
        check(1111, EvictionState::Evicting, 990, true);
        assert!(
            is_first(("a", rank(true, 0, 0)), at(1000), at(1000), &[]),
            "a kubelet that has the disk to itself does not wait"
        );
    }

    #[test]
    fn node_with_the_larger_excess_evicts_on_a_shared_disk() {
        let dir = tempfile::tempdir().unwrap();
        let mut nodes = ["one", "two"].map(|node| Turns::enlist(dir.path(), dir.path(), node).unwrap());
        let (modest, greedy) = (rank(false, 0, 10), rank(false, 0, 1000));
        let (before, after) = (SystemTime::now() - Duration::from_secs(1), SystemTime::now() + Duration::from_secs(1));
        let [one, two] = &mut nodes;
        assert!(!one.claim_turn(modest, after).unwrap(), "the other node has not reported yet");
        assert!(two.claim_turn(greedy, before).unwrap());
        one.pass_turn().unwrap();
        assert!(!one.claim_turn(modest, before).unwrap(), "the other node is evicting");
        two.pass_turn().unwrap();
        assert!(one.claim_turn(modest, before).unwrap(), "the other node has nothing to evict any more");
        one.pass_turn().unwrap();
        drop(nodes);
        let mut alone = Turns::enlist(dir.path(), dir.path(), "three").unwrap();
        assert!(alone.claim_turn(modest, SystemTime::now()).unwrap(), "exited kubelets are ignored");
        let left = fs::read_dir(&alone.dir).unwrap().count();
        assert_eq!(left, 1, "and leave nothing behind");
    }
}
