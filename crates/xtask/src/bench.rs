//! Measures a part of the project: the store beside the program it takes the place of, the scheduler's decisions alone.

use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::root;

/// What can be measured by an example of the binary.
const EXAMPLES: &[&str] = &["api", "store"];
/// The crate whose benchmark needs nothing else to run.
const ALONE: &str = "scheduler";

/// Builds what is measured as it is released, and measures it.
pub fn run(args: &[String]) -> anyhow::Result<()> {
    let [what] = args else { bail!("say what to measure: {}, {ALONE}", EXAMPLES.join(", ")) };
    if what == ALONE {
        return succeed(
            Command::new("cargo").args(["bench", "--package", ALONE, "--bench", ALONE]).current_dir(root()),
        );
    }
    ensure!(EXAMPLES.contains(&what.as_str()), "{what} cannot be measured; {}, {ALONE} can", EXAMPLES.join(", "));
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
