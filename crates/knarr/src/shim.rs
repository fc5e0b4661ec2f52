//! `knarr shim`: the process that keeps a sandbox. Started by the runtime, never by people.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};

/// The directory of the sandbox.
pub fn arguments(command: Command) -> Command {
    command.hide(true).arg(Arg::new("dir").required(true).value_parser(value_parser!(PathBuf)))
}

/// Keeps the sandbox until it is removed.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let dir = matches.get_one::<PathBuf>("dir").expect("clap requires it");
    Ok(container::run(dir)?)
}
