//! Benchmark of the ingress proxy beside nginx and haproxy, each with one worker on a CPU of its own.
//!
//! ```text
//! CPU 1: clients (this process), backend        CPU 0: the proxy that is measured
//! ```
//!
//! Everything runs in a network namespace that ends with the processes. All proxies forward to the same backend, and
//! take turns in each round. Arguments select cases by their names, such as `http/64/1`.

mod backend;
mod load;
mod peers;
mod subject;
mod usage;

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use load::Measured;
use peers::{Peer, Stand};
use usage::Usage;

// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: sys::Allocator = sys::Allocator;

const ROUNDS: usize = 3;
const WARM_UP: Duration = Duration::from_millis(500);
const MEASURE: Duration = Duration::from_secs(3);

/// One row of the table of cases.
#[derive(Clone, Copy)]
struct Case {
    tls: bool,
    connections: usize,
    ingresses: usize,
}

/// The result of one proxy in one round.
struct Sample {
    measured: Measured,
    cpu_micros: f64,
    busy: f64,
    memory_bytes: u64,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["backend", port] => backend::serve(port.parse()?),
        ["proxy", dir, ingresses, backend] => subject::serve(dir.as_ref(), ingresses.parse()?, backend.parse()?),
        ["inside", cases @ ..] => measure(cases),
        cases => isolate(cases),
    }
}

/// Runs this program again in a network namespace of its own, on CPU 1.
fn isolate(cases: &[&str]) -> Result<()> {
    ensure!(std::thread::available_parallelism()?.get() >= 2, "the benchmark needs two CPUs");
    let this = std::env::current_exe().context("failed to find the path of this executable")?;
    let script = "ip link set lo up && exec taskset -c 1 \"$0\" inside \"$@\"";
    let failed = Command::new("unshare").args(["--net", "sh", "-c", script]).arg(this).args(cases).exec();
    bail!("failed to start unshare, which needs root: {failed}")
}

fn measure(selected: &[&str]) -> Result<()> {
    println!("| case | proxy | requests/s | p50 | p99 | CPU per request | CPU | memory |");
    println!("|---|---|---|---|---|---|---|---|");
    for tls in [false, true] {
        for ingresses in [1, 1000] {
            let cases = [64, 1000].map(|connections| Case { tls, connections, ingresses });
            let mut cases = cases.into_iter().filter(|case| selected.is_empty() || selected.contains(&&*case.name()));
            if let Some(first) = cases.next() {
                let stand = Stand::start(ingresses)?;
                [first].into_iter().chain(cases).try_for_each(|case| compare(&stand, case))?;
            }
        }
    }
    Ok(())
}

/// Measures all proxies in turn, and prints the median of the rounds.
fn compare(stand: &Stand, case: Case) -> Result<()> {
    let mut samples: Vec<Vec<Sample>> = stand.peers.iter().map(|_| Vec::new()).collect();
    for round in 0..ROUNDS {
        for turn in 0..stand.peers.len() {
            let index = (round + turn) % stand.peers.len();
            samples[index].push(sample(stand, &stand.peers[index], case)?);
        }
    }
    for (peer, samples) in stand.peers.iter().zip(&samples) {
        let of = |value: fn(&Sample) -> f64| median(samples.iter().map(value).collect());
        println!(
            "| {} | {} | {:.0} | {:.2} ms | {:.2} ms | {:.1} us | {:.0} % | {:.1} MB |",
            case.name(),
            peer.name,
            of(|sample| sample.measured.requests_per_second),
            of(|sample| sample.measured.p50.as_secs_f64() * 1e3),
            of(|sample| sample.measured.p99.as_secs_f64() * 1e3),
            of(|sample| sample.cpu_micros),
            of(|sample| sample.busy * 100.0),
            of(|sample| sample.memory_bytes as f64 / 1e6),
        );
    }
    Ok(())
}

fn sample(stand: &Stand, peer: &Peer, case: Case) -> Result<Sample> {
    let target = stand.target(peer, case.tls)?;
    load::run(&target, case.connections, WARM_UP).with_context(|| format!("{} failed", peer.name))?;
    let before = Usage::of(peer.process.id())?;
    let measured = load::run(&target, case.connections, MEASURE).with_context(|| format!("{} failed", peer.name))?;
    let after = Usage::of(peer.process.id())?;
    let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
    Ok(Sample {
        cpu_micros: cpu * 1e6 / measured.requests as f64,
        busy: cpu / measured.elapsed.as_secs_f64(),
        memory_bytes: after.memory_bytes,
        measured,
    })
}

impl Case {
    /// Returns `SCHEME/CONNECTIONS/INGRESSES`.
    fn name(self) -> String {
        format!("{}/{}/{}", if self.tls { "https" } else { "http" }, self.connections, self.ingresses)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
