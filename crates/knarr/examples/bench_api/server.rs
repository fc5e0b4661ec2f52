//! The API server under test.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use bytes::Bytes;
use client::config::Secret;
use client::config::{Config, Credential, Pem, Tls};
use client::{Client, Settings};

pub(super) const TOKEN: &str = "a-token-for-measuring";

pub(super) struct Server {
    process: Child,
    pub config: Config,
}

impl Server {
    /// Starts a server with an empty data directory.
    pub(super) fn start(program: &Path, dir: &Path) -> Result<Self> {
        std::fs::write(dir.join("tokens.csv"), format!("{TOKEN},admin,admin,\"system:masters\"\n"))?;
        let mut process = Command::new(program)
            .args(["kube-apiserver", "--bind-address", "127.0.0.1", "--secure-port", "0"])
            .args(["--authorization-mode", "Node,RBAC", "--disable-admission-plugins", "ServiceAccount"])
            .arg("--data-dir")
            .arg(dir.join("data"))
            .arg("--cert-dir")
            .arg(dir.join("certs"))
            .arg("--token-auth-file")
            .arg(dir.join("tokens.csv"))
            .stderr(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(process.stderr.take().context("its log is piped")?).lines();
        let line = lines.by_ref().map_while(Result::ok).find(|line| line.contains("address="));
        let line = line.context("the server exited")?;
        let address: String = line
            .split_once("address=")
            .map_or("", |(_, rest)| rest)
            .chars()
            .take_while(|letter| letter.is_ascii_digit() || ".:".contains(*letter))
            .collect();
        std::thread::spawn(move || lines.for_each(drop));
        let mut config = Config::new(format!("https://{address}").parse()?);
        let ca = std::fs::read(dir.join("certs/apiserver.crt"))?;
        config.tls = Tls { certificate_authority: Some(Pem::Inline(ca.into())), ..Tls::default() };
        config.credential = Credential::Token(Secret::new(TOKEN));
        Ok(Self { process, config })
    }

    /// Returns a client with a separate connection.
    pub(super) fn connect(&self) -> Result<Client> {
        Ok(Client::connect(&self.config, Settings { attempts_max: 1, ..Settings::default() })?)
    }

    /// Waits until the server is ready.
    pub(super) async fn ready(&self) -> Result<()> {
        let client = self.connect()?;
        loop {
            let response = client.raw(http::Request::get("/readyz").body(Bytes::new())?).await;
            if response.is_ok_and(|response| response.status().is_success()) {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    }

    /// Returns the resident memory of the server.
    pub(super) fn rss_mib(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("the process has exited")?;
        let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib / 1024.0)
    }

    /// Returns the CPU time that the server has used.
    pub(super) fn cpu_seconds(&self) -> Result<f64> {
        cpu_seconds(self.process.id())
    }
}

/// Returns the CPU time that a process has used.
pub(super) fn cpu_seconds(process: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields: Vec<&str> = stat.rsplit_once(')').context("a stat")?.1.split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    // USER_HZ is 100 on all supported architectures.
    Ok(ticks / 100.0)
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
