//! Measures a part of the project, against the program it takes the place of where there is one.

use std::process::Command;

use anyhow::{Context, bail};

use crate::root;

/// What can be measured: examples of the binary, and benches of crates.
const EXAMPLES: &[&str] = &["api", "controllers", "node", "store", "up"];
const BENCHES: &[&str] = &["scheduler"];

/// Builds what is measured as it is released, and measures it.
pub fn run(args: &[String]) -> anyhow::Result<()> {
    match args {
        [what] if EXAMPLES.contains(&what.as_str()) => example(&format!("bench_{what}")),
        [what] if BENCHES.contains(&what.as_str()) => {
            succeed(Command::new("cargo").args(["bench", "--package", what, "--bench", what]).current_dir(root()))
        }
        _ => bail!("say what to measure: {}", [EXAMPLES, BENCHES].concat().join(", ")),
    }
}

fn example(name: &str) -> anyhow::Result<()> {
    let build = ["build", "--release", "--package", "knarr", "--bins", "--example", name];
    succeed(Command::new("cargo").args(build).current_dir(root()))?;
    let this = std::env::current_exe().context("this program has no path")?;
    let target = this.ancestors().nth(2).context("this program is in no target folder")?;
    succeed(&mut Command::new(target.join("release/examples").join(name)))
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("{command:?} could not be started"))?;
    anyhow::ensure!(status.success(), "{command:?} failed");
    Ok(())
}
