//! The real etcdctl against the real etcd and against this store: the same commands must print the same.
//!
//! A scenario is a text file. Its lines:
//!
//! ```text
//! blot REGEX => TEXT    what must differ between any two servers is replaced before the outputs are compared
//! $ ARGUMENTS           runs etcdctl and notes what it prints and its exit code
//! > LINE                a line of its standard input
//! let NAME REGEX        keeps the first group found in the last output; `{NAME}` stands for it from then on
//! & NAME ARGUMENTS      starts etcdctl in the background
//! until NAME REGEX      waits until a line of its output matches
//! stop NAME             ends it and notes all it printed
//! ```

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::common::Single;
use crate::transcript::{self, Etcd, Scenario};

/// The scenario that takes a minute, whatever the machine; it has a test of its own so that the others need not wait for it.
const CHECKS: &str = "checks.txt";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_prints_the_same_against_etcd_and_against_this_store() -> Result<()> {
    let mut files: Vec<_> =
        std::fs::read_dir(folder())?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.retain(|file| !file.ends_with(CHECKS));
    files.sort();
    ensure!(!files.is_empty(), "no scenarios in {}", folder().display());
    compare(&files).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checks_of_etcdctl_end_the_same_against_etcd_and_against_this_store() -> Result<()> {
    compare(&[folder().join(CHECKS)]).await
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

/// Runs each scenario against both at once, so that neither has a better hour of the machine.
async fn compare(files: &[PathBuf]) -> Result<()> {
    let mut different = Vec::new();
    for file in files {
        let scenario = Scenario::read(file)?;
        let theirs = Etcd::start().await?;
        let ours = Single::start(store::etcd::Config::default()).await?;
        let (expected, found) = tokio::try_join!(scenario.run(&theirs.endpoint), scenario.run(&ours.endpoint))
            .with_context(|| format!("in {}", file.display()))?;
        print!("{}", transcript::text(file, &found));
        ours.stop().await;
        different.extend(transcript::differences(file, &expected, &found));
    }
    ensure!(different.is_empty(), "{}", different.join("\n"));
    Ok(())
}
