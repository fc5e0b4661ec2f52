//! Benchmark of `knarr etcd` against a real etcd on the same disk, in one run: `cargo xtask bench store`.

mod load;
mod server;
mod table;
mod wire;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use load::Load;
use server::Server;
use table::Table;

const VALUE_BYTES: usize = 1024;
/// Number of keys that exist before the measurement.
const KEYS: usize = 100_000;
/// Duration of one measurement.
const CELL: Duration = Duration::from_millis(2500);
const WATCHERS: usize = 1000;
const ETCD: &str = "/usr/bin/etcd";

/// Loads, and their numbers of clients.
const CELLS: &[(Load, &[usize])] = &[
    (Load::Put, &[1, 64, 1000]),
    (Load::TxnPut, &[1, 64, 1000]),
    (Load::Get, &[1, 64, 1000]),
    // A thousand concurrent ranges would be 10 GiB of responses in flight.
    (Load::Range, &[1, 64]),
];

#[tokio::main]
async fn main() -> Result<()> {
    let this = std::env::current_exe().context("failed to find the path of this executable")?;
    let examples = this.parent().context("this executable is not in a directory")?;
    let knarr = examples.parent().context("this executable is not in a target directory")?.join("knarr");
    let folder = tempfile::tempdir_in(examples)?;
    let mut servers = [
        Server::start("knarr", &[knarr.to_str().context("a path that is text")?, "etcd"], folder.path())?,
        Server::start("etcd", &[ETCD], folder.path())?,
    ];
    footprint(&mut servers).await?;
    let mut rates = Table::new(
        "requests per second",
        &["clients", "knarr", "etcd", "ratio", "knarr p50", "etcd p50", "knarr p99", "etcd p99", "p99 ratio"],
    );
    for (load, clients) in CELLS {
        for clients in *clients {
            let [ours, theirs] =
                both(&servers, async |server| load::run(server.url(), *load, *clients, CELL).await).await?;
            rates.row(load.name(), *clients, &ours, &theirs);
        }
    }
    let [ours, theirs] = both(&servers, async |server| load::reads_under_writes(server.url(), CELL).await).await?;
    rates.row("get, while 64 clients put", 16, &ours.0, &theirs.0);
    rates.row("put, while 16 clients get", 64, &ours.1, &theirs.1);
    let [ours, theirs] = both(&servers, async |server| load::fan_out(server.url(), WATCHERS, CELL).await).await?;
    rates.row("put until 1,000 watchers have it", 1, &ours, &theirs);
    print!("{rates}");
    let mut end = Table::new("at the end", &["knarr", "etcd", "ratio"]);
    end.pair("memory (RSS), MiB", servers[0].rss_mib()?, servers[1].rss_mib()?);
    print!("{end}");
    Ok(())
}

/// Fills both servers and measures memory, disk and restart time.
async fn footprint(servers: &mut [Server; 2]) -> Result<()> {
    let mut table = Table::new(&format!("{KEYS} keys of {VALUE_BYTES} bytes"), &["knarr", "etcd", "ratio"]);
    let [ours, theirs] = both(servers, async |server| load::fill(server.url(), KEYS).await).await?;
    table.pair("load at 64 clients, s", ours.as_secs_f64(), theirs.as_secs_f64());
    table.pair("memory (RSS) after it, MiB", servers[0].rss_mib()?, servers[1].rss_mib()?);
    table.pair("disk, MiB", servers[0].disk_mib()?, servers[1].disk_mib()?);
    let [ours, theirs] = servers;
    let times = (ours.reopen().await?.as_secs_f64(), theirs.reopen().await?.as_secs_f64());
    table.pair("reopen after SIGKILL until a read is answered, s", times.0, times.1);
    table.pair("memory (RSS) after it, MiB", ours.rss_mib()?, theirs.rss_mib()?);
    print!("{table}");
    Ok(())
}

/// Measures both servers sequentially, so that neither competes with the other.
async fn both<T>(servers: &[Server; 2], measure: impl AsyncFn(&Server) -> Result<T>) -> Result<[T; 2]> {
    let [ours, theirs] = servers;
    Ok([measure(ours).await.context("knarr")?, measure(theirs).await.context("etcd")?])
}

fn disk_bytes(folder: &Path) -> std::io::Result<u64> {
    let mut total = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        total += if entry.file_type()?.is_dir() { disk_bytes(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(total)
}
