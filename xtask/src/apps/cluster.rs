//! A cluster of three nodes in a separate network namespace.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

/// Directory of a run below `/var/tmp`: databases need space that a tmpfs may not have.
const DIR_PREFIX: &str = "/var/tmp/knarr-apps-";

/// Output and outcome of a script.
pub(super) struct ScriptResult {
    pub is_success: bool,
    pub output: String,
}

/// A running cluster. [`Cluster::stop`] checks what it leaves behind; dropping it removes it without a check.
pub(super) struct Cluster {
    namespace: String,
    dir: PathBuf,
    program: PathBuf,
}

impl Cluster {
    /// Starts three nodes and builds the image `apps.local/debian:1` on all of them.
    pub(super) fn start(program: &Path, image_root: &Path) -> anyhow::Result<Self> {
        let id = std::process::id();
        let program = program.canonicalize().with_context(|| format!("no program at {}", program.display()))?;
        let cluster =
            Self { namespace: format!("knarr-apps-{id}"), dir: PathBuf::from(format!("{DIR_PREFIX}{id}")), program };
        fs::create_dir(&cluster.dir).with_context(|| format!("cannot create {}", cluster.dir.display()))?;
        fs::create_dir(cluster.scripts())?;
        let namespace = &cluster.namespace;
        ensure_success(Command::new("ip").args(["netns", "add", namespace]))?;
        cluster.require(
            "ip link set lo up
             ip link add uplink type veth peer name wire
             ip link set wire up
             ip address add 198.51.100.2/24 dev uplink
             ip link set uplink up
             ip route add default via 198.51.100.1",
            30,
        )?;
        cluster.require("knarr up -d --nodes 3 --data-dir \"$DATA\"", 180)?;
        let image = format!(
            "knarr image build apps.local/debian:1 '{}' --entrypoint /bin/sh --data-dir \"$DATA\"",
            image_root.display()
        );
        cluster.require(&image, 300)?;
        Ok(cluster)
    }

    pub(super) fn scripts(&self) -> PathBuf {
        self.dir.join("scripts")
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Runs a script with `sh -eu` in the cluster's network namespace and kills it after the limit.
    ///
    /// `knarr` and `kubectl` are in `PATH`, `DATA` is the data directory, and `KUBECONFIG` is the administrator's.
    pub(super) fn run_script(&self, script: &str, limit_seconds: u64) -> anyhow::Result<ScriptResult> {
        let log = self.dir.join("output");
        let output = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let mut path = self.program.parent().unwrap_or(Path::new("/")).as_os_str().to_owned();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let status = Command::new("timeout")
            .args(["--kill-after=5", &limit_seconds.to_string()])
            .args(["nsenter", &format!("--net=/run/netns/{}", self.namespace), "sh", "-euc", script])
            .env("PATH", path)
            .env("DATA", self.data())
            .env("KUBECONFIG", self.data().join("admin.kubeconfig"))
            .current_dir(self.scripts())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .status()
            .context("cannot start a script")?;
        let output = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        Ok(ScriptResult { is_success: status.success(), output })
    }

    fn require(&self, script: &str, limit_seconds: u64) -> anyhow::Result<()> {
        let result = self.run_script(script, limit_seconds)?;
        ensure!(result.is_success, "failed: {script}\n{}", result.output);
        Ok(())
    }

    /// Removes the cluster and fails if a mount, process, link or network namespace of it remains.
    pub(super) fn stop(self) -> anyhow::Result<()> {
        self.require("knarr down --purge --data-dir \"$DATA\"", 180)?;
        let data = self.data().display().to_string();
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let mut left: Vec<String> = mounts.lines().filter(|line| line.contains(&data)).map(str::to_owned).collect();
        left.extend(processes_naming(&data));
        let links = self.run_script("ip -o link | grep -vE ': (lo|uplink|wire)@?' || true; ip netns list-id", 10)?;
        left.extend(links.output.lines().map(str::to_owned));
        ensure!(left.is_empty(), "the cluster left behind:\n{}", left.join("\n"));
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.data().exists() {
            self.require("knarr down --now --purge --data-dir \"$DATA\"", 180).ok();
        }
        Command::new("ip").args(["netns", "delete", &self.namespace]).status().ok();
        fs::remove_dir_all(&self.dir).ok();
    }
}

/// Returns the command lines of processes that contain `text`.
fn processes_naming(text: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(text))
        .collect()
}

fn ensure_success(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
