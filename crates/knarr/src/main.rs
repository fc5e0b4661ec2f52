//! The `knarr` binary: parses the command line and runs one command of the table.

#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "these panic when standard output is closed; see `output`"
)]

mod agent;
mod apiserver;
mod ask;
mod builtin;
mod certs;
mod cni;
mod commands;
mod component;
mod controller_manager;
mod convert;
mod cri;
mod dns;
mod doctor;
mod down;
mod etcd;
mod health;
mod hello;
mod hollow;
mod image;
mod join;
mod kubelet;
mod licenses;
mod local_path;
mod members;
mod metrics_server;
mod network;
mod node;
mod oom;
mod output;
mod pause;
mod proxy;
mod scheduler;
mod server;
mod shim;
mod status;
mod store;
mod token;
mod trace;
mod up;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use commands::{COMMANDS, Group};

#[global_allocator]
static ALLOCATOR: sys::Allocator = sys::Allocator;

fn main() -> ExitCode {
    let matches = cli().get_matches_from(arguments(std::env::args_os().collect()));
    let Some((name, matches)) = matches.subcommand() else { unreachable!("clap requires a command") };
    let command = COMMANDS.iter().find(|command| command.name == name).expect("clap knows only the table's names");
    let done = (command.run)(matches).and_then(|()| output::finish().context("failed to write to standard output"));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::error_line(format_args!("knarr {name}: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Builds the command line from the table.
fn cli() -> clap::Command {
    let cli = clap::Command::new("knarr")
        .about("Kubernetes in one small binary")
        .version(env!("CARGO_PKG_VERSION"))
        .help_template(help_template())
        .subcommand_required(true)
        .arg_required_else_help(true);
    COMMANDS.iter().fold(cli, |cli, command| {
        // A derived `Args` overwrites `about` with the doc comment of its struct, so the table's text is set last.
        let subcommand = (command.arguments)(clap::Command::new(command.name));
        cli.subcommand(subcommand.about(command.about).long_about(None))
    })
}

/// Returns the help template with the commands in groups, which clap does not support.
fn help_template() -> String {
    let width = COMMANDS.iter().map(|command| command.name.len()).max().unwrap_or_default();
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for group in Group::ALL {
        text += &format!("\n{}:\n", group.heading());
        for command in COMMANDS.iter().filter(|command| command.group == group) {
            text += &format!("  {:<width$}  {}\n", command.name, command.about);
        }
    }
    text + "\nOptions:\n{options}\n\nUse \"knarr COMMAND --help\" for more information about a command."
}

/// Inserts the command name if the binary was started through a link: `etcd` runs `knarr etcd`.
fn arguments(mut args: Vec<OsString>) -> Vec<OsString> {
    let called = args.first().map(Path::new).and_then(Path::file_stem).and_then(|name| name.to_str());
    if let Some(command) = COMMANDS.iter().find(|command| Some(command.name) == called) {
        args.insert(1, command.name.into());
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_definition_is_valid() {
        cli().debug_assert();
    }

    #[test]
    fn help_shows_the_description_of_every_command() {
        let cli = cli();
        for command in COMMANDS {
            let shown = cli.find_subcommand(command.name).and_then(clap::Command::get_about).map(ToString::to_string);
            assert_eq!(shown.as_deref(), Some(command.about), "{}", command.name);
        }
    }

    #[test]
    fn help_lists_every_command_once_in_its_group() {
        let help = cli().render_help().to_string();
        let headings: Vec<usize> =
            Group::ALL.iter().map(|group| help.find(&format!("\n{}:\n", group.heading())).unwrap()).collect();
        assert!(headings.is_sorted(), "{help}");
        for command in COMMANDS {
            let line = format!("\n  {} ", command.name);
            let places: Vec<usize> = help.match_indices(&line).map(|(at, _)| at).collect();
            assert_eq!(places.len(), 1, "{} in {help}", command.name);
            let group = headings.iter().rposition(|heading| *heading < places[0]).map(|at| Group::ALL[at]);
            assert_eq!(group, Some(command.group), "{}", command.name);
        }
        assert!(help.contains("--version") && help.lines().all(|line| line.chars().count() <= 120), "{help}");
    }

    #[test]
    fn commands_are_unique_and_sorted() {
        assert!(COMMANDS.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn link_named_like_a_command_runs_it() {
        let check = |given: &[&str], expect: &[&str]| {
            assert_eq!(arguments(given.iter().map(OsString::from).collect()), expect);
        };
        check(&["/usr/bin/convert", "-o", "json"], &["/usr/bin/convert", "convert", "-o", "json"]);
        check(&["/usr/bin/knarr", "convert"], &["/usr/bin/knarr", "convert"]);
        check(&["other"], &["other"]);
    }
}
