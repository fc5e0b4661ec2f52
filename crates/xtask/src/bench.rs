//! Measures a part of the project: the store beside the program it takes the place of, the scheduler's decisions alone.

use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::root;

/// Builds what is measured as it is released, and measures it.
pub fn run(args: &[String]) -> anyhow::Result<()> {
    let names: Vec<&str> = args.iter().map(String::as_str).collect();
    match names.as_slice() {
        ["store"] => store(),
        ["scheduler"] => {
            let bench = ["bench", "--package", "scheduler", "--bench", "scheduler"];
            succeed(Command::new("cargo").args(bench).current_dir(root()))
        }
        _ => bail!("say what to measure: store or scheduler"),
    }
}

fn store() -> anyhow::Result<()> {
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
