//! Running members with real files, real sockets and mutual TLS.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use consensus::{Change, Peer, Role};
use mvcc::{Command, Put};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use store::Node;
use store::member::{Config, LeaseError, NodeStatus, Start};
use store::peer::Tls;
use tempfile::TempDir;
use tokio::net::TcpListener;

const DEADLINE: Duration = Duration::from_secs(20);

struct Seat {
    directory: TempDir,
    peer: Peer,
    listener: Option<TcpListener>,
}

fn config(seat: &mut Seat, start: Start, tls: Option<Tls>) -> Config {
    Config {
        id: seat.peer.id,
        cluster_id: 7,
        data_dir: seat.directory.path().to_owned(),
        heartbeat: Duration::from_millis(50),
        election_ticks: 10,
        start,
        listeners: seat.listener.take().into_iter().collect(),
        tls,
        on_apply: Box::new(|_| {}),
        segment_bytes: 1 << 20,
        checkpoint_bytes: 256 << 10,
    }
}

async fn seat(id: u64, scheme: &str) -> Seat {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("{scheme}://{}", listener.local_addr().unwrap());
    let peer = Peer { id, name: format!("m{id}"), peer_urls: vec![url], client_urls: vec![], learner: false };
    Seat { directory: tempfile::tempdir().unwrap(), peer, listener: Some(listener) }
}

fn certificates() -> Tls {
    let mut ca = CertificateParams::new(vec![]).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    Tls::new(vec![leaf.der().clone()], key, vec![ca.der().clone()]).unwrap()
}

/// Writes a CA, a certificate issued by it, and its key to files of a directory.
fn certificate_files(dir: &Path) -> [PathBuf; 3] {
    let mut ca = CertificateParams::new(vec![]).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
    let files = ["peer.crt", "peer.key", "ca.crt"].map(|name| dir.join(name));
    for (file, text) in files.iter().zip([leaf.pem(), key.serialize_pem(), ca.pem()]) {
        std::fs::write(file, text).unwrap();
    }
    files
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_members_use_renewed_certificates_for_new_connections() {
    let dir = tempfile::tempdir().unwrap();
    let [certificate, key, ca] = certificate_files(dir.path());
    let read = || Tls::from_files(&certificate, &key, &ca).unwrap();
    let tls = read();
    let (seats, nodes) = cluster(1, "https", Some(&tls)).await;
    let urls = &seats[0].peer.peer_urls;
    store::peer::members_of(urls, Some(&tls)).await.unwrap();

    // All files are replaced: a member that kept the old ones would not be trusted.
    certificate_files(dir.path());
    store::peer::members_of(urls, Some(&read())).await.expect("the server reloaded the files");
    store::peer::members_of(urls, Some(&tls)).await.expect("the client reloaded the files");
    std::fs::remove_file(&certificate).unwrap();
    store::peer::members_of(urls, Some(&tls)).await.expect("the last valid files are used while one is missing");
    for node in nodes {
        node.stop().await;
    }
}

async fn cluster(size: u64, scheme: &str, tls: Option<&Tls>) -> (Vec<Seat>, Vec<Node>) {
    let mut seats = Vec::new();
    for id in 1..=size {
        seats.push(seat(id, scheme).await);
    }
    let peers: Vec<Peer> = seats.iter().map(|seat| seat.peer.clone()).collect();
    let mut nodes = Vec::new();
    for seat in &mut seats {
        nodes.push(Node::start(config(seat, Start::New(peers.clone()), tls.cloned())).await.unwrap());
    }
    (seats, nodes)
}

fn put(key: &str, value: &str) -> Command {
    let value = Some(Bytes::copy_from_slice(value.as_bytes()));
    Command::Put(Put { key: Bytes::copy_from_slice(key.as_bytes()), value, lease: Some(0), want_previous: false })
}

fn value(node: &Node, key: &str) -> Option<String> {
    node.view(|state| state.key(key.as_bytes()).map(|record| String::from_utf8_lossy(record.value()).into_owned()))
}

async fn until(node: &Node, holds: impl Fn(&NodeStatus) -> bool) -> NodeStatus {
    let mut status = node.status_watch();
    let reached = tokio::time::timeout(DEADLINE, status.wait_for(|status| holds(status))).await;
    reached.unwrap_or_else(|_| panic!("not in time: {:?}", node.status())).unwrap().clone()
}

async fn leader(nodes: &[Node]) -> usize {
    let leader = until(&nodes[0], |status| status.leader != 0).await.leader;
    nodes.iter().position(|node| node.id() == leader).expect("one of them")
}

async fn restart(path: &Path, listener: Option<TcpListener>, peer: &Peer) -> Node {
    let mut seat = Seat { directory: tempfile::tempdir().unwrap(), peer: peer.clone(), listener };
    let config = Config { data_dir: path.to_owned(), ..config(&mut seat, Start::Join(vec![]), None) };
    Node::start(config).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_a_restart() {
    let (seats, nodes) = cluster(1, "http", None).await;
    let node = &nodes[0];
    let writes = (0..2000).map(|number| node.propose_owned(put(&format!("k{number}"), &"v".repeat(300))));
    let outcomes = join_all(writes).await;
    assert!(outcomes.into_iter().all(|outcome| outcome.unwrap().result.is_ok()));
    node.read_index().await.unwrap();
    node.stop().await;
    let node = restart(seats[0].directory.path(), None, &seats[0].peer).await;
    node.read_index().await.unwrap();
    assert_eq!(node.view(mvcc::State::key_count), 2000);
    let names = std::fs::read_dir(seats[0].directory.path()).unwrap();
    let checkpoints =
        names.filter(|name| name.as_ref().unwrap().file_name().to_string_lossy().starts_with("checkpoint-"));
    assert!(checkpoints.count() >= 1, "more than a checkpoint's worth was written");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_members_over_tls_replicate_forward_and_survive_their_leader() {
    let tls = certificates();
    let (_seats, mut nodes) = cluster(3, "https", Some(&tls)).await;
    let first = leader(&nodes).await;
    let follower = &nodes[(first + 1) % 3];
    follower.propose(&put("a", "1")).await.unwrap().result.unwrap();
    assert_eq!(value(follower, "a").as_deref(), Some("1"), "a write is applied where it was acknowledged");
    for node in &nodes {
        node.read_index().await.unwrap();
        assert_eq!(value(node, "a").as_deref(), Some("1"));
    }
    nodes.remove(first).stop().await;
    let outcome = tokio::time::timeout(DEADLINE, nodes[0].propose(&put("a", "2"))).await.expect("in time");
    outcome.unwrap().result.unwrap();
    nodes[1].read_index().await.unwrap();
    assert_eq!(value(&nodes[1], "a").as_deref(), Some("2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn member_without_a_certificate_is_rejected() {
    let tls = certificates();
    let (seats, nodes) = cluster(1, "https", Some(&tls)).await;
    let urls = seats[0].peer.peer_urls.clone();
    let (cluster, peers) = store::peer::members_of(&urls, Some(&tls)).await.unwrap();
    assert_eq!((cluster, peers), (7, nodes[0].members()));
    let stranger = certificates();
    assert!(store::peer::members_of(&urls, Some(&stranger)).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn learner_joins_by_snapshot_is_promoted_and_becomes_leader() {
    let (_seats, nodes) = cluster(1, "http", None).await;
    let node = &nodes[0];
    let writes = (0..500).map(|number| node.propose_owned(put(&format!("k{number}"), &"v".repeat(4000))));
    join_all(writes).await.into_iter().for_each(|outcome| assert!(outcome.unwrap().result.is_ok()));
    let mut joining = seat(2, "http").await;
    node.change(Change::Add(Peer { learner: true, ..joining.peer.clone() })).await.unwrap();
    let joined = Node::start(config(&mut joining, Start::Join(node.members()), None)).await.unwrap();
    tokio::time::timeout(DEADLINE, joined.read_index()).await.expect("in time").unwrap();
    assert_eq!(joined.view(mvcc::State::key_count), 500);
    until(&joined, |status| status.is_learner).await;
    let promote = async {
        // The learner has the state before the leader receives its response.
        while let Err(error) = node.change(Change::Promote { id: 2 }).await {
            assert_eq!(error, consensus::ProposeError::LearnerNotReady.into());
            joined.read_index().await.unwrap();
        }
    };
    tokio::time::timeout(DEADLINE, promote).await.expect("in time");
    until(&joined, |status| !status.is_learner).await;
    node.move_leader(2).await.unwrap();
    until(&joined, |status| status.role == Role::Leader).await;
    joined.change(Change::Remove { id: 1 }).await.unwrap();
    joined.propose(&put("alone", "1")).await.unwrap().result.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_are_renewed_through_any_member_and_expire_on_time() {
    let (_seats, nodes) = cluster(3, "http", None).await;
    let leads = leader(&nodes).await;
    let follower = &nodes[(leads + 1) % 3];
    follower.propose(&Command::LeaseGrant { id: 5, ttl_seconds: 1 }).await.unwrap().result.unwrap();
    let key = Put { key: "held".into(), value: Some("x".into()), lease: Some(5), want_previous: false };
    follower.propose(&Command::Put(key)).await.unwrap().result.unwrap();
    assert_eq!(follower.lease_renew(5).await, Ok(1));
    assert!(follower.lease_remaining(5).await.is_ok_and(|seconds| seconds <= 1));
    assert_eq!(follower.lease_renew(6).await, Err(LeaseError::NotFound));
    let expired = async {
        while value(follower, "held").is_some() {
            let mut status = follower.status_watch();
            status.changed().await.unwrap();
        }
    };
    tokio::time::timeout(DEADLINE, expired).await.expect("the lease expires");
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_in_use_is_rejected() {
    let (seats, _nodes) = cluster(1, "http", None).await;
    let mut again = Seat { directory: tempfile::tempdir().unwrap(), peer: seats[0].peer.clone(), listener: None };
    let config =
        Config { data_dir: seats[0].directory.path().to_owned(), ..config(&mut again, Start::Join(vec![]), None) };
    let error = Node::start(config).await.err().expect("refused");
    assert!(error.to_string().contains("in use"), "{error}");
}

trait ProposeOwned {
    fn propose_owned(
        &self,
        command: Command,
    ) -> tokio::task::JoinHandle<Result<mvcc::Outcome, store::member::ProposeError>>;
}

impl ProposeOwned for Node {
    fn propose_owned(
        &self,
        command: Command,
    ) -> tokio::task::JoinHandle<Result<mvcc::Outcome, store::member::ProposeError>> {
        let node = self.clone();
        tokio::spawn(async move { node.propose(&command).await })
    }
}

async fn join_all<T>(handles: impl Iterator<Item = tokio::task::JoinHandle<T>>) -> Vec<T> {
    let handles: Vec<_> = handles.collect();
    let mut results = Vec::with_capacity(handles.len());
    for handle in handles {
        results.push(handle.await.unwrap());
    }
    results
}
