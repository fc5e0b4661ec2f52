//! Measures a part of the project against the program it takes the place of.

use std::process::Command;

use anyhow::{Context, ensure};

use crate::root;

/// Builds everything as it is released, and runs the comparison.
pub fn run(args: &[String]) -> anyhow::Result<()> {
    let names: Vec<&str> = args.iter().map(String::as_str).collect();
    ensure!(names == ["store"], "say what to measure: store");
    let build = ["build", "--release", "--package", "knarr", "--bins", "--example", "bench_store"];
    succeed(Command::new("cargo").args(build).current_dir(root()))?;
    let this = std::env::current_exe().context("this program has no path")?;
    let target = this.ancestors().nth(2).context("this program is in no target folder")?;
    succeed(&mut Command::new(target.join("release/examples/bench_store")))
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("{command:?} could not be started"))?;
    ensure!(status.success(), "{command:?} failed");
    Ok(())
}
