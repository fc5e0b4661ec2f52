//! A full disk: the real binary on a small tmpfs in a private mount namespace.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use mvcc::{Operation, Put, Range, Span, Txn};
use store::client::{Client, ClientError, Freshness, Remote, RemoteConfig};
use tempfile::TempDir;

const DEADLINE: Duration = Duration::from_secs(60);
/// Two segments of 64 MiB do not fit beside the filler file; one and its reserve of 16 MiB do.
const DISK: &str = "220m";
const FILLER_BYTES: &str = "110M";
const VALUE_BYTES: usize = 1 << 20;
/// More writes than a segment holds.
const WRITES_MAX: usize = 80;

struct Full {
    process: Child,
    url: String,
    disk: PathBuf,
    _directory: TempDir,
}

impl Full {
    /// Starts a member on a small disk.
    fn start() -> Self {
        test_requirements::root();
        let directory = tempfile::tempdir().unwrap();
        let disk = directory.path().join("disk");
        std::fs::create_dir(&disk).unwrap();
        let [client, peer] = <[String; 2]>::try_from(super::cluster::free_urls(2)).unwrap();
        let mount = format!(
            r#"mount -t tmpfs -o size={DISK} tmpfs "$0" && head -c {FILLER_BYTES} /dev/zero > "$0/filler" && exec "$@""#
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &mount]).arg(&disk).arg(env!("CARGO_BIN_EXE_knarr")).arg("etcd");
        command.arg("--name=m0").arg(format!("--data-dir={}", disk.join("data").display()));
        command.arg(format!("--listen-client-urls={client}")).arg(format!("--listen-peer-urls={peer}"));
        command.arg(format!("--initial-advertise-peer-urls={peer}")).arg(format!("--initial-cluster=m0={peer}"));
        command.arg("--max-request-bytes=4194304").stdin(Stdio::null()).stdout(Stdio::null());
        let process = command.spawn().expect("util-linux is installed");
        Self { process, url: client, disk, _directory: directory }
    }

    /// Returns the path of the disk through the process's root.
    fn disk_path(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.process.id()));
        root.join(self.disk.strip_prefix("/").unwrap())
    }

    fn client(&self) -> Client {
        let config = RemoteConfig { servers: vec![self.url.clone()], ..RemoteConfig::default() };
        Client::Remote(Box::new(Remote::new(&config).unwrap()))
    }

    fn etcdctl(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").env("ETCDCTL_ENDPOINTS", &self.url).args(arguments);
        command.output().expect("the Debian package etcd-client is installed")
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn put(key: &str, bytes: usize) -> Txn {
    let put =
        Put { key: key.to_owned().into(), value: Some(vec![b'v'; bytes].into()), lease: Some(0), want_previous: false };
    Txn { success: vec![Operation::Put(put)], ..Txn::default() }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

async fn until<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let tried = async {
        loop {
            if let Some(done) = attempt().await {
                return done;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, tried).await.unwrap_or_else(|_| panic!("not in time: {what}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_makes_the_store_read_only_and_loses_no_writes() {
    let full = Full::start();
    let client = full.client();
    until("the member answers", async || client.revision().await.ok()).await;
    let mut written = 0;
    let rejected = loop {
        assert!(written < WRITES_MAX, "the disk never filled up");
        match client.txn(put(&format!("k/{written:03}"), VALUE_BYTES)).await {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    let full_text = "etcdserver: mvcc: database space exceeded";
    let is_full = matches!(&rejected, ClientError::Rejected(mvcc::Error::NoSpace)) || rejected.to_string() == full_text;
    assert!(is_full, "after {written} writes: {rejected}");
    until("the alarm is raised", async || text(&full.etcdctl(&["alarm", "list"])).contains("NOSPACE").then_some(()))
        .await;
    let rejected = full.etcdctl(&["put", "k/more", "v"]);
    assert!(text(&rejected).contains(full_text), "{}", text(&rejected));
    let reply = client.range(Range::of(Span::prefix("k/")), Freshness::Linearizable).await.expect("reads succeed");
    assert_eq!(reply.records.len(), written, "exactly the acknowledged writes exist");
    let deleted = full.etcdctl(&["del", "k/000"]);
    assert!(deleted.status.success(), "what makes room is done: {}", text(&deleted));

    free_space(&full.disk_path());
    until("the alarm is lowered", async || text(&full.etcdctl(&["alarm", "list"])).trim().is_empty().then_some(()))
        .await;
    client.txn(put("k/more", VALUE_BYTES)).await.expect("writes succeed");
    let reply = client.range(Range::of(Span::prefix("k/")), Freshness::Linearizable).await.unwrap();
    assert_eq!(reply.records.len(), written, "one deleted, one added");
    let disarmed = full.etcdctl(&["alarm", "disarm"]);
    assert!(disarmed.status.success(), "{}", text(&disarmed));
}

fn free_space(disk: &Path) {
    std::fs::remove_file(disk.join("filler")).unwrap();
}
