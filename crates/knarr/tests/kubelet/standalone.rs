//! A kubelet that has no API server runs the pods of its manifests.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use container::cgroup::Cgroup;
use image::{Name, Store};
use machinery::json;

use crate::cluster::*;

struct Alone {
    dir: tempfile::TempDir,
    kubelet: Child,
    cgroup: String,
}

fn start(dir: &Path, cgroup: &str, more: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_knarr"))
        .args(["kubelet", "--hostname-override", NODE, "--node-ip", "127.0.0.1", "--cgroup-parent", cgroup])
        .args(["--port", "0", "--healthz-port", "0", "--address", "127.0.0.1", "--cgroup-root", cgroup])
        .arg("--config")
        .arg(dir.join("kubelet.yaml"))
        .arg("--pod-manifest-path")
        .arg(dir.join("manifests"))
        .arg("--data-dir")
        .arg(dir)
        .arg("--root-dir")
        .arg(dir.join("kubelet"))
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

impl Alone {
    /// The log of the only container there may be.
    fn printed(&self) -> String {
        let below = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let logs = below(self.dir.path().join("logs")).flat_map(below).flat_map(below);
        logs.map(|log| fs::read_to_string(log).unwrap_or_default()).collect()
    }

    async fn wait(&self, what: &str, is: impl Fn(&Self) -> bool) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !is(self) {
            assert!(tokio::time::Instant::now() < deadline, "not {what}");
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.kubelet.kill();
        let _ = self.kubelet.wait();
        let cgroup = Cgroup::at(&self.cgroup);
        cgroup.kill();
        for _ in 0..100 {
            if cgroup.remove().is_ok() {
                break;
            }
            std::thread::yield_now();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_run_without_an_api_server_and_end_with_their_files() {
    if !rustix::process::geteuid().is_root() || !Path::new("/bin/busybox").exists() {
        eprintln!("skipped: containers need root and /bin/busybox (package busybox-static)");
        return;
    }
    let dir = tempfile::Builder::new().prefix("knarr-alone-").tempdir().unwrap();
    let store = Store::open(&dir.path().join("runtime/images")).unwrap();
    store.build(&Name::parse(IMAGE).unwrap(), &busybox()).await.unwrap();
    drop(store);
    fs::create_dir_all(dir.path().join("manifests")).unwrap();
    let config = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nevictionHard: {}\n";
    let config = format!("{config}podLogsDir: {}\n", dir.path().join("logs").display());
    fs::write(dir.path().join("kubelet.yaml"), config).unwrap();
    let cgroup = format!("/knarr-alone-{}", std::process::id());

    let refused = start(dir.path(), &cgroup, &[]).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("cannot use webhook authentication"), "{said}");

    let open = ["--authentication-token-webhook=false", "--authorization-mode", "AlwaysAllow", "--anonymous-auth=true"];
    let mut kubelet = start(dir.path(), &cgroup, &open);
    let mut said = BufReader::new(kubelet.stdout.take().unwrap());
    let mut errors = kubelet.stderr.take().unwrap();
    std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
    let alone = Alone { dir, kubelet, cgroup };
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.starts_with("ready: "), "{line:?}");

    let manifest = alone.dir.path().join("manifests/speaks.yaml");
    let mut speaks = pod("speaks", "echo alone; sleep 1000");
    speaks.get_mut("spec").unwrap().as_object_mut().unwrap().remove("nodeName");
    set(&mut speaks, "hostNetwork", true);
    fs::write(&manifest, json::to_string(&speaks)).unwrap();
    alone.wait("running", |alone| alone.printed().contains("F alone")).await;
    fs::remove_file(&manifest).unwrap();
    let left = |alone: &Alone, name: &str| fs::read_dir(alone.dir.path().join(name)).into_iter().flatten().count();
    alone.wait("gone", |alone| left(alone, "runtime/sandboxes") + left(alone, "kubelet/pods") == 0).await;
}
