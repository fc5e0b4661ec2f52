//! Traffic counters per peer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use tokio::time::Instant;

/// Upper bounds of the round-trip histogram, as in etcd: 0.1 ms, doubled fifteen times.
pub const ROUND_TRIP_BUCKETS_MICROS: [u64; 16] = {
    let mut bounds = [100; 16];
    let mut at = 1;
    while at < bounds.len() {
        bounds[at] = bounds[at - 1] * 2;
        at += 1;
    }
    bounds
};

/// Maximum number of counted peers, more than a cluster has. Others are not counted, so the number of series is
/// bounded.
const PEERS_MAX: usize = 64;
/// Maximum number of unanswered heartbeats per peer; a peer with more does not respond.
const UNANSWERED_MAX: usize = 1024;

/// Traffic with a peer.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PeerTraffic {
    pub id: u64,
    /// Number of open message connections to the peer.
    pub connections: u64,
    /// Duration of the current connection; none if disconnected.
    pub connected_for: Option<Duration>,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Number of heartbeat responses from the peer to this member, which is or was the leader.
    pub round_trips: u64,
    /// Total duration.
    pub round_trip_micros: u64,
    /// Non-cumulative counts for [`ROUND_TRIP_BUCKETS_MICROS`].
    pub round_trip_buckets: [u64; ROUND_TRIP_BUCKETS_MICROS.len()],
}

/// The counters of all peers; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Traffic(Arc<RwLock<BTreeMap<u64, Arc<Counts>>>>);

#[derive(Default)]
pub(crate) struct Counts {
    connections: AtomicU64,
    /// Time when the oldest open connection was opened.
    connected_at: Mutex<Option<Instant>>,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    round_trips: AtomicU64,
    round_trip_micros: AtomicU64,
    round_trip_buckets: [AtomicU64; ROUND_TRIP_BUCKETS_MICROS.len()],
}

/// An open connection.
pub(crate) struct Connection(Arc<Counts>);

/// Send times of unanswered heartbeats by peer. Responses arrive in order, and none is missing while the connections
/// hold, unless a peer drops frames because its queue is full. The measured times are then too long until a connection
/// breaks or the leader changes.
#[derive(Default)]
pub(crate) struct Heartbeats(BTreeMap<u64, VecDeque<Instant>>);

impl Traffic {
    pub(crate) fn of(&self, peer: u64) -> Arc<Counts> {
        if let Some(found) = self.0.read().expect("no holder panics").get(&peer) {
            return found.clone();
        }
        let mut peers = self.0.write().expect("no holder panics");
        if peers.len() >= PEERS_MAX && !peers.contains_key(&peer) {
            return Arc::default();
        }
        peers.entry(peer).or_default().clone()
    }

    /// Removes the counters of former peers.
    pub(crate) fn keep(&self, is_peer: impl Fn(u64) -> bool) {
        self.0.write().expect("no holder panics").retain(|peer, _| is_peer(*peer));
    }

    /// Returns the counters by peer.
    pub(crate) fn counters(&self) -> Vec<PeerTraffic> {
        self.0.read().expect("no holder panics").iter().map(|(id, counts)| counts.counters(*id)).collect()
    }
}

impl Counts {
    pub(crate) fn sent(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn connected(self: Arc<Self>) -> Connection {
        let mut connected_at = self.connected_at.lock().expect("no holder panics");
        connected_at.get_or_insert_with(Instant::now);
        self.connections.fetch_add(1, Ordering::Relaxed);
        drop(connected_at);
        Connection(self)
    }

    pub(crate) fn round_trip(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.round_trips.fetch_add(1, Ordering::Relaxed);
        self.round_trip_micros.fetch_add(micros, Ordering::Relaxed);
        let at = ROUND_TRIP_BUCKETS_MICROS.partition_point(|bound| *bound < micros);
        if let Some(bucket) = self.round_trip_buckets.get(at) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counters(&self, id: u64) -> PeerTraffic {
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        PeerTraffic {
            id,
            connections: load(&self.connections),
            connected_for: self.connected_at.lock().expect("no holder panics").map(|at| at.elapsed()),
            sent_bytes: load(&self.sent_bytes),
            received_bytes: load(&self.received_bytes),
            round_trips: load(&self.round_trips),
            round_trip_micros: load(&self.round_trip_micros),
            round_trip_buckets: self.round_trip_buckets.each_ref().map(load),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut connected_at = self.0.connected_at.lock().expect("no holder panics");
        if self.0.connections.fetch_sub(1, Ordering::Relaxed) == 1 {
            *connected_at = None;
        }
    }
}

impl Heartbeats {
    pub(crate) fn sent(&mut self, peer: u64, now: Instant) {
        let waiting = self.0.entry(peer).or_default();
        if waiting.len() >= UNANSWERED_MAX {
            waiting.clear();
        }
        waiting.push_back(now);
    }

    /// Records a response and returns the round-trip time.
    pub(crate) fn record_response(&mut self, peer: u64, now: Instant) -> Option<Duration> {
        Some(now - self.0.get_mut(&peer)?.pop_front()?)
    }

    /// Removes the send times of a peer's heartbeats, whose responses may be lost.
    pub(crate) fn lost(&mut self, peer: u64) {
        self.0.remove(&peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_matches_the_oldest_heartbeat_after_the_last_loss() {
        let mut heartbeats = Heartbeats::default();
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        heartbeats.sent(1, at(0));
        heartbeats.sent(1, at(10));
        heartbeats.sent(2, at(12));
        assert_eq!(heartbeats.record_response(1, at(15)), Some(Duration::from_millis(15)));
        assert_eq!(heartbeats.record_response(1, at(16)), Some(Duration::from_millis(6)));
        assert_eq!(heartbeats.record_response(1, at(17)), None);
        heartbeats.lost(2);
        heartbeats.sent(2, at(20));
        assert_eq!(heartbeats.record_response(2, at(21)), Some(Duration::from_millis(1)));
        assert_eq!(heartbeats.record_response(3, at(22)), None);
        for _ in 0..2 * UNANSWERED_MAX {
            heartbeats.sent(3, at(30));
        }
        assert!(heartbeats.0[&3].len() <= UNANSWERED_MAX);
    }

    #[test]
    fn peers_are_counted_separately_and_bounded() {
        let traffic = Traffic::default();
        let one = traffic.of(1);
        one.sent(5);
        traffic.of(1).sent(2);
        one.received(3);
        one.round_trip(Duration::from_micros(100));
        one.round_trip(Duration::from_micros(101));
        one.round_trip(Duration::from_secs(60));
        let open = one.clone().connected();
        let mut expect = PeerTraffic {
            id: 1,
            connections: 1,
            sent_bytes: 7,
            received_bytes: 3,
            round_trips: 3,
            round_trip_micros: 60_000_201,
            ..PeerTraffic::default()
        };
        expect.round_trip_buckets[..2].fill(1);
        let mut counters = traffic.counters();
        assert!(counters[0].connected_for.take().is_some());
        assert_eq!(counters, [expect.clone()]);
        drop(open);
        assert_eq!(traffic.counters(), [PeerTraffic { connections: 0, ..expect }]);
        for peer in 2..1000 {
            traffic.of(peer).sent(1);
        }
        assert_eq!(traffic.counters().len(), PEERS_MAX);
        traffic.keep(|peer| peer == 7);
        assert_eq!(traffic.counters().iter().map(|peer| peer.id).collect::<Vec<_>>(), [7]);
    }
}
