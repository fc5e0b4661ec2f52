//! `cargo xtask sim`: runs the simulation of the replicated store.
//!
//! A failure prints its seed and the command that reproduces it.

use std::process::Command;

use anyhow::{Context, ensure};

use crate::root;

/// Passes all arguments to the simulation binary.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let mut command = Command::new("cargo");
    command.args(["run", "--quiet", "--package", "sim", "--"]).args(args).current_dir(root());
    ensure!(command.status().context("failed to start cargo")?.success(), "a seed failed");
    Ok(())
}
