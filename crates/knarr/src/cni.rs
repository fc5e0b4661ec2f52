//! `knarr cni`: the built-in pod network as a CNI plugin.
//!
//! A link named `cni` to the binary in the CNI plugin directory is used by configurations with `"type": "cni"`.

use std::io::Read;

use anyhow::Context;
use clap::{ArgMatches, Command};

use crate::output::outln;

/// Adds no arguments: CNI passes everything in environment variables and on standard input.
pub(crate) fn arguments(command: Command) -> Command {
    command
}

/// Executes one CNI command.
pub(crate) fn run(_matches: &ArgMatches) -> anyhow::Result<()> {
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input).context("failed to read the configuration from standard input")?;
    let environment =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    match pod_network::plugin::handle_call(&environment.collect(), &input) {
        Ok(Some(result)) => outln!("{result}"),
        Ok(None) => {}
        Err(error) => {
            // Runtimes read CNI errors from standard output.
            outln!("{}", error.to_json());
            return Err(error.into());
        }
    }
    Ok(())
}
