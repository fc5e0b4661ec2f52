//! One small binary that is a whole Kubernetes cluster.

mod etcd;
mod store;

use anyhow::Result;
use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// One small binary that is a whole Kubernetes cluster.
#[derive(Parser)]
#[command(version)]
enum Knarr {
    Etcd(etcd::Etcd),
    Store(store::Store),
}

fn main() -> Result<()> {
    match Knarr::parse() {
        Knarr::Etcd(flags) => etcd::run(&flags),
        Knarr::Store(command) => store::run(&command),
    }
}
