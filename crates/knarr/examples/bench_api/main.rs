//! Benchmark of `knarr kube-apiserver` over TLS: `cargo xtask bench api`.

mod load;
mod server;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use load::{Load, Measurement};
use server::Server;

/// Pods in the measured list, the number of upstream's figure.
const PODS: usize = 7200;
/// Duration of one measurement.
const CELL: Duration = Duration::from_secs(3);
/// Duration for which an idle server is observed.
const IDLE: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> Result<()> {
    let this = std::env::current_exe().context("failed to find the path of this executable")?;
    let examples = this.parent().context("this executable is not in a directory")?;
    let program = examples.parent().context("this executable is not in a target directory")?.join("knarr");
    let dir = tempfile::tempdir_in(examples)?;
    let start = Instant::now();
    let server = Server::start(&program, dir.path())?;
    server.ready().await?;
    print_row("from start to ready, s", start.elapsed().as_secs_f64());
    tokio::time::sleep(Duration::from_secs(1)).await;
    print_row("memory (RSS) a second later, MiB", server.rss_mib()?);
    let before = server.cpu_seconds()?;
    tokio::time::sleep(IDLE).await;
    print_row("memory (RSS) idle, MiB", server.rss_mib()?);
    print_row("CPU idle, % of a core", (server.cpu_seconds()? - before) / IDLE.as_secs_f64() * 100.0);
    for (load, connections) in
        [(Load::Create, 1), (Load::Create, 64), (Load::Get, 1), (Load::Get, 64), (Load::Patch, 1), (Load::Patch, 64)]
    {
        let before = server.cpu_seconds()?;
        let measured = load::run(&server, load, connections, CELL).await?;
        // The clients run on the same host: the server's CPU time varies less than its throughput.
        let each = (server.cpu_seconds()? - before) / (measured.per_second * CELL.as_secs_f64());
        row(load.name(), connections, &measured);
        print_row(&format!("CPU time of the server for each of {}, µs", load.name()), each * 1e6);
    }
    load::fill(&server, PODS).await?;
    let (bytes, time) = load::list(&server).await?;
    #[expect(clippy::cast_precision_loss, reason = "printed for users, precision is not needed")]
    let megabytes = bytes as f64 / 1e6;
    print_row(&format!("list of {PODS} pods ({megabytes:.0} MB), s"), time.as_secs_f64());
    for watchers in [1, 100, 1000] {
        row("a change until all watchers have it", watchers, &load::fan_out(&server, watchers, CELL).await?);
    }
    print_row("memory (RSS) at the end, MiB", server.rss_mib()?);
    Ok(())
}

fn print_row(what: &str, figure: f64) {
    println!("| {what} | {figure:.2} |");
}

fn row(what: &str, connections: usize, measured: &Measurement) {
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    println!(
        "| {what} | {connections} | {:.0}/s | p50 {:.2} ms | p99 {:.2} ms |",
        measured.per_second,
        milliseconds(measured.p50),
        milliseconds(measured.p99)
    );
}
