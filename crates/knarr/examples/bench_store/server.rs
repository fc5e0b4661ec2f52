//! A server process that is killed with this one.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::load;

const MIB: f64 = (1 << 20) as f64;

/// A new single-member cluster.
pub(crate) struct Server {
    url: String,
    command: Vec<String>,
    data: PathBuf,
    process: Child,
}

impl Server {
    /// Starts `command` with etcd's flags and its own directory.
    pub(crate) fn start(name: &str, command: &[&str], dir: &Path) -> Result<Self> {
        let listeners = [std::net::TcpListener::bind("127.0.0.2:0")?, std::net::TcpListener::bind("127.0.0.2:0")?];
        let urls = [&listeners[0], &listeners[1]]
            .map(|listeners| listeners.local_addr().map(|address| format!("http://{address}")));
        drop(listeners);
        let [url, peer] = urls;
        let (url, peer) = (url?, peer?);
        let data = dir.join(name);
        let flags = [
            ("name", name),
            ("data-dir", data.to_str().context("a path that is text")?),
            ("listen-client-urls", &url),
            ("advertise-client-urls", &url),
            ("listen-peer-urls", &peer),
            ("initial-advertise-peer-urls", &peer),
            ("initial-cluster", &format!("{name}={peer}")),
            ("log-level", "error"),
            ("quota-backend-bytes", "8589934592"),
        ];
        let mut command: Vec<String> = command.iter().copied().map(str::to_owned).collect();
        command.extend(flags.map(|(flag, value)| format!("--{flag}={value}")));
        let process = spawn(&command)?;
        Ok(Self { url, command, data, process })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Kills the server and starts it again. Returns the time until it answers a linearizable read.
    pub(crate) async fn reopen(&mut self) -> Result<Duration> {
        self.process.kill()?;
        self.process.wait()?;
        let began = Instant::now();
        self.process = spawn(&self.command)?;
        load::wait_until_ready(&self.url).await?;
        Ok(began.elapsed())
    }

    /// Returns the resident memory.
    pub(crate) fn rss_mib(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("the process has exited")?;
        let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib / 1024.0)
    }

    /// Returns the total length of its files.
    pub(crate) fn disk_mib(&self) -> Result<f64> {
        let bytes = crate::disk_bytes(&self.data)?;
        ensure!(bytes > 0, "nothing was written to {}", self.data.display());
        #[expect(clippy::cast_precision_loss, reason = "printed for users, precision is not needed")]
        Ok(bytes as f64 / MIB)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(command: &[String]) -> Result<Child> {
    let (program, arguments) = command.split_first().context("a command")?;
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("failed to start {program}"))
}
