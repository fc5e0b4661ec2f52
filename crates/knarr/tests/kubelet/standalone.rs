//! Standalone kubelet: static pods without an API server.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use apimachinery::json;

use crate::cluster::*;

struct Alone {
    _kubelet: Process,
    machine: Machine,
}

fn kubelet(machine: &Machine, more: &[&str]) -> Command {
    let mut kubelet = machine.kubelet();
    kubelet.args(["--address", "127.0.0.1", "--pod-manifest-path"]).arg(machine.path("manifests")).args(more);
    kubelet
}

impl Alone {
    /// Returns the log of the only container.
    fn printed(&self) -> String {
        let below = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let logs = below(self.machine.path("logs")).flat_map(below).flat_map(below);
        logs.map(|log| fs::read_to_string(log).unwrap_or_default()).collect()
    }

    async fn wait(&self, what: &str, is: impl Fn(&Self) -> bool) {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        while !is(self) {
            assert!(tokio::time::Instant::now() < deadline, "not {what}\n{}", self.machine.log.lock().unwrap());
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn static_pods_run_without_an_api_server_until_their_files_are_removed() {
    let machine = Machine::new().await;
    fs::create_dir_all(machine.path("manifests")).unwrap();
    machine.configure("");
    let output = kubelet(&machine, &[]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && stderr.contains("cannot use webhook authentication"), "{stderr}");

    let open = ["--authentication-token-webhook=false", "--authorization-mode", "AlwaysAllow", "--anonymous-auth=true"];
    let (_kubelet, _) = machine.start(kubelet(&machine, &open));
    let alone = Alone { _kubelet, machine };
    let manifest = alone.machine.path("manifests/speaks.yaml");
    let mut speaks = pod("speaks", "echo alone; sleep 1000");
    speaks.get_mut("spec").unwrap().as_object_mut().unwrap().remove("nodeName");
    set(&mut speaks, "hostNetwork", true);
    fs::write(&manifest, json::to_string(&speaks)).unwrap();
    alone.wait("running", |alone| alone.printed().contains("F alone")).await;
    fs::remove_file(&manifest).unwrap();
    let left = |alone: &Alone, name: &str| fs::read_dir(alone.machine.path(name)).into_iter().flatten().count();
    alone.wait("gone", |alone| left(alone, "runtime/sandboxes") + left(alone, "kubelet/pods") == 0).await;
}
