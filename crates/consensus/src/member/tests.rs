//! Members over a perfect network, with disks that finish on command.

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::change::Peer;

struct Cluster {
    members: BTreeMap<u64, Member>,
    /// Applied commands per member, as text.
    applied: BTreeMap<u64, Vec<String>>,
    reads: BTreeMap<u64, Vec<(u64, u64)>>,
    rejected: BTreeMap<u64, Vec<ProposeError>>,
    unsynced: BTreeMap<u64, VecDeque<u64>>,
    wire: VecDeque<(u64, u64, Message)>,
    cut: Vec<u64>,
    /// Members whose disk does not finish.
    stuck: Vec<u64>,
}

fn peer(id: u64, learner: bool) -> Peer {
    Peer { id, name: format!("m{id}"), peer_urls: vec![format!("https://{id}:2380")], client_urls: vec![], learner }
}

fn config(id: u64) -> Config {
    Config {
        id,
        heartbeat_ticks: 1,
        election_ticks: 10,
        seed: 7,
        boot: 1,
        message_bytes_max: 1 << 20,
        uncommitted_bytes_max: 64 << 20,
    }
}

fn command(origin: u64, sequence: u64, text: &str) -> Proposal {
    Payload::Command { request: RequestId { origin, sequence }, data: Bytes::copy_from_slice(text.as_bytes()) }
}

fn change(origin: u64, sequence: u64, change: Change) -> Proposal {
    Payload::Change { request: RequestId { origin, sequence }, change }
}

impl Cluster {
    fn new(ids: impl IntoIterator<Item = u64> + Clone) -> Self {
        let group = Group::new(ids.clone().into_iter().map(|id| peer(id, false)));
        let mut cluster = Self {
            members: BTreeMap::new(),
            applied: BTreeMap::new(),
            reads: BTreeMap::new(),
            rejected: BTreeMap::new(),
            unsynced: BTreeMap::new(),
            wire: VecDeque::new(),
            cut: Vec::new(),
            stuck: Vec::new(),
        };
        for id in ids {
            let snapshot = SnapshotMeta { index: 1, term: 1, group: group.clone() };
            cluster.start(id, RecoveredState { snapshot, ..RecoveredState::default() });
        }
        cluster
    }

    fn start(&mut self, id: u64, recovered: RecoveredState) {
        self.members.insert(id, Member::new(config(id), recovered));
    }

    fn run_until_stable(&mut self) {
        loop {
            let mut busy = false;
            for id in self.members.keys().copied().collect::<Vec<_>>() {
                busy |= self.run(id);
            }
            while let Some((from, to, message)) = self.wire.pop_front() {
                busy = true;
                if self.cut.contains(&from) || self.cut.contains(&to) {
                    continue;
                }
                let message = Message::decode(message.encode(), from, to).expect("members understand each other");
                if let Some(member) = self.members.get_mut(&to) {
                    let _ = member.message(from, message);
                }
            }
            if !busy {
                return;
            }
        }
    }

    fn run(&mut self, id: u64) -> bool {
        let member = self.members.get_mut(&id).expect("known");
        let mut busy = false;
        while let Some(effects) = member.effects() {
            busy = true;
            let applied = self.applied.entry(id).or_default();
            if let Some(persist) = effects.persist {
                if let Some(install) = &persist.install {
                    applied.push(format!("snapshot {}", install.index));
                }
                if persist.sync {
                    self.unsynced.entry(id).or_default().push_back(persist.number);
                }
            }
            for committed in effects.committed {
                let (index, text) = match committed {
                    CommittedEntry::Empty { index } => (index, None),
                    CommittedEntry::Command { index, data, .. } => {
                        (index, Some(String::from_utf8_lossy(&data).into_owned()))
                    }
                    CommittedEntry::Overtaken { index, .. } => (index, Some("overtaken".into())),
                    CommittedEntry::Changed { index, result, .. } => (index, Some(format!("change {result:?}"))),
                };
                applied.extend(text);
                member.applied(index);
            }
            self.reads.entry(id).or_default().extend(effects.reads);
            self.rejected.entry(id).or_default().extend(effects.rejected.into_iter().map(|(_, reason)| reason));
            self.wire.extend(effects.send.into_iter().map(|(to, message)| (id, to, message)));
            for snapshot in effects.snapshots {
                self.wire.push_back((id, snapshot.to, snapshot.message));
                member.snapshot_sent(snapshot.to, true);
            }
        }
        if !self.stuck.contains(&id) {
            while let Some(number) = self.unsynced.entry(id).or_default().pop_front() {
                busy = true;
                member.persisted(number);
            }
        }
        busy
    }

    fn ticks(&mut self, count: usize) {
        for _ in 0..count {
            let cut = self.cut.clone();
            self.members.iter_mut().filter(|(id, _)| !cut.contains(id)).for_each(|(_, member)| member.tick());
            self.run_until_stable();
        }
    }

    fn leader(&self) -> u64 {
        let leads = |(_, member): &(&u64, &Member)| member.status().role == Role::Leader;
        let live = self.members.iter().filter(|(id, _)| !self.cut.contains(id));
        let newest = live.filter(leads).max_by_key(|(_, member)| member.status().term);
        newest.map(|(id, _)| *id).expect("a member leads")
    }

    fn follower(&self) -> u64 {
        let leader = self.leader();
        *self.members.keys().find(|id| **id != leader && !self.cut.contains(id)).expect("more than one")
    }

    fn propose(&mut self, at: u64, proposal: Proposal) {
        self.members.get_mut(&at).expect("known").propose(vec![proposal]);
        self.run_until_stable();
    }
}

#[test]
fn sole_member_commits_only_durable_entries() {
    let mut cluster = Cluster::new([1]);
    cluster.members.get_mut(&1).expect("known").campaign();
    cluster.run_until_stable();
    cluster.stuck = vec![1];
    cluster.propose(1, command(1, 1, "put"));
    assert_eq!(cluster.applied[&1], Vec::<String>::new());
    cluster.stuck.clear();
    cluster.run_until_stable();
    assert_eq!(cluster.applied[&1], ["put"]);
    assert!(cluster.members[&1].is_idle());
}

#[test]
fn sole_voter_sends_nothing_of_its_term_before_it_is_durable() {
    let group = Group::new([peer(1, false), peer(2, true)]);
    let snapshot = SnapshotMeta { index: 1, term: 1, group };
    let mut member = Member::new(config(1), RecoveredState { snapshot, ..RecoveredState::default() });
    member.campaign();
    let (mut sent, mut writes) = (Vec::new(), Vec::new());
    while let Some(effects) = member.effects() {
        sent.extend(effects.send);
        writes.extend(effects.persist.map(|persist| persist.number));
    }
    assert_eq!(member.status().role, Role::Leader);
    assert_eq!(sent, [], "a vote that may be lost");
    member.persisted(writes.pop().expect("a vote is written"));
    let effects = member.effects().expect("the member has effects");
    assert!(effects.send.iter().any(|(to, _)| *to == 2), "{effects:?}");
}

#[test]
fn follower_acknowledges_only_durable_entries_but_responds_to_heartbeats() {
    let mut cluster = Cluster::new([1, 2, 3]);
    cluster.ticks(20);
    let leader = cluster.leader();
    cluster.stuck = (1..=3).filter(|id| *id != leader).collect();
    cluster.propose(leader, command(leader, 1, "put"));
    cluster.ticks(40);
    assert!(cluster.applied[&leader].is_empty(), "committed by one disk of three");
    assert_eq!(cluster.leader(), leader, "slow disks do not change the leader");
    cluster.stuck.clear();
    cluster.ticks(1);
    assert!((1..=3).all(|id| cluster.applied[&id] == ["put"]), "{:?}", cluster.applied);
}

#[test]
fn follower_forwards_and_duplicated_message_writes_once() {
    let mut cluster = Cluster::new([1, 2, 3]);
    cluster.ticks(20);
    let (leader, follower) = (cluster.leader(), cluster.follower());
    cluster.propose(follower, command(follower, 1, "put"));
    let doubled = Message::Forward(vec![command(follower, 1, "put")]);
    cluster.members.get_mut(&leader).expect("known").message(follower, doubled).expect("forwarded");
    cluster.run_until_stable();
    assert!((1..=3).all(|id| cluster.applied[&id] == ["put", "overtaken"]), "{:?}", cluster.applied);
}

#[test]
fn read_requires_a_quorum_and_works_on_a_follower() {
    let mut cluster = Cluster::new([1, 2, 3]);
    cluster.ticks(20);
    let (leader, follower) = (cluster.leader(), cluster.follower());
    for (id, at) in [(1, leader), (2, follower)] {
        cluster.members.get_mut(&at).expect("known").read(id);
        cluster.run_until_stable();
    }
    assert_eq!(cluster.reads[&leader], [(1, 2)]);
    assert_eq!(cluster.reads[&follower], [(2, 2)]);
    cluster.cut = vec![leader];
    cluster.members.get_mut(&leader).expect("known").read(3);
    cluster.run_until_stable();
    assert_eq!(cluster.reads[&leader], [(1, 2)], "a disconnected leader cannot confirm its leadership");
}

#[test]
fn dead_leader_is_replaced_and_isolated_leader_steps_down() {
    let mut cluster = Cluster::new([1, 2, 3]);
    cluster.ticks(20);
    let old = cluster.leader();
    cluster.cut = vec![old];
    cluster.ticks(60);
    let new = cluster.leader();
    assert_ne!(new, old);
    cluster.propose(new, command(new, 1, "put"));
    cluster.cut.clear();
    cluster.propose(old, command(old, 1, "lost"));
    cluster.ticks(20);
    assert_eq!(cluster.applied[&old].first().map(String::as_str), Some("put"));
    assert_eq!(cluster.leader(), new);
}

#[test]
fn silent_leader_is_replaced_after_the_timeout_without_split_votes() {
    for count in [3, 5] {
        let mut cluster = Cluster::new(1..=count);
        cluster.ticks(30);
        for _ in 0..count / 2 {
            let (leader, term) = (cluster.leader(), cluster.members[&cluster.leader()].status().term);
            cluster.cut.push(leader);
            // The election timeout, and one tick per member.
            cluster.ticks(config(1).election_ticks + usize::try_from(count).expect("few"));
            let first = (1..=count).find(|id| !cluster.cut.contains(id)).expect("a majority is there");
            let status = cluster.members[&(first + 1)].status();
            assert_eq!((status.leader, status.term), (first, term + 1));
        }
    }
}

#[test]
fn disconnected_leader_is_replaced_in_two_ticks_without_split_votes() {
    let mut cluster = Cluster::new(1..=5);
    cluster.ticks(30);
    let (leader, term) = (cluster.leader(), cluster.members[&1].status().term);
    cluster.cut.push(leader);
    let others: Vec<u64> = (1..=5).filter(|id| *id != leader).collect();
    others.iter().for_each(|id| cluster.members.get_mut(id).expect("known").peer_disconnected(leader));
    cluster.ticks(2);
    let status = cluster.members[&others[3]].status();
    assert_eq!((status.leader, status.term), (others[0], term + 1));
}

#[test]
fn leader_disconnected_from_one_member_stays_leader() {
    let mut cluster = Cluster::new([1, 2, 3]);
    cluster.ticks(30);
    let (leader, term) = (cluster.leader(), cluster.members[&1].status().term);
    let lost = cluster.follower();
    cluster.members.get_mut(&lost).expect("known").peer_disconnected(leader);
    cluster.ticks(30);
    let status = cluster.members[&lost].status();
    assert_eq!((status.leader, status.term), (leader, term), "members with a leader do not vote");
}

#[test]
fn member_behind_the_log_receives_a_snapshot() {
    let mut cluster = Cluster::new([1, 2, 3]);
    cluster.ticks(20);
    let (leader, lagging) = (cluster.leader(), cluster.follower());
    cluster.cut = vec![lagging];
    for sequence in 1..=5 {
        cluster.propose(leader, command(leader, sequence, "put"));
    }
    cluster.ticks(20);
    cluster.members.get_mut(&leader).expect("known").compact(0, 0);
    cluster.cut.clear();
    cluster.ticks(20);
    cluster.propose(leader, command(leader, 6, "after"));
    assert_eq!(cluster.applied[&lagging], ["snapshot 7", "after"]);
    assert_eq!(cluster.members[&lagging].group(), cluster.members[&leader].group());
}

#[test]
fn members_join_as_learners_are_promoted_and_leave() {
    let mut cluster = Cluster::new([1]);
    cluster.ticks(20);
    cluster.propose(1, change(1, 1, Change::Add(peer(2, true))));
    cluster.start(2, RecoveredState::default());
    cluster.ticks(20);
    assert_eq!(cluster.members[&2].group(), cluster.members[&1].group());
    cluster.propose(1, change(1, 2, Change::Promote { id: 2 }));
    cluster.ticks(2);
    assert!(cluster.members[&2].group().member(2).is_some_and(|peer| !peer.learner));
    cluster.members.get_mut(&1).expect("known").transfer(2);
    cluster.ticks(2);
    assert_eq!(cluster.leader(), 2);
    cluster.propose(2, change(2, 1, Change::Remove { id: 1 }));
    cluster.ticks(20);
    cluster.propose(2, command(2, 2, "alone"));
    assert_eq!(cluster.applied[&2].last().map(String::as_str), Some("alone"));
    assert!(cluster.members[&2].is_idle());
}

#[test]
fn removed_leader_transfers_leadership_first_so_that_the_quorum_survives() {
    let mut cluster = Cluster::new([1, 2]);
    cluster.ticks(30);
    let (old, new) = (cluster.leader(), cluster.follower());
    cluster.propose(old, change(old, 1, Change::Remove { id: old }));
    assert_eq!(cluster.rejected[&old], [ProposeError::Transferring], "it is proposed again, to the next leader");
    cluster.ticks(2);
    assert_eq!(cluster.leader(), new);
    cluster.propose(old, change(old, 1, Change::Remove { id: old }));
    // Further messages of the removed member are lost.
    cluster.cut = vec![old];
    cluster.propose(new, command(new, 1, "alone"));
    assert_eq!(cluster.applied[&new].last().map(String::as_str), Some("alone"));
}

#[test]
fn concurrent_membership_changes_are_rejected_with_the_reason() {
    let mut cluster = Cluster::new([1, 2, 3]);
    cluster.ticks(20);
    let leader = cluster.leader();
    let both = vec![change(leader, 1, Change::Add(peer(4, true))), change(leader, 2, Change::Add(peer(5, false)))];
    cluster.members.get_mut(&leader).expect("known").propose(both);
    cluster.run_until_stable();
    assert_eq!(cluster.rejected[&leader], [ProposeError::Change(ChangeError::InProgress)]);
}

#[test]
fn member_that_lost_its_log_reports_what_to_do() {
    let mut cluster = Cluster::new([1, 2, 3]);
    cluster.ticks(20);
    let (leader, follower) = (cluster.leader(), cluster.follower());
    cluster.propose(leader, command(leader, 1, "put"));
    cluster.ticks(2);
    let group = cluster.members[&leader].group().clone();
    let term = cluster.members[&leader].status().term;
    let snapshot = SnapshotMeta { index: 1, term: 1, group };
    let hard_state = HardState { term, vote: 0, commit: 1 };
    cluster.start(follower, RecoveredState { snapshot, hard_state, entries: Vec::new() });
    cluster.members.get_mut(&leader).expect("known").tick();
    let effects = cluster.members.get_mut(&leader).expect("known").effects().expect("a heartbeat");
    let (_, heartbeat) = effects.send.into_iter().find(|(to, _)| *to == follower).expect("to the follower");
    let fault = cluster.members.get_mut(&follower).expect("known").message(leader, heartbeat);
    assert_eq!(fault, Err(Fault::LogLost { from: leader, expected: 3, last: 1 }));
}

#[test]
fn same_seed_elects_the_same_leader_in_the_same_term() {
    let outcome = || {
        let mut cluster = Cluster::new([1, 2, 3, 4, 5]);
        cluster.ticks(30);
        (cluster.leader(), cluster.members[&1].status())
    };
    assert_eq!(outcome(), outcome());
}

#[test]
fn delayed_rejection_does_not_move_the_leader_before_acknowledged_entries() {
    let mut cluster = Cluster::new([1, 2, 3]);
    cluster.ticks(20);
    let (id, follower) = (cluster.leader(), cluster.follower());
    for sequence in 1..=20 {
        cluster.propose(id, command(id, sequence, "put"));
    }
    let leader = cluster.members.get_mut(&id).expect("known");
    let term = leader.status().term;
    let mut reject_append = |index: u64, hint: u64, log_term: u64| {
        // The leader probes after a lost message.
        leader.unreachable(follower);
        let mut rejection = eraftpb::Message::default();
        rejection.set_msg_type(MessageType::MsgAppendResponse);
        (rejection.from, rejection.to, rejection.term) = (follower, id, term);
        (rejection.reject, rejection.index, rejection.reject_hint, rejection.log_term) = (true, index, hint, log_term);
        leader
            .message(follower, Message::Raft(crate::message::RaftMessage(rejection)))
            .expect("a rejection from a peer is valid");
        let seen = leader.raft.raft.prs().get(follower).expect("known");
        (seen.matched, seen.next_idx)
    };
    let (matched, next) = reject_append(u64::from(u32::MAX), 1, 1);
    assert!(matched > 20 && next == matched + 1, "{matched}, {next}");
    for (hint, log_term) in [(1, 0), (1, 1), (matched, 1), (0, 0)] {
        assert_eq!(reject_append(matched, hint, log_term), (matched, matched + 1), "hint {hint} of term {log_term}");
    }
}

#[test]
fn member_with_a_backlog_campaigns_after_applying_it() {
    let count = election::BACKLOG_MAX + 5;
    let group = Group::new([peer(1, false)]);
    let payload = |sequence| command(1, sequence, "x");
    let entries = (2..=count + 1).map(|index| Entry { index, term: 1, payload: payload(index) }).collect();
    let snapshot = SnapshotMeta { index: 1, term: 1, group };
    let hard_state = HardState { term: 1, vote: 0, commit: count + 1 };
    let mut cluster = Cluster::new([]);
    cluster.start(1, RecoveredState { snapshot, entries, hard_state });
    let member = cluster.members.get_mut(&1).expect("known");
    member.campaign();
    (0..100).for_each(|_| member.tick());
    assert_eq!(member.status().role, Role::Follower, "applying would copy all pending entries");
    cluster.run_until_stable();
    let status = cluster.members[&1].status();
    assert_eq!((status.role, cluster.applied[&1].len() as u64), (Role::Leader, count));
}

#[test]
fn message_that_commits_nonexistent_entries_is_rejected() {
    let mut cluster = Cluster::new([1, 2, 3]);
    let member = cluster.members.get_mut(&1).expect("known");
    let mut append = eraftpb::Message::default();
    append.set_msg_type(MessageType::MsgAppend);
    (append.from, append.to, append.term, append.index, append.commit) = (2, 1, 5, 256, 256);
    let result = member.message(2, Message::Raft(crate::message::RaftMessage(append)));
    assert!(matches!(result, Err(Fault::Nonsense { from: 2, .. })), "{result:?}");
    let mut snapshot = eraftpb::Message::default();
    snapshot.set_msg_type(MessageType::MsgSnapshot);
    (snapshot.from, snapshot.to, snapshot.term) = (2, 1, 5);
    snapshot.mut_snapshot().mut_metadata().index = 256;
    let group = Group::new([peer(1, false), peer(2, false), peer(3, false)]);
    let result = member.message(2, Message::Snapshot(crate::message::RaftMessage(snapshot), group));
    assert!(matches!(result, Err(Fault::Nonsense { from: 2, .. })), "{result:?}");
}
