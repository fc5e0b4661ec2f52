//! The `knarr` binary: parses the command line and runs one command of the table.
//!
//! # Invariants
//!
//! - `knarr up` creates a cluster. Pods keep running while its process is killed, and `knarr down --purge` removes
//!   everything. *Enforced by* `up_runs_a_cluster_that_survives_kills_and_purge_leaves_nothing`.
//! - A hundred deleted pods leave nothing behind. *Enforced by*
//!   `up_runs_a_cluster_that_survives_kills_and_purge_leaves_nothing`.
//! - A killed cluster restarts with the same containers and all acknowledged writes, on every node. *Enforced by*
//!   `up_runs_a_cluster_that_survives_kills_and_purge_leaves_nothing`,
//!   `three_nodes_on_one_host_pass_the_cluster_scenarios`.
//! - `knarr down` runs preStop hooks and respects grace periods. The next `knarr up` continues restart counts, previous
//!   logs and node addresses. *Enforced by* `down_gives_containers_their_grace_period_and_up_starts_them_again`.
//! - A control plane in static pods keeps running without the process that started it. *Enforced by*
//!   `static_pod_control_plane_keeps_running_without_its_process`.
//! - The loss of one of three servers loses no acknowledged write and repeats no work of controllers; agents continue
//!   through another server. *Enforced by* `sequential_server_failures_lose_no_acknowledged_writes`,
//!   `connections_go_to_a_reachable_server_and_close_when_it_leaves`.
//! - Servers on an external etcd survive the loss of an etcd member and of each other. *Enforced by*
//!   `servers_with_external_etcd_survive_failures_of_members_and_servers`.
//! - A joining host trusts only the CA that its token pins, and the secrets that servers share are decrypted only with
//!   the token's key. *Enforced by* `join_token_round_trips`, `only_the_pinned_ca_of_signed_cluster_info_is_trusted`,
//!   `second_ca_under_a_genuine_pin_does_not_receive_the_token`, `bundle_is_decrypted_only_with_its_key`.
//! - Certificates are renewed while the cluster runs: servers present the new one, open connections stay open, and
//!   nothing restarts. *Enforced by* `certificates_are_made_anew_while_everything_runs`,
//!   `certificates_are_checked_when_due_and_daily_but_at_most_every_minute`.
//! - The directory of a local volume outlives its pods but not its PersistentVolume, and nothing outside the root
//!   directory is removed. *Enforced by* `claim_without_class_gets_a_directory_that_is_deleted_with_the_claim`,
//!   `volume_directories_are_created_and_removed_only_below_the_root`.
//! - Every flag of upstream's controller manager is accepted. *Enforced by* `compare_flags_with_upstream`.
//! - A command whose standard output is closed finishes and succeeds. *Enforced by*
//!   `command_with_closed_stdout_finishes_and_succeeds`.
//! - The commands of the README print the documented output. *Enforced by*
//!   `readme_commands_print_the_documented_output`.

#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the macros panic when standard output is closed; use `output`"
)]

mod admin_client;
mod agent;
mod apiserver;
mod backup;
mod backup_encryption;
mod builtin;
mod capabilities;
mod certs;
mod cni;
mod commands;
mod completion;
mod component;
mod config;
mod controller_manager;
mod convert;
mod cri;
mod dashboard;
mod dns;
mod doctor;
mod down;
mod etcd;
mod health;
mod hello;
mod hollow;
mod image;
mod ingress;
mod install;
mod join;
mod kubeconfig;
mod kubelet;
mod last_backup;
mod licenses;
mod local_path;
mod log;
mod logs;
mod man;
mod manifests;
mod members;
mod metrics_server;
mod mounted_dashboard;
mod network;
mod node;
mod oom;
mod output;
mod pause;
mod proxy;
mod registry_flags;
mod scheduler;
mod server;
mod service_manager;
mod service_unit;
mod settings;
mod shim;
mod status;
mod store;
mod token;
mod trace;
mod trace_file;
mod up;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use commands::{COMMANDS, Group};

#[global_allocator]
static ALLOCATOR: sys::Allocator = sys::Allocator;

fn main() -> ExitCode {
    let mut args = arguments(std::env::args_os().collect());
    if args.get(1).is_some_and(|name| name == "kubectl") {
        // kubectl has its own grammar of flags and starts in milliseconds: clap is not involved.
        return kubectl::main(args.split_off(2));
    }
    if args.get(1).is_some_and(|name| name == completion::COMPLETE) {
        return completion::complete(args.split_off(2));
    }
    let cli = cli();
    let completed = match settings::complete(&cli, args) {
        Ok(completed) => completed,
        Err(error) => {
            output::error_line(format_args!("knarr: {error:#}"));
            return ExitCode::FAILURE;
        }
    };
    let matches = match cli.try_get_matches_from(completed.args) {
        Ok(matches) => matches,
        Err(error) => return rejected(&error, &completed.settings),
    };
    let Some((name, matches)) = matches.subcommand() else { unreachable!("clap requires a command") };
    let command = COMMANDS.iter().find(|command| command.name == name).expect("clap knows only the table's names");
    let done = log::choose(matches)
        .and_then(|()| (command.run)(matches))
        .and_then(|()| output::finish().context("failed to write to standard output"));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::error_line(format_args!("knarr {name}: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints the error of a command line, and the source of each flag in it that the user did not type. Returns the exit
/// code.
fn rejected(error: &clap::Error, settings: &settings::Settings) -> ExitCode {
    // A closed pipe is not an error: the reader of `--help` needs no more output.
    let _ = error.print();
    let text = error.to_string();
    for (flag, setting) in settings {
        if error.use_stderr() && text.contains(&format!("--{flag} ")) {
            output::error_line(format_args!("note: --{flag} is set by {}", setting.source));
        }
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Builds the command line from the table.
pub(crate) fn cli() -> clap::Command {
    let cli = clap::Command::new("knarr")
        .about("Kubernetes in one small binary")
        .version(env!("CARGO_PKG_VERSION"))
        .help_template(help_template())
        .subcommand_required(true)
        .arg_required_else_help(true);
    COMMANDS.iter().fold(log::argument(cli), |cli, command| {
        // A derived `Args` overwrites `about` with the doc comment of its struct, so the table's text is set last.
        let subcommand = settings::argument((command.arguments)(clap::Command::new(command.name)));
        cli.subcommand(subcommand.about(command.about).long_about(None))
    })
}

/// Returns the names and descriptions of the commands of the table by the headings of their groups.
pub(crate) fn command_groups() -> Vec<(&'static str, Vec<(&'static str, &'static str)>)> {
    let of = |group| COMMANDS.iter().filter(move |command| command.group == group);
    let named = |group| of(group).map(|command| (command.name, command.about)).collect();
    Group::ALL.into_iter().map(|group| (group.heading(), named(group))).collect()
}

/// Returns the help template with the commands in groups, which clap does not support.
fn help_template() -> String {
    let width = COMMANDS.iter().map(|command| command.name.len()).max().unwrap_or_default();
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (heading, commands) in command_groups() {
        text += &format!("\n{heading}:\n");
        for (name, about) in commands {
            text += &format!("  {name:<width$}  {about}\n");
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
    fn help_contains_the_description_of_every_command() {
        let cli = cli();
        for command in COMMANDS {
            let about = cli.find_subcommand(command.name).and_then(clap::Command::get_about).map(ToString::to_string);
            assert_eq!(about.as_deref(), Some(command.about), "{}", command.name);
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
