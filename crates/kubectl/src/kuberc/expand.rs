//! The effect of preferences on a command line: aliases become commands, and flags receive values.

use super::{Alias, FlagValue, Preference};
use crate::Invocation;
use crate::command::Command;

/// Returns the command line of an alias: its command, the prepended arguments, the arguments of the user, and the
/// appended arguments. `at` is the index of the alias.
pub fn expand_alias(root: &Command, alias: &Alias, args: &[String], at: usize) -> Result<Vec<String>, String> {
    let names: Vec<&str> = alias.command.split_whitespace().collect();
    let path = command_path(root, &names);
    if path.is_empty() {
        let (command, name) = (&alias.command, &alias.name);
        return Err(format!("command {command:?} not found to set alias {name:?}: [{}]", names.join(" ")));
    }
    let mut expanded = args[..at].to_vec();
    expanded.extend(path.iter().map(|name| (*name).to_owned()));
    expanded.extend_from_slice(&alias.prepend_args);
    expanded.extend_from_slice(&args[at + 1..]);
    expanded.extend_from_slice(&alias.append_args);
    Ok(expanded)
}

/// Sets the options of an alias that were not given on the command line.
pub fn set_options(alias: &Alias, invocation: &mut Invocation) -> Result<(), String> {
    let name = &alias.name;
    let unknown = |flag: &str| format!("invalid alias flag {flag} in alias {name}");
    let invalid = |option: &FlagValue, problem: String| {
        format!("could not apply value {} to flag {} in alias {name} err: {problem}", option.value, option.name)
    };
    set(&alias.options, invocation, unknown, invalid)
}

/// Sets the defaults of the command that were not given on the command line, and returns warnings. `alias` is the name
/// that the command was called by, if it is an alias: defaults of the aliased command do not apply to it.
// DEVIATION: kubectl compares only the last word of commands, so that a default of `config view` also concerns
// `kuberc view`.
pub fn apply_defaults(
    root: &Command,
    preference: &Preference,
    invocation: &mut Invocation,
    alias: Option<&str>,
) -> Result<Vec<String>, String> {
    let mut warnings = Vec::new();
    for defaults in &preference.defaults {
        let names: Vec<&str> = defaults.command.split_whitespace().collect();
        if alias.is_some() && names.first().copied() == alias {
            return Err(format!("alias {} can not be overridden", names[0]));
        }
        let path = command_path(root, &names);
        if path.is_empty() {
            warnings.push(format!("Warning: command {:?} not found to set kuberc override", defaults.command));
            continue;
        }
        if alias.is_some() || invocation.path[1..] != path {
            continue;
        }
        let command = &defaults.command;
        let unknown = |flag: &str| format!("invalid flag {flag} for command {command}");
        let invalid = |option: &FlagValue, problem: String| {
            let FlagValue { name, value } = option;
            format!("could not apply override value {value} to flag {name} in command {command} err: {problem}")
        };
        set(&defaults.options, invocation, unknown, invalid)?;
    }
    Ok(warnings)
}

fn set(
    options: &[FlagValue],
    invocation: &mut Invocation,
    unknown: impl Fn(&str) -> String,
    invalid: impl Fn(&FlagValue, String) -> String,
) -> Result<(), String> {
    let given: Vec<bool> = options.iter().map(|option| invocation.is_set(&option.name)).collect();
    for (option, given) in options.iter().zip(given) {
        if !invocation.has(&option.name) {
            return Err(unknown(&option.name));
        }
        if !given {
            invocation.set(&option.name, &option.value).map_err(|problem| invalid(option, problem))?;
        }
    }
    Ok(())
}

/// Returns the command that a list of names starts with, without `kubectl`; empty if there is none.
fn command_path(root: &Command, names: &[&str]) -> Vec<&'static str> {
    let mut path = Vec::new();
    let mut next = names.first().and_then(|name| root.find(name));
    while let Some(command) = next {
        path.push(command.name);
        next = names.get(path.len()).and_then(|name| command.find(name));
    }
    path
}
