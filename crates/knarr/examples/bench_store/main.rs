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
    let dir = tempfile::tempdir_in(examples)?;
    let mut servers = [
        Server::start("knarr", &[knarr.to_str().context("a path that is text")?, "etcd"], dir.path())?,
        Server::start("etcd", &[ETCD], dir.path())?,
    ];
    footprint(&mut servers).await?;
    let mut rates = Table::new(
        "requests per second",
        &["clients", "knarr", "etcd", "ratio", "knarr p50", "etcd p50", "knarr p99", "etcd p99", "p99 ratio"],
    );
    for (load, clients) in CELLS {
        for clients in *clients {
            let [knarr_measured, etcd_measured] =
                both(&servers, async |server| load::run(server.url(), *load, *clients, CELL).await).await?;
            rates.row(load.name(), *clients, &knarr_measured, &etcd_measured);
        }
    }
    let [knarr_measured, etcd_measured] =
        both(&servers, async |server| load::reads_under_writes(server.url(), CELL).await).await?;
    rates.row("get, while 64 clients put", 16, &knarr_measured.0, &etcd_measured.0);
    rates.row("put, while 16 clients get", 64, &knarr_measured.1, &etcd_measured.1);
    let [knarr_measured, etcd_measured] =
        both(&servers, async |server| load::fan_out(server.url(), WATCHERS, CELL).await).await?;
    rates.row("put until 1,000 watchers have it", 1, &knarr_measured, &etcd_measured);
    print!("{rates}");
    let mut end = Table::new("at the end", &["knarr", "etcd", "ratio"]);
    end.pair("memory (RSS), MiB", servers[0].rss_mib()?, servers[1].rss_mib()?);
    print!("{end}");
    Ok(())
}

/// Fills both servers and measures memory, disk and restart time.
async fn footprint(servers: &mut [Server; 2]) -> Result<()> {
    let mut table = Table::new(&format!("{KEYS} keys of {VALUE_BYTES} bytes"), &["knarr", "etcd", "ratio"]);
    let [knarr, etcd] = both(servers, async |server| load::fill(server.url(), KEYS).await).await?;
    table.pair("load at 64 clients, s", knarr.as_secs_f64(), etcd.as_secs_f64());
    table.pair("memory (RSS) after it, MiB", servers[0].rss_mib()?, servers[1].rss_mib()?);
    table.pair("disk, MiB", servers[0].disk_mib()?, servers[1].disk_mib()?);
    let [knarr, etcd] = servers;
    let times = (knarr.reopen().await?.as_secs_f64(), etcd.reopen().await?.as_secs_f64());
    table.pair("reopen after SIGKILL until a read is answered, s", times.0, times.1);
    table.pair("memory (RSS) after it, MiB", knarr.rss_mib()?, etcd.rss_mib()?);
    print!("{table}");
    Ok(())
}

/// Measures both servers sequentially, so that neither competes with the other.
async fn both<T>(servers: &[Server; 2], measure: impl AsyncFn(&Server) -> Result<T>) -> Result<[T; 2]> {
    let [knarr, etcd] = servers;
    Ok([measure(knarr).await.context("knarr")?, measure(etcd).await.context("etcd")?])
}

fn disk_bytes(dir: &Path) -> std::io::Result<u64> {
    let mut total = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        total += if entry.file_type()?.is_dir() { disk_bytes(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(total)
}
