//! Container start latency of the built-in and of other OCI runtimes in one run, and the memory use of a shim.

#![expect(clippy::unwrap_used, reason = "benchmarks may panic")]
#![expect(dead_code, reason = "the benchmark uses a part of the test host")]

#[path = "../tests/common/leftovers.rs"]
mod leftovers;
#[path = "../tests/cri/machine.rs"]
mod machine;

use std::time::{Duration, Instant};

use node_api::cri::v1;

use machine::{Machine, machine_with, script};

const ROUNDS: usize = 30;

#[tokio::main]
async fn main() {
    let candidates = [("runc", "/usr/sbin/runc"), ("runc", "/usr/bin/runc"), ("crun", "/usr/bin/crun")];
    // crun rejects hosts with hybrid cgroups (v1 and v2 controllers mounted).
    let hybrid = std::path::Path::new("/sys/fs/cgroup/unified").exists();
    let mut found: Vec<(&str, String)> = candidates
        .iter()
        .filter(|(name, _)| !hybrid || *name != "crun")
        .filter(|(_, path)| std::path::Path::new(path).exists())
        .map(|(name, path)| (*name, format!("--runtime-handler={name}={path}")))
        .collect();
    found.dedup_by_key(|(name, _)| *name);
    let args: Vec<&str> = found.iter().map(|(_, arg)| arg.as_str()).collect();
    let mut m = machine_with(&args).await;
    let handlers: Vec<&str> = [""].into_iter().chain(found.iter().map(|(name, _)| *name)).collect();
    println!("{:<10} {:>14} {:>14} {:>14}", "runtime", "sandbox p50", "start p50", "start p95");
    for handler in handlers {
        let (mut sandboxes, mut starts) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let (sandbox, start) = one(&mut m, handler, round).await;
            sandboxes.push(sandbox);
            starts.push(start);
        }
        let name = if handler.is_empty() { "built-in" } else { handler };
        let show = |times: &mut Vec<Duration>, percent: usize| {
            times.sort_unstable();
            format!("{:.1} ms", times[times.len() * percent / 100].as_secs_f64() * 1000.0)
        };
        println!(
            "{name:<10} {:>14} {:>14} {:>14}",
            show(&mut sandboxes, 50),
            show(&mut starts, 50),
            show(&mut starts, 95)
        );
    }
    weigh(&mut m).await;
    m.finish().await;
}

/// Creates a sandbox, then creates and starts one container in it.
async fn one(m: &mut Machine, handler: &str, round: usize) -> (Duration, Duration) {
    let config = m.sandbox_config(&format!("bench{round}"));
    let start = Instant::now();
    let request = v1::RunPodSandboxRequest { config: Some(config), runtime_handler: handler.into() };
    let sandbox = m.runtime.run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id;
    let made = start.elapsed();
    let start = Instant::now();
    m.run(&sandbox, script("c", "sleep 1000")).await;
    let started = start.elapsed();
    m.runtime.remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id: sandbox }).await.unwrap();
    (made, started)
}

/// Prints the private memory of every process of a sandbox.
async fn weigh(m: &mut Machine) {
    let sandbox = m.sandbox("weigh").await;
    m.run(&sandbox, script("c", "sleep 1000")).await;
    let dir = m.path("runtime/sandboxes").join(&sandbox).display().to_string();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(&dir) {
            let comm = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            let table = std::fs::read_to_string(entry.path().join("smaps_rollup")).unwrap_or_default();
            let private = table.lines().filter(|line| line.starts_with("Private_"));
            let kib: u64 = private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum();
            println!("{:<16} {kib} KiB private", comm.trim());
        }
    }
}
