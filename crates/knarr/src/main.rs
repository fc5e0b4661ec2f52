//! One small binary that is a whole Kubernetes cluster.

mod etcd;

use anyhow::Result;
use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// One small binary that is a whole Kubernetes cluster.
#[derive(Parser)]
#[command(version)]
enum Knarr {
    Etcd(etcd::Etcd),
}

fn main() -> Result<()> {
    match Knarr::parse() {
        Knarr::Etcd(flags) => etcd::run(&flags),
    }
}
