//! One small binary that is a whole Kubernetes cluster: a table of commands, and the choice of one.

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

use commands::COMMANDS;

#[global_allocator]
static ALLOCATOR: sys::Allocator = sys::Allocator;

fn main() -> ExitCode {
    let matches = cli().get_matches_from(arguments(std::env::args_os().collect()));
    let Some((name, matches)) = matches.subcommand() else { unreachable!("clap requires a command") };
    let command = COMMANDS.iter().find(|command| command.name == name).expect("clap knows only the table's names");
    match (command.run)(matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("knarr {name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The command line as a projection of the table.
fn cli() -> clap::Command {
    let cli = clap::Command::new("knarr")
        .about("Kubernetes in one small binary")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true);
    COMMANDS.iter().fold(cli, |cli, command| {
        // A derived `Args` overwrites `about` with the doc comment of its struct, so the table's text is set last.
        let subcommand = (command.arguments)(clap::Command::new(command.name));
        cli.subcommand(subcommand.about(command.about).long_about(None))
    })
}

/// Lets the binary answer to the name it is called by: as `etcd` it is `knarr etcd`.
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
    fn the_table_makes_a_sound_command_line() {
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
    fn commands_are_unique_and_sorted() {
        assert!(COMMANDS.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn a_link_named_like_a_command_is_that_command() {
        let check = |given: &[&str], expect: &[&str]| {
            assert_eq!(arguments(given.iter().map(OsString::from).collect()), expect);
        };
        check(&["/usr/bin/convert", "-o", "json"], &["/usr/bin/convert", "convert", "-o", "json"]);
        check(&["/usr/bin/knarr", "convert"], &["/usr/bin/knarr", "convert"]);
        check(&["other"], &["other"]);
    }
}
