//! `knarr shim`: the parent process of a sandbox's containers. Only the runtime starts it.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};

pub(crate) fn arguments(command: Command) -> Command {
    command.hide(true).arg(Arg::new("dir").required(true).value_parser(value_parser!(PathBuf)))
}

/// Supervises the sandbox until it is removed.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let dir = matches.get_one::<PathBuf>("dir").expect("clap requires it");
    Ok(container_shim::run(dir)?)
}
