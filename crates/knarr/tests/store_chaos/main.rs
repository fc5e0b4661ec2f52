//! Chaos tests of the store with the real binary: no acknowledged write is lost under SIGKILL or on a full disk.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod cluster;
mod full;
mod ledger;
mod tools;
mod writer;

use std::time::{Duration, Instant};

use store::client::Client;
use store::etcd::proto::etcdserverpb::StatusRequest;
use store::etcd::proto::etcdserverpb::maintenance_client::MaintenanceClient;
use tokio::sync::{mpsc, watch};
use tonic::transport::Channel;

use cluster::Cluster;
use ledger::AcknowledgedWrites;

const MEMBERS: usize = 3;
const WRITERS: usize = 6;
const ROUNDS: usize = 50;
const PREFIX: &str = "chaos/";
/// Time limit of any other step, on a loaded host.
const DEADLINE: Duration = Duration::from_secs(10);
/// Time limit for writes to resume after the leader was killed.
const RESUMED: Duration = Duration::from_secs(2);
/// Writes that must be acknowledged between two rounds, so that each round has data to lose.
const WRITES_A_ROUND: usize = 50;

/// The member that is killed in a round.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Victim {
    Member(usize),
    Leader,
    All,
}

/// Victims of consecutive rounds, each equally often.
const TURNS: [Victim; 5] = [Victim::Member(0), Victim::Member(1), Victim::Member(2), Victim::Leader, Victim::All];

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_member_kills_under_load() {
    let mut cluster = Cluster::start(MEMBERS);
    let (reports, received) = mpsc::unbounded_channel();
    let (stop, stopping) = watch::channel(false);
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(writer::run(cluster.client(), writer, reports.clone(), stopping.clone()));
    }
    let mut ledger = AcknowledgedWrites::new(received);
    let probe = cluster.client();
    let members: Vec<Client> = cluster.members.iter().map(cluster::Member::client).collect();
    let mut resumed = RecoveryTimes::default();
    for round in 0..ROUNDS {
        in_time("writes go on", ledger.grow(WRITES_A_ROUND)).await;
        let leader = in_time("there is a leader", leader(&cluster)).await;
        let victim = TURNS[round % TURNS.len()];
        let dying: Vec<usize> = match victim {
            Victim::Member(member) => vec![member],
            Victim::Leader => vec![leader],
            Victim::All => (0..MEMBERS).collect(),
        };
        dying.iter().for_each(|member| cluster.members[*member].kill());
        if victim == Victim::All {
            dying.iter().for_each(|member| cluster.members[*member].start());
        }
        let died = Instant::now();
        in_time("writes resume", write(&probe, round)).await;
        let times = match victim {
            Victim::All => &mut resumed.all,
            _ if dying == [leader] => &mut resumed.leader,
            _ => &mut resumed.follower,
        };
        let took = died.elapsed();
        times.push(took);
        println!("round {round}: {victim:?} of {dying:?}, leader was {leader}; writes resumed after {took:?}");
        if victim != Victim::All {
            dying.iter().for_each(|member| cluster.members[*member].start());
        }
        for member in &members {
            ledger.check(member).await;
        }
    }
    stop.send_replace(true);
    in_time("the writers end", writers.join_all()).await;
    println!("{} writes acknowledged, longest pause {:?}", ledger.len(), ledger.longest_pause());
    resumed.print();
    let slowest = resumed.leader.last().expect("leaders were killed");
    assert!(*slowest <= RESUMED, "writes resumed only {slowest:?} after the death of a leader");
    ledger.check_order();
    let first = ledger.check_history(&members[0]).await;
    for member in &members[1..] {
        assert!(ledger.check_history(member).await == first, "members differ in their history");
    }
}

/// Times from a kill until a write that started after it was acknowledged.
#[derive(Default)]
struct RecoveryTimes {
    follower: Vec<Duration>,
    leader: Vec<Duration>,
    /// Times from the restart of all three members.
    all: Vec<Duration>,
}

impl RecoveryTimes {
    fn print(&mut self) {
        let kinds =
            [("a follower", &mut self.follower), ("the leader", &mut self.leader), ("all members", &mut self.all)];
        for (who, times) in kinds {
            times.sort_unstable();
            let at = |part: usize| times.get((times.len().saturating_sub(1)) * part / 100).copied().unwrap_or_default();
            let within = times.iter().filter(|time| **time <= RESUMED).count();
            println!(
                "writes resumed after the death of {who}: {} rounds, min {:?}, p50 {:?}, p90 {:?}, max {:?}, {within} within 2 s",
                times.len(),
                at(0),
                at(50),
                at(90),
                at(100),
            );
        }
    }
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("not in time: {what}"))
}

/// Writes a separate key until the write is acknowledged.
async fn write(probe: &Client, round: usize) {
    // Outside the writers' prefix: this retry may apply a write twice, which the ledger would not know.
    let key = format!("probe/{round}");
    while probe.txn(writer::swap(&key, 0, 0)).await.is_err() {
        tokio::task::yield_now().await;
    }
}

/// Returns the index of the member that all others report as the leader.
async fn leader(cluster: &Cluster) -> usize {
    loop {
        for (index, member) in cluster.members.iter().enumerate() {
            let channel = Channel::from_shared(member.url.clone()).unwrap().connect_lazy();
            let status =
                MaintenanceClient::new(channel).status(StatusRequest {}).await.map(tonic::Response::into_inner);
            let leads = |status: &store::etcd::proto::etcdserverpb::StatusResponse| {
                status.header.as_ref().is_some_and(|header| header.member_id == status.leader)
            };
            if status.is_ok_and(|status| leads(&status)) {
                return index;
            }
        }
        tokio::task::yield_now().await;
    }
}
