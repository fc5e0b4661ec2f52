//! Runs the simulation of the replicated store; a failure prints its seed and the command that repeats it.

use std::process::Command;

use anyhow::{Context, ensure};

use crate::root;

/// Passes everything on to the simulation's own program.
pub fn run(args: &[String]) -> anyhow::Result<()> {
    let mut command = Command::new("cargo");
    command.args(["run", "--quiet", "--package", "sim", "--"]).args(args).current_dir(root());
    ensure!(command.status().context("cargo could not be started")?.success(), "a seed failed");
    Ok(())
}
