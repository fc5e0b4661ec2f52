//! `cargo xtask bench`: benchmarks of parts of the project, against the upstream component where one is installed.

use std::process::Command;

use anyhow::{Context, bail};

use crate::root;

/// Benchmarks that are examples, and their packages.
const EXAMPLES: &[(&str, &str)] = &[
    ("api", "knarr"),
    ("controllers", "knarr"),
    ("ingress", "ingress"),
    ("net", "knarr"),
    ("node", "knarr"),
    ("scheduler", "kube-scheduler"),
    ("store", "knarr"),
    ("up", "knarr"),
];
/// Crates whose `cargo bench` runs before the example of the same name.
const BENCHES: &[&str] = &["scheduler"];

/// Builds a benchmark in release mode and runs it.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let known = || EXAMPLES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let [what] = args else { bail!("usage: cargo xtask bench {}", known()) };
    let Some((name, package)) = EXAMPLES.iter().find(|(name, _)| name == what) else {
        bail!("unknown benchmark {what:?}; choose one of {}", known());
    };
    if BENCHES.contains(name) {
        succeed(Command::new("cargo").args(["bench", "--package", what, "--bench", what]).current_dir(root()))?;
    }
    example(package, &format!("bench_{name}"))
}

fn example(package: &str, name: &str) -> anyhow::Result<()> {
    let build = ["build", "--release", "--package", package, "--bins", "--example", name];
    succeed(Command::new("cargo").args(build).current_dir(root()))?;
    let this = std::env::current_exe().context("failed to find the path of this executable")?;
    let target = this.ancestors().nth(2).context("this executable is not in a target directory")?;
    succeed(&mut Command::new(target.join("release/examples").join(name)))
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("failed to start {command:?}"))?;
    anyhow::ensure!(status.success(), "{command:?} failed");
    Ok(())
}
