//! The real etcdctl against real etcd and against this store: the same commands must print the same output.
//!
//! A scenario is a text file. Its lines:
//!
//! ```text
//! blot REGEX => TEXT    replaces text that differs between any two servers before the outputs are compared
//! $ ARGUMENTS           runs etcdctl and records its output and exit code
//! > LINE                a line of its standard input
//! + ARGUMENTS           the same, repeated until it succeeds: for asynchronous effects
//! let NAME REGEX        saves the first group matched in the last output; `{NAME}` is replaced by it from then on
//! & NAME ARGUMENTS      starts etcdctl in the background
//! until NAME REGEX      waits until a line of its output matches
//! stop NAME             stops it and records its output
//! at URL                uses another server from now on
//! join NAME             starts the member that the last command added, and waits until it is listed as started
//! sorted                the lines of an output are compared in any order
//! ```

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::cluster::{Cluster, EtcdCluster};
use crate::common::Single;
use crate::transcript::{self, Etcd, Scenario, Servers};

/// The scenario that takes a minute; it has a separate test, so that the others need not wait for it.
const CHECKS: &str = "checks.txt";
/// The scenario that adds and removes members.
const CLUSTER: &str = "cluster.txt";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_prints_the_same_against_etcd_and_against_this_store() -> Result<()> {
    let mut files: Vec<_> =
        std::fs::read_dir(scenarios_dir())?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.retain(|file| !file.ends_with(CHECKS) && !file.ends_with(CLUSTER));
    files.sort();
    ensure!(!files.is_empty(), "no scenarios in {}", scenarios_dir().display());
    compare(&files).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_checks_have_the_same_result_against_etcd_and_this_store() -> Result<()> {
    compare(&[scenarios_dir().join(CHECKS)]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_prints_the_same_against_three_members_of_either() -> Result<()> {
    let (mut etcd, mut knarr) = (EtcdCluster::start().await?, Cluster::start().await?);
    let different = differences(&scenarios_dir().join(CLUSTER), &mut etcd, &mut knarr).await?;
    knarr.stop().await;
    ensure!(different.is_empty(), "{}", different.join("\n"));
    Ok(())
}

fn scenarios_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

async fn compare(files: &[PathBuf]) -> Result<()> {
    let mut different = Vec::new();
    for file in files {
        let mut etcd = Etcd::start().await?;
        let mut knarr = Single::start(store::etcd::Config::default()).await?;
        different.extend(differences(file, &mut etcd, &mut knarr).await?);
        knarr.stop().await;
    }
    ensure!(different.is_empty(), "{}", different.join("\n"));
    Ok(())
}

/// Runs a scenario against both concurrently, so that both have the same load of the host.
async fn differences(file: &Path, etcd: &mut impl Servers, knarr: &mut impl Servers) -> Result<Vec<String>> {
    let scenario = Scenario::read(file)?;
    let (expected, found) =
        tokio::try_join!(scenario.run(etcd), scenario.run(knarr)).with_context(|| format!("in {}", file.display()))?;
    print!("{}", transcript::text(file, &found));
    Ok(transcript::differences(file, &expected, &found))
}
