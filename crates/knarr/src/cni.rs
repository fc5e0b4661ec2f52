//! `knarr cni`: the built-in pod network as a CNI plug-in.
//!
//! A link to the binary in the plug-ins' directory, called `cni`, is what a configuration names as `"type": "cni"`.

use std::io::Read;

use crate::output::outln;
use anyhow::Context;
use clap::{ArgMatches, Command};

/// It has none: everything is told by the environment and on standard input.
pub fn arguments(command: Command) -> Command {
    command
}

/// Answers one call of a runtime.
pub fn run(_matches: &ArgMatches) -> anyhow::Result<()> {
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input).context("read the configuration")?;
    let environment =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    match net::plugin::answer(&environment.collect(), &input) {
        Ok(Some(answer)) => outln!("{answer}"),
        Ok(None) => {}
        Err(error) => {
            // A runtime reads failures from standard output.
            outln!("{}", error.to_json());
            return Err(error.into());
        }
    }
    Ok(())
}
