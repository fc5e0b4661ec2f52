//! `knarr completion`: scripts that let a shell complete command lines with `knarr __complete`.
//!
//! The scripts and the output of `__complete` are those of kubectl. Words after `knarr kubectl` are completed by
//! kubectl.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, ValueHint};
use kubectl::commands::completion::{SHELLS, script};
use kubectl::completion::{Directive, write};

use crate::output::out;

/// The command that the scripts run. It is not in the table of commands: its arguments are an incomplete command line.
pub(crate) const COMPLETE: &str = "__complete";

/// Candidates with their descriptions.
type Candidates = Vec<(String, String)>;

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    let shell = Arg::new("shell").value_name("SHELL").required(true).value_parser(SHELLS);
    command.arg(shell.help("The shell")).after_help(
        "Load the script in the current shell with `source <(knarr completion bash)`, or with `knarr completion fish | \
         source`.",
    )
}

pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let script = matches.get_one::<String>("shell").and_then(|shell| script(shell, "knarr"));
    out!("{}", script.expect("clap accepts only shells with a script"));
    Ok(())
}

/// Prints the candidates for the last of the words after `knarr`.
pub(crate) fn complete(words: Vec<OsString>) -> ExitCode {
    if words.len() > 1 && words[0] == "kubectl" {
        return kubectl::main([vec![COMPLETE.into()], words[1..].to_vec()].concat());
    }
    let mut cli = crate::cli();
    cli.build();
    let words: Vec<String> = words.into_iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let (candidates, directive) = candidates(&cli, &words);
    match write(&mut std::io::stdout().lock(), &mut std::io::stderr().lock(), &candidates, directive) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// A command line before its last word.
struct Line<'a> {
    command: &'a clap::Command,
    /// The flags that were given.
    given: Vec<&'a Arg>,
    /// The number of arguments that are not flags.
    positionals: usize,
    /// The flag whose value is completed.
    flag: Option<&'a Arg>,
    /// Whether `--` precedes the last word, so that no flags follow.
    is_after_dashes: bool,
}

/// Returns the candidates for the last word. `cli` is built, so that commands have the flags of their parents.
fn candidates(cli: &clap::Command, words: &[String]) -> (Candidates, Directive) {
    let (last, before) = words.split_last().map_or(("", [].as_slice()), |(last, before)| (last.as_str(), before));
    let line = Line::of(cli, before);
    if let Some(flag) = line.flag {
        return values(flag, last, Directive::Default);
    }
    if last.starts_with('-') && !line.is_after_dashes {
        return match last.split_once('=') {
            Some((name, value)) => match find(line.command, name) {
                Some(flag) => values(flag, value, Directive::Default),
                None => (Vec::new(), Directive::NoFiles),
            },
            None => (line.flags(last), Directive::NoFiles),
        };
    }
    let commands = line.command.get_subcommands().filter(|_| line.positionals == 0 && !line.is_after_dashes);
    let commands = commands.filter(|command| !command.is_hide_set() && command.get_name().starts_with(last));
    let mut offered: Candidates =
        commands.map(|command| (command.get_name().to_owned(), first_line(command.get_about()))).collect();
    offered.sort();
    let mut positionals = line.command.get_positionals();
    let positional = positionals.nth(line.positionals).or_else(|| {
        let last = line.command.get_positionals().last()?;
        last.get_num_args().is_some_and(|count| count.max_values() > 1).then_some(last)
    });
    let Some(positional) = positional else { return (offered, Directive::NoFiles) };
    let is_path = !matches!(positional.get_value_hint(), ValueHint::Unknown | ValueHint::Other);
    let (own, directive) = values(positional, last, if is_path { Directive::Default } else { Directive::NoFiles });
    offered.extend(own);
    (offered, directive)
}

impl<'a> Line<'a> {
    fn of(cli: &'a clap::Command, words: &[String]) -> Self {
        let mut line = Self { command: cli, given: Vec::new(), positionals: 0, flag: None, is_after_dashes: false };
        for word in words {
            if line.flag.take().is_some() {
                continue;
            }
            if line.is_after_dashes {
                line.positionals += 1;
            } else if word == "--" {
                line.is_after_dashes = true;
            } else if word.len() > 1 && word.starts_with('-') {
                let flag = find(line.command, word.split('=').next().unwrap_or_default());
                line.given.extend(flag);
                line.flag = flag.filter(|flag| !word.contains('=') && flag.get_action().takes_values());
            } else if let Some(command) = line.command.find_subcommand(word).filter(|_| line.positionals == 0) {
                line.command = command;
            } else {
                line.positionals += 1;
            }
        }
        line
    }

    /// Returns the flags that start with a prefix and can be given once more.
    fn flags(&self, prefix: &str) -> Candidates {
        let is_repeatable = |arg: &Arg| matches!(arg.get_action(), ArgAction::Append | ArgAction::Count);
        let is_given = |arg: &Arg| self.given.iter().any(|given| given.get_id() == arg.get_id());
        let open = self.command.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set());
        let mut flags = Candidates::new();
        for arg in open.filter(|arg| is_repeatable(arg) || !is_given(arg)) {
            let names = arg.get_short().map(|short| format!("-{short}")).into_iter();
            let names = names.chain(arg.get_long().map(|long| format!("--{long}")));
            flags.extend(names.map(|name| (name, first_line(arg.get_help()))));
        }
        flags.retain(|(name, _)| name.starts_with(prefix));
        flags.sort();
        flags
    }
}

/// Returns the flag of a word such as `--output` or `-o`.
fn find<'a>(command: &'a clap::Command, name: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| match name.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => {
            arg.get_short().is_some() && arg.get_short() == name.strip_prefix('-').and_then(|name| name.chars().last())
        }
    })
}

/// Returns the values that a flag or positional argument accepts. Without such a list it returns
/// `default_directive`.
fn values(arg: &Arg, word: &str, default_directive: Directive) -> (Candidates, Directive) {
    let possible: Vec<_> = arg.get_possible_values().into_iter().filter(|value| !value.is_hide_set()).collect();
    if possible.is_empty() {
        return (Vec::new(), default_directive);
    }
    // The items before the last comma of a list are kept.
    let before = match arg.get_value_delimiter().and_then(|comma| word.rfind(comma)) {
        Some(at) => &word[..=at],
        None => "",
    };
    let offered = possible.iter().map(|value| {
        let help = value.get_help().map_or_else(String::new, ToString::to_string);
        (format!("{before}{}", value.get_name()), help)
    });
    (offered.filter(|(value, _)| value.starts_with(word)).collect(), Directive::NoFiles)
}

fn first_line(text: Option<&clap::builder::StyledStr>) -> String {
    let text = text.map(ToString::to_string).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(line: &str) -> (Vec<String>, Directive) {
        let mut cli = crate::cli();
        cli.build();
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (candidates, directive) = candidates(&cli, &words);
        (candidates.into_iter().map(|(name, _)| name).collect(), directive)
    }

    #[test]
    fn commands_flags_and_values_are_completed() {
        let check = |line: &str, expect: &[&str]| {
            assert_eq!(
                complete(line),
                (expect.iter().map(ToString::to_string).collect(), Directive::NoFiles),
                "{line}"
            );
        };
        check("doct", &["doctor"]);
        check("store snapshot r", &["restore"]);
        check("completion ", &["bash", "zsh", "fish"]);
        check("completion bash ", &[]);
        check("up --backg", &["--background"]);
        check("up -d --backg", &[]);
        check("up --kubelet-arg max-pods=9 --kubelet-a", &["--kubelet-arg"]);
        check("up --disable dn", &["dns"]);
        check("up --disable=dns,kub", &["dns,kubelet"]);
        check("doctor -o js", &["json"]);
        check("up --log info --no-such-flag", &[]);
        check("config show se", &["server"]);
    }

    #[test]
    fn paths_are_completed_by_the_shell() {
        for line in ["up --data-dir /v", "up --data-dir=/v", "store snapshot save b", "config check /e"] {
            assert_eq!(complete(line), (Vec::new(), Directive::Default), "{line}");
        }
    }

    #[test]
    fn hidden_flags_and_words_after_the_end_of_flags_are_not_offered() {
        assert!(!complete("down --").0.contains(&"--node".to_owned()));
        assert!(complete("down --").0.contains(&"--purge".to_owned()));
        assert_eq!(complete("config check -- -").0, [""; 0]);
    }

    #[test]
    fn scripts_complete_knarr_and_not_kubectl() {
        for shell in SHELLS {
            let script = script(shell, "knarr").unwrap();
            assert!(script.contains("knarr") && !script.contains("kubectl"), "{shell}: {script}");
        }
    }
}
