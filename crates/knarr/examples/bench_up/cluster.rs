//! The cluster under test: `knarr up` in a separate network namespace.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use client::config::Kubeconfig;
use client::{Client, Settings};
use tokio::net::UdpSocket;

use crate::process::Process;

/// Environment variable of the process inside the namespace.
const IN_NAMESPACE: &str = "KNARR_BENCH_INSIDE";
/// Address of the host in the namespace.
const ADDRESS: &str = "198.51.100.2";
const DNS_PORT: u16 = 10053;
/// Timeout of a DNS query before it is repeated.
const DNS_TIMEOUT: Duration = Duration::from_millis(50);
/// DNS query for the address of kubernetes.default.svc.cluster.local.
const QUESTION: &[u8] =
    b"\x4b\x4e\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x0akubernetes\x07default\x03svc\x07cluster\x05local\x00\x00\x01\x00\x01";

pub(crate) fn is_in_namespace() -> bool {
    std::env::var_os(IN_NAMESPACE).is_some()
}

/// Runs this binary again in a new network namespace, so that the cluster's rules and links do not affect the host.
pub(crate) fn run_in_namespace() -> Result<()> {
    let name = format!("knarr-bench-{}", std::process::id());
    let run = |line: &str| {
        let status = Command::new("ip").args(line.split(' ')).status().context("failed to start ip")?;
        ensure!(status.success(), "ip {line} failed");
        Ok(())
    };
    run(&format!("netns add {name}"))?;
    let address = format!("address add {ADDRESS}/24 dev uplink");
    let prepared = [
        "link set lo up",
        "link add uplink type veth peer name wire",
        "link set wire up",
        &address,
        "link set uplink up",
        "route add default via 198.51.100.1",
    ];
    let outcome = prepared.iter().try_for_each(|line| run(&format!("-n {name} {line}"))).and_then(|()| {
        let mut again = Command::new("nsenter");
        again.arg(format!("--net=/run/netns/{name}")).arg(std::env::current_exe()?).env(IN_NAMESPACE, "1");
        ensure!(again.status()?.success(), "the measurement failed");
        Ok(())
    });
    run(&format!("netns delete {name}"))?;
    outcome
}

/// A cluster of one node and the time of its start command. It is stopped on drop.
pub(crate) struct Cluster {
    dir: tempfile::TempDir,
    program: PathBuf,
    child: Child,
    started_at: Instant,
}

impl Cluster {
    /// Starts the command without waiting.
    pub(crate) fn start() -> Result<Self> {
        let this = std::env::current_exe()?;
        let program = this.ancestors().nth(2).context("this executable is not in a target directory")?.join("knarr");
        let dir = tempfile::tempdir()?;
        let mut up = Command::new(&program);
        // Disk pressure is disabled: the host's disk may be nearly full.
        up.args(["up", "--node-name", "bench", "--kubelet-arg", "eviction-hard=nodefs.available<1Mi", "--data-dir"]);
        up.arg(dir.path().join("data")).stdout(Stdio::null());
        let started_at = Instant::now();
        let child = up.spawn().context("failed to start knarr")?;
        Ok(Self { dir, program, child, started_at })
    }

    pub(crate) const fn started_at(&self) -> Instant {
        self.started_at
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    pub(crate) fn process(&self) -> Process {
        Process(self.child.id())
    }

    /// Returns a client. Fails until the kubeconfig exists.
    pub(crate) fn client(&self) -> Result<Client> {
        let config = Kubeconfig::load(&[self.dir.path().join("data/admin.kubeconfig")])?.config(None)?;
        Ok(Client::connect(&config, Settings { attempts_max: 1, ..Settings::default() })?)
    }

    /// Whether the DNS server resolves the API server's Service.
    pub(crate) async fn is_dns_ready(&self) -> bool {
        tokio::time::timeout(DNS_TIMEOUT, query_dns()).await.is_ok_and(|resolved| resolved.unwrap_or(false))
    }
}

async fn query_dns() -> Result<bool> {
    let server: SocketAddr = format!("{ADDRESS}:{DNS_PORT}").parse()?;
    let socket = UdpSocket::bind("0.0.0.0:0").await?;
    socket.connect(server).await?;
    socket.send(QUESTION).await?;
    let mut response = [0; 512];
    let length = socket.recv(&mut response).await?;
    // No error, and at least one record.
    Ok(length > 12 && response[3] & 0xf == 0 && response[7] > 0)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let data = self.dir.path().join("data");
        let _ = Command::new(&self.program).args(["down", "--purge", "--data-dir"]).arg(data).output();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
