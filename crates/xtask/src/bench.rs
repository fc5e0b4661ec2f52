//! Measures a part of the project against the program it takes the place of.

use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::root;

/// What can be measured: each is an example of the binary.
const WHAT: &[&str] = &["api", "store"];

/// Builds everything as it is released, and runs the comparison.
pub fn run(args: &[String]) -> anyhow::Result<()> {
    let [what] = args else { bail!("say what to measure: {}", WHAT.join(" or ")) };
    ensure!(WHAT.contains(&what.as_str()), "{what} cannot be measured, {} can", WHAT.join(" and "));
    let example = format!("bench_{what}");
    let build = ["build", "--release", "--package", "knarr", "--bins", "--example", &example];
    succeed(Command::new("cargo").args(build).current_dir(root()))?;
    let this = std::env::current_exe().context("this program has no path")?;
    let target = this.ancestors().nth(2).context("this program is in no target folder")?;
    succeed(&mut Command::new(target.join("release/examples").join(example)))
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("{command:?} could not be started"))?;
    ensure!(status.success(), "{command:?} failed");
    Ok(())
}
