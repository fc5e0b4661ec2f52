//! A cluster of three store members as processes that are killed with the test.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use store::client::{Client, Remote, RemoteConfig};
use tempfile::TempDir;

/// Not 127.0.0.1: outgoing connections use that address, and one of them could take the port of a member that is down.
const HOST: &str = "127.0.0.2";
/// Bytes of a member's log that are printed when the test fails.
const LOG_TAIL: usize = 4096;

/// Members and their data directories.
pub(crate) struct Cluster {
    /// Members in the order of their names.
    pub members: Vec<Member>,
    /// Dropped after the members that write to it.
    _directory: TempDir,
}

/// One `knarr etcd` process.
pub(crate) struct Member {
    /// Client URL of the member.
    pub url: String,
    name: String,
    data: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    process: Option<Child>,
}

impl Cluster {
    /// Starts `size` members.
    pub(crate) fn start(size: usize) -> Self {
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

    /// Returns a client of all members.
    pub(crate) fn client(&self) -> Client {
        client(self.members.iter().map(|member| member.url.clone()).collect())
    }
}

impl Member {
    /// Returns a member that is not started. Its log is written beside the data directory.
    pub(crate) fn new(name: &str, data: &Path, client: &str, peer: &str, cluster: &str) -> Self {
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

    /// Adds a flag for the next start.
    pub(crate) fn add(&mut self, flag: &str) {
        self.arguments.push(flag.to_owned());
    }

    pub(crate) fn data_dir(&self) -> &Path {
        &self.data
    }

    /// Starts the member with its existing data.
    pub(crate) fn start(&mut self) {
        let log = File::options().create(true).append(true).open(&self.log).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_knarr"));
        command.arg("etcd").args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().expect("the binary starts"));
    }

    /// Kills the member with SIGKILL.
    pub(crate) fn kill(&mut self) {
        let mut process = self.process.take().expect("it runs");
        assert_eq!(process.try_wait().unwrap(), None, "{} ended by itself", self.name);
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Returns a client of this member only.
    pub(crate) fn client(&self) -> Client {
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

/// Returns a client of these members.
pub(crate) fn client(servers: Vec<String>) -> Client {
    Client::Remote(Box::new(Remote::new(&RemoteConfig { servers, ..RemoteConfig::default() }).unwrap()))
}

/// Returns URLs with free ports.
pub(crate) fn free_urls(count: usize) -> Vec<String> {
    // All ports are held until the last one is known, so that none is returned twice.
    let listeners: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind((HOST, 0)).unwrap()).collect();
    listeners.iter().map(|listener| format!("http://{}", listener.local_addr().unwrap())).collect()
}
