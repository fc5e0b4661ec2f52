//! `cargo xtask compare`: compares with recordings of upstream's API server, which are not part of this tree.

use anyhow::ensure;
use test_requirements::recordings;

use crate::process::{cargo, succeeds};

/// The filter of tests that need the recordings. `.config/nextest.toml` leaves the same tests out of other runs.
const TESTS: &str = "test(/(^|::)compare_/)";
/// A test that needs kubectl 1.36 or later, which Debian does not have.
const WITH_KUBECTL: &str = "completion::compare_candidates_with_kubectl";
/// The beginning of the names of these tests, for `cargo test`.
pub(crate) const PREFIX: &str = "compare_";

/// Runs the comparisons. Arguments are passed to `cargo nextest run`.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let directory = recordings();
    ensure!(
        directory.join("reference").is_dir(),
        "there are no recordings in {}; name their directory in KNARR_SHARED",
        directory.display()
    );
    let mut tests = TESTS.to_owned();
    if std::env::var_os("KUBECTL").is_none() {
        println!("KUBECTL names no kubectl of version 1.36 or later: without {WITH_KUBECTL}");
        tests.push_str(&format!(" - test(={WITH_KUBECTL})"));
    }
    if succeeds("cargo", &["nextest", "--version"]) {
        let mut command =
            vec!["nextest", "run", "--workspace", "--locked", "--no-fail-fast", "--ignore-default-filter"];
        command.extend(["-E", &tests]);
        command.extend(args.iter().map(String::as_str));
        cargo(&command, &[])
    } else {
        let mut command =
            vec!["test", "--workspace", "--locked", "--no-fail-fast", "--lib", "--bins", "--tests", PREFIX];
        if tests != TESTS {
            command.extend(["--", "--skip", WITH_KUBECTL]);
        }
        cargo(&command, &[])
    }
}

/// Runs the comparisons where the recordings are; otherwise reports that they are absent.
pub(crate) fn run_where_recorded() -> anyhow::Result<()> {
    let directory = recordings();
    if directory.join("reference").is_dir() {
        return run(&[]);
    }
    println!("nothing is compared: there are no recordings in {}", directory.display());
    Ok(())
}
