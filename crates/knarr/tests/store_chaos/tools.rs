//! Operator commands of the store: save, inspect and restore snapshots, check a data directory, read metrics.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use mvcc::{Operation, Put, Txn};
use store::client::{Client, Freshness};

use crate::cluster::{Cluster, Member, free_urls};

const DEADLINE: Duration = Duration::from_secs(60);
const KEYS: usize = 100;

/// Runs `knarr store`. Returns whether it succeeded, and its output.
fn store(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_knarr")).arg("store").args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

fn done(arguments: &[&str]) -> String {
    let (succeeded, text) = store(arguments);
    assert!(succeeded, "{arguments:?}: {text}");
    text
}

fn check_error(arguments: &[&str], message: &str) {
    let (succeeded, text) = store(arguments);
    assert!(!succeeded && text.contains(message), "{arguments:?}: {text}");
}

async fn write(client: &Client, key: &str, value: &str) -> i64 {
    let put =
        Put { key: key.to_owned().into(), value: Some(value.to_owned().into()), lease: Some(0), want_previous: false };
    let txn = Txn { compare: vec![], success: vec![Operation::Put(put)], failure: vec![] };
    let written = async {
        loop {
            match client.txn(txn.clone()).await {
                Ok(outcome) => return outcome.revision,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(DEADLINE, written).await.expect("a write is acknowledged")
}

async fn value(client: &Client, key: &str) -> Option<String> {
    let (found, _) = client.get(key.to_owned().into(), Freshness::Linearizable).await.unwrap();
    Some(String::from_utf8(found?.value().to_vec()).unwrap())
}

fn flip(file: &Path, at: usize) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[at] ^= 0x40;
    std::fs::write(file, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_is_saved_inspected_and_restored_and_damage_is_reported() {
    let mut cluster = Cluster::start(1);
    let client = cluster.client();
    let mut revision = 0;
    for number in 0..KEYS {
        revision = write(&client, &format!("k{number}"), &"v".repeat(500)).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (saved, restored) = (path("saved"), path("restored"));
    let url = cluster.members[0].url.clone();
    assert!(done(&["snapshot", "save", &saved, "--endpoints", &url]).starts_with("Snapshot saved at "));
    let output = done(&["snapshot", "status", &saved]);
    assert!(output.contains(&format!("revision {revision}, keys {KEYS}, ")), "{output}");

    let [clients, peers] = <[String; 2]>::try_from(free_urls(2)).unwrap();
    let members = format!("again={peers}");
    let own = ["--name=again", "--initial-advertise-peer-urls", &peers, "--initial-cluster", &members];
    let bump = ["--bump-revision=1000", "--mark-compacted"];
    let restore = [&["snapshot", "restore", &saved, "--data-dir", &restored][..], &own, &bump].concat();
    let output = done(&restore);
    assert!(output.starts_with(&format!("Restored {KEYS} keys at revision {} into", revision + 1000)), "{output}");
    check_error(&restore, "is not empty");
    let mut again = Member::new("again", Path::new(&restored), &clients, &peers, &members);
    again.start();
    let new = again.client();
    assert_eq!(write(&new, "k0", "new").await, revision + 1001, "no revision is given twice");
    assert_eq!(value(&new, "k1").await, Some("v".repeat(500)));
    let early = new.watch(mvcc::Span::key("k0"), revision).await;
    let compacted = match early {
        Err(error) => error,
        Ok(mut watch) => watch.next().await.map(drop).unwrap_err(),
    };
    assert!(format!("{compacted:?}").contains("Compacted"), "{compacted:?}");

    flip(Path::new(&saved), 3000);
    check_error(&["snapshot", "status", &saved], "is damaged");
    check_error(&["snapshot", "restore", &saved, "--data-dir", &path("other")], "is damaged");

    let data = cluster.members[0].data_dir().to_owned();
    let check = ["check", "--data-dir", data.to_str().unwrap()];
    check_error(&check, "stop the member first");
    cluster.members[0].kill();
    assert!(done(&check).ends_with("whole\n"));
    let segment = std::fs::read_dir(&data).unwrap().map(|file| file.unwrap().path());
    let segment = segment.filter(|file| file.file_name().unwrap().to_str().unwrap().ends_with(".log")).min().unwrap();
    flip(&segment, 5000);
    check_error(&check, "the log is damaged");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_urls_do_not_serve_keys() {
    let dir = tempfile::tempdir().unwrap();
    let [clients, peers, metrics] = <[String; 3]>::try_from(free_urls(3)).unwrap();
    let mut member = Member::new("m0", &dir.path().join("m0"), &clients, &peers, &format!("m0={peers}"));
    member.add(&format!("--listen-metrics-urls={metrics}"));
    member.start();
    write(&member.client(), "a", "1").await;
    let client = crate::cluster::client(vec![metrics.clone()]);
    let looked = client.get("a".into(), Freshness::Stale);
    let response = tokio::time::timeout(DEADLINE, looked).await.expect("an answer");
    assert!(response.is_err(), "{response:?}");
    let get = |path: &str| {
        use std::io::{Read, Write};
        let host = metrics.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    assert!(get("/health").contains(r#"{"health":"true""#));
    assert!(get("/metrics").contains("etcd_server_has_leader 1"));
    assert!(get("/version").starts_with("HTTP/1.1 404"));
}
