//! Three members as processes, which end with the test whatever becomes of it.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use store::client::{Client, Remote, RemoteConfig};
use tempfile::TempDir;

/// Not 127.0.0.1: connections that go out bear that address, and one of them could hold the port of a member that is down.
const HOST: &str = "127.0.0.2";
/// Of a member's log, shown when the test fails.
const LOG_TAIL: usize = 4096;

/// Members, and where they keep everything.
pub struct Cluster {
    /// In the order of their names.
    pub members: Vec<Member>,
    /// Dropped after the members that write to it.
    _directory: TempDir,
}

/// One `knarr etcd`.
pub struct Member {
    /// Where clients reach it.
    pub url: String,
    name: String,
    data: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    process: Option<Child>,
}

impl Cluster {
    /// Starts that many members.
    pub fn start(size: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let urls = free_urls(size * 2);
        let (peers, clients) = urls.split_at(size);
        let all: Vec<String> = peers.iter().enumerate().map(|(index, url)| format!("m{index}={url}")).collect();
        let member = |index: usize| {
            let name = format!("m{index}");
            let data = directory.path().join(&name);
            Member::new(&name, &data, &clients[index], &peers[index], &all.join(","))
        };
        let mut members: Vec<Member> = (0..size).map(member).collect();
        members.iter_mut().for_each(Member::start);
        Self { members, _directory: directory }
    }

    /// A client of all members.
    pub fn client(&self) -> Client {
        client(self.members.iter().map(|member| member.url.clone()).collect())
    }
}

impl Member {
    /// One that keeps everything in a directory, beside which it writes what it has to say.
    pub fn new(name: &str, data: &Path, client: &str, peer: &str, cluster: &str) -> Self {
        let flags = [
            ("name", name),
            ("data-dir", data.to_str().unwrap()),
            ("listen-client-urls", client),
            ("listen-peer-urls", peer),
            ("initial-advertise-peer-urls", peer),
            ("initial-cluster", cluster),
        ];
        let arguments = flags.map(|(flag, value)| format!("--{flag}={value}")).to_vec();
        let (name, url, log) = (name.to_owned(), client.to_owned(), data.with_added_extension("log"));
        Self { url, name, data: data.to_owned(), arguments, log, process: None }
    }

    /// Starts with one more flag.
    pub fn add(&mut self, flag: &str) {
        self.arguments.push(flag.to_owned());
    }

    /// Where it keeps everything.
    pub fn data_dir(&self) -> &Path {
        &self.data
    }

    /// Starts it, with what it has on disk.
    pub fn start(&mut self) {
        let log = File::options().create(true).append(true).open(&self.log).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_knarr"));
        command.arg("etcd").args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().expect("the binary starts"));
    }

    /// Ends it with SIGKILL.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("it runs");
        assert_eq!(process.try_wait().unwrap(), None, "{} ended by itself", self.name);
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// A client of this member alone.
    pub fn client(&self) -> Client {
        client(vec![self.url.clone()])
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        if std::thread::panicking() {
            let log = std::fs::read(&self.log).unwrap_or_default();
            let tail = &log[log.len().saturating_sub(LOG_TAIL)..];
            eprintln!("log of {}:\n{}", self.name, String::from_utf8_lossy(tail));
        }
    }
}

/// A client of these members.
pub fn client(servers: Vec<String>) -> Client {
    Client::Remote(Box::new(Remote::new(&RemoteConfig { servers, ..RemoteConfig::default() }).unwrap()))
}

/// Where nobody listens.
pub fn free_urls(count: usize) -> Vec<String> {
    // All are held until the last is known, so that none is given twice.
    let held: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind((HOST, 0)).unwrap()).collect();
    held.iter().map(|listener| format!("http://{}", listener.local_addr().unwrap())).collect()
}
