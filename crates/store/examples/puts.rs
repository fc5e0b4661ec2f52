//! Benchmark of durable puts per second on one member: `puts DIRECTORY [CLIENTS] [SECONDS]`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use consensus::Peer;
use mvcc::{Command, Put};
use store::Node;
use store::member::{Config, Start};

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().expect("a directory"));
    let clients: u64 = arguments.next().map_or(64, |count| count.parse().expect("a number of clients"));
    let seconds: u64 = arguments.next().map_or(5, |count| count.parse().expect("a number of seconds"));
    let peer = Peer { id: 1, name: "one".into(), peer_urls: vec![], client_urls: vec![], learner: false };
    let opening = Instant::now();
    let config = Config {
        id: 1,
        cluster_id: 1,
        data_dir: directory,
        heartbeat: Duration::from_millis(100),
        election_ticks: 10,
        start: Start::New(vec![peer]),
        listeners: vec![],
        tls: None,
        on_apply: Box::new(|_| {}),
        segment_bytes: 64 << 20,
        checkpoint_bytes: 64 << 20,
    };
    let node = Node::start(config).await.expect("started");
    node.read_index().await.expect("leads");
    println!("opened {} keys in {:?}", node.view(mvcc::State::key_count), opening.elapsed());
    let done = Arc::new(AtomicU64::new(0));
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut tasks = Vec::new();
    for client in 0..clients {
        let (node, done) = (node.clone(), done.clone());
        tasks.push(tokio::spawn(async move {
            let value = Bytes::from(vec![b'v'; 1024]);
            let mut number = client;
            while Instant::now() < until {
                number = (number + clients) % 100_000;
                let key = Bytes::from(format!("/registry/pods/default/pod-{number:08}"));
                let put = Put { key, value: Some(value.clone()), lease: Some(0), want_previous: false };
                node.propose(&Command::Put(put)).await.expect("acknowledged");
                done.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    let disk = node.status().disk;
    let rate = done.load(Ordering::Relaxed) / seconds;
    println!("{rate} puts/s, {} syncs, {} us a sync", disk.syncs, disk.sync_micros / disk.syncs.max(1));
    node.stop().await;
}
