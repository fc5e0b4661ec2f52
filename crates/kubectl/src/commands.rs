//! The table of commands. A new command is a row here and a module below.

mod annotate;
mod api_resources;
mod api_versions;
mod apply;
pub mod attach;
mod auth;
mod autoscale;
mod certificate;
mod cluster_info;
pub mod completion;
mod config;
mod cordon;
mod cp;
mod create;
mod debug;
mod delete;
mod describe;
mod diff;
mod drain;
mod edit;
mod events;
pub mod exec;
mod explain;
mod expose;
mod get;
mod kuberc;
mod kustomize;
mod label;
pub mod logs;
mod metadata;
mod options;
mod patch;
mod plugin;
mod port_forward;
mod proxy;
mod raw;
mod replace;
mod rollout;
mod run;
mod scale;
mod set;
mod taint;
mod top;
mod version;
mod wait;

use crate::command::{Command, Group};

/// `kubectl` itself.
pub static ROOT: Command = Command {
    name: "kubectl",
    summary: "Control Kubernetes clusters from the command line",
    description: "Create, inspect, change, and delete the objects of Kubernetes clusters.\n\n\
        Documentation: https://kubernetes.io/docs/reference/kubectl/",
    usage: "kubectl [flags] [options]",
    commands: COMMANDS,
    ..Command::EMPTY
};

/// All commands, in the order of `kubectl --help` within each group.
pub static COMMANDS: &[&Command] = &[
    // Basic commands for beginners.
    &create::COMMAND,
    &expose::COMMAND,
    &run::COMMAND,
    &set::COMMAND,
    // Basic commands.
    &explain::COMMAND,
    &get::COMMAND,
    &edit::COMMAND,
    &delete::COMMAND,
    // Deploy commands.
    &rollout::COMMAND,
    &scale::COMMAND,
    &autoscale::COMMAND,
    // Cluster management commands.
    &certificate::COMMAND,
    &cluster_info::COMMAND,
    &top::COMMAND,
    &cordon::CORDON,
    &cordon::UNCORDON,
    &drain::COMMAND,
    &taint::COMMAND,
    // Troubleshooting and debugging commands.
    &describe::COMMAND,
    &logs::COMMAND,
    &attach::COMMAND,
    &exec::COMMAND,
    &port_forward::COMMAND,
    &proxy::COMMAND,
    &cp::COMMAND,
    &auth::COMMAND,
    &debug::COMMAND,
    &events::COMMAND,
    // Advanced commands.
    &diff::COMMAND,
    &apply::COMMAND,
    &patch::COMMAND,
    &replace::COMMAND,
    &wait::COMMAND,
    &kustomize::COMMAND,
    // Settings commands.
    &label::COMMAND,
    &annotate::COMMAND,
    &completion::COMMAND,
    // Other commands.
    &api_resources::COMMAND,
    &api_versions::COMMAND,
    &config::COMMAND,
    &kuberc::COMMAND,
    &options::COMMAND,
    &plugin::COMMAND,
    &version::COMMAND,
];

/// The maximum edit distance of a suggested command.
const DISTANCE_MAX: usize = 2;

/// Returns the commands from the root with these names, as far as they exist.
pub fn path(names: &[&str]) -> Vec<&'static Command> {
    let mut path = vec![&ROOT];
    for name in names.iter().skip(1) {
        match path[path.len() - 1].find(name) {
            Some(command) => path.push(command),
            None => break,
        }
    }
    path
}

/// Names of other tools for commands, and the command to suggest.
const INSTEAD: [(&str, &str); 6] =
    [("list", "get"), ("ls", "get"), ("inspect", "describe"), ("rm", "delete"), ("remove", "delete"), ("stats", "top")];

/// Returns the message for an unknown command, with suggestions.
pub fn unknown(name: &str) -> String {
    let mut text = format!("unknown command {name:?} for \"kubectl\"");
    let suggested = INSTEAD.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, command)| *command);
    let similar: Vec<&str> = COMMANDS
        .iter()
        .filter(|command| command.group != Group::Hidden)
        .map(|command| command.name)
        .filter(|have| {
            let name = name.to_lowercase();
            suggested == Some(*have) || distance(&name, have) <= DISTANCE_MAX || have.starts_with(&name)
        })
        .collect();
    if !similar.is_empty() {
        text.push_str("\n\nDid you mean this?");
        for name in similar {
            text.push_str(&format!("\n\t{name}"));
        }
    }
    text
}

/// Returns the Levenshtein distance of two words.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let cost = if x == y { diagonal } else { diagonal + 1 };
            diagonal = row[j + 1];
            row[j + 1] = cost.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_complete_and_unique() {
        fn check(parent: &str, command: &Command) {
            let name = format!("{parent} {}", command.name);
            assert!(!command.summary.is_empty() || command.group == Group::Hidden, "{name} has no summary");
            assert!(command.run.is_some() || !command.commands.is_empty(), "{name} does nothing");
            let mut flags: Vec<&str> = command.flags.iter().copied().flatten().map(|flag| flag.name).collect();
            flags.sort_unstable();
            assert!(flags.is_sorted_by(|a, b| a < b), "{name} has duplicate flags: {flags:?}");
            let mut shorts: Vec<char> = command.flags.iter().copied().flatten().filter_map(|flag| flag.short).collect();
            shorts.sort_unstable();
            assert!(shorts.is_sorted_by(|a, b| a < b), "{name} has duplicate short flags: {shorts:?}");
            let mut names: Vec<&str> = command.commands.iter().map(|command| command.name).collect();
            names.sort_unstable();
            assert!(names.is_sorted_by(|a, b| a < b), "{name} has duplicate commands: {names:?}");
            for command in command.commands {
                check(&name, command);
            }
        }
        check("", &ROOT);
    }

    #[test]
    fn similar_commands_are_suggested() {
        let check = |name: &str, expect: &str| assert_eq!(unknown(name), expect);
        check("list", "unknown command \"list\" for \"kubectl\"\n\nDid you mean this?\n\tget");
        check("descrbe", "unknown command \"descrbe\" for \"kubectl\"\n\nDid you mean this?\n\tdescribe");
        check("fly-away", "unknown command \"fly-away\" for \"kubectl\"");
    }

    #[test]
    fn distance_counts_edits() {
        for (a, b, expect) in [("geet", "get", 1), ("nope", "top", 2), ("", "abc", 3), ("get", "get", 0)] {
            assert_eq!(distance(a, b), expect, "{a} {b}");
        }
    }
}
