//! The cluster under test: `knarr up` in a separate network namespace, optionally with containerd for comparison.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use client::config::Kubeconfig;
use client::{Client, Settings};

/// Environment variable of the process inside the namespace.
const IN_NAMESPACE: &str = "KNARR_BENCH_INSIDE";

/// Debian's directory of CNI plugins, for containerd's pods.
const PLUGINS: &str = "/usr/lib/cni";
/// CNI configuration of a bridge network, comparable to the built-in network.
const BRIDGE: &str = r#"{"cniVersion": "1.0.0", "name": "bench", "plugins": [{"type": "bridge", "bridge": "bench0",
"isGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.99.0.0/16"}]],
"dataDir": "DATA"}}]}"#;

/// Container runtime of the node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    /// The built-in runtime.
    BuiltIn,
    /// Debian's containerd and runc.
    Containerd,
}

impl Engine {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::Containerd => "containerd and runc",
        }
    }

    /// Returns a part of the command line of the runtime's shim.
    pub(crate) const fn shim(self) -> &'static str {
        match self {
            Self::BuiltIn => "shim\0",
            Self::Containerd => "containerd-shim-runc-v2\0",
        }
    }
}

/// A cluster of one node that is stopped on drop.
pub(crate) struct Cluster {
    dir: tempfile::TempDir,
    program: PathBuf,
    daemon: Option<Child>,
}

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
    let prepared = [
        "link set lo up",
        "link add uplink type veth peer name wire",
        "link set wire up",
        "address add 198.51.100.2/24 dev uplink",
        "link set uplink up",
        "route add default via 198.51.100.1",
    ];
    let outcome = prepared.iter().try_for_each(|line| run(&format!("-n {name} {line}"))).and_then(|()| {
        let this = std::env::current_exe()?;
        let mut again = Command::new("nsenter");
        again.arg(format!("--net=/run/netns/{name}")).arg(this).env(IN_NAMESPACE, "1");
        ensure!(again.status()?.success(), "the measurement failed");
        Ok(())
    });
    run(&format!("netns delete {name}"))?;
    outcome
}

impl Cluster {
    /// Starts the cluster. Returns `None` if the runtime is not installed.
    pub(crate) fn start(engine: Engine) -> Result<Option<Self>> {
        let this = std::env::current_exe()?;
        let program = this.ancestors().nth(2).context("this executable is not in a target directory")?.join("knarr");
        let dir = tempfile::tempdir()?;
        let mut cluster = Self { dir, program, daemon: None };
        let data = cluster.data();
        let mut up = Command::new(&cluster.program);
        up.args([
            "up",
            "-d",
            "--node-name",
            "bench",
            "--kubelet-arg",
            "eviction-hard=nodefs.available<1Mi",
            "--data-dir",
        ]);
        up.arg(&data);
        if engine == Engine::Containerd {
            if !["/usr/bin/containerd", PLUGINS].iter().all(|path| Path::new(path).exists()) {
                return Ok(None);
            }
            cluster.start_containerd()?;
            let endpoint = format!("container-runtime-endpoint=unix://{}", cluster.at("containerd.sock").display());
            up.args(["--kubelet-arg", &endpoint]);
        }
        let output = up.output().context("failed to start knarr")?;
        ensure!(output.status.success(), "knarr up: {}", String::from_utf8_lossy(&output.stderr));
        Ok(Some(cluster))
    }

    pub(crate) fn client(&self) -> Result<Client> {
        let config = Kubeconfig::load(&[self.data().join("admin.kubeconfig")])?.config(None)?;
        Ok(Client::connect(&config, Settings::default())?)
    }

    /// Returns substrings, one of which is in the command line of every process of the cluster.
    pub(crate) fn parts(&self) -> Vec<String> {
        vec![self.dir.path().display().to_string()]
    }

    fn data(&self) -> PathBuf {
        self.at("data")
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn start_containerd(&mut self) -> Result<()> {
        let config = format!(
            "version = 2\nroot = {:?}\nstate = {:?}\noom_score = 0\n[grpc]\n  address = {:?}\n\
             [plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"knarr.local/pause:latest\"\n  \
             restrict_oom_score_adj = true\n  stream_server_port = \"0\"\n  \
             [plugins.\"io.containerd.grpc.v1.cri\".cni]\n    bin_dir = {PLUGINS:?}\n    conf_dir = {:?}\n",
            self.at("root"),
            self.at("state"),
            self.at("containerd.sock"),
            self.at("net.d")
        );
        fs::create_dir(self.at("net.d"))?;
        let bridge = BRIDGE.replace("DATA", &self.at("addresses").display().to_string());
        fs::write(self.at("net.d").join("10-bench.conflist"), bridge)?;
        fs::write(self.at("containerd.toml"), config)?;
        let mut daemon = Command::new("/usr/bin/containerd");
        let mut daemon = daemon.arg("--config").arg(self.at("containerd.toml")).stderr(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(daemon.stderr.take().context("its log is piped")?).lines();
        let booted = lines.by_ref().map_while(Result::ok).any(|line| line.contains("containerd successfully booted"));
        std::thread::spawn(move || lines.for_each(drop));
        self.daemon = Some(daemon);
        ensure!(booted, "containerd did not start");
        let archive = self.at("pause.tar");
        let store = self.at("store");
        let mut export = Command::new(&self.program);
        export.args(["image", "export", "knarr.local/pause", "--data-dir"]).arg(store).arg("-o").arg(&archive);
        ensure!(export.status()?.success(), "failed to export the image");
        let mut import = Command::new("ctr");
        import.arg("--address").arg(self.at("containerd.sock")).args(["--namespace", "k8s.io", "images", "import"]);
        ensure!(import.arg(archive).stdout(Stdio::null()).status()?.success(), "containerd rejected the image");
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = Command::new(&self.program).args(["down", "--purge", "--data-dir"]).arg(self.data()).output();
        if let Some(daemon) = &mut self.daemon {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let own = self.dir.path().display().to_string();
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        for mount_point in
            table.lines().filter_map(|line| line.split(' ').nth(4)).filter(|mount_point| mount_point.starts_with(&own))
        {
            let _ = rustix::mount::unmount(mount_point, rustix::mount::UnmountFlags::DETACH);
        }
    }
}
