//! Flags from the environment and from configuration files.
//!
//! Each flag takes its value from the first of: the command line, the environment (`KNARR_NODE_NAME` for
//! `--node-name`), the files of `config.d` (later names first), `config.yaml`, the default. Values that the command
//! line does not give are inserted into it, so clap checks every value in the same way.

mod file;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::error::ContextKind;
use clap::{Arg, ArgAction};

pub(crate) use file::is_secret;

use crate::{registry_flags, service_manager};

/// The default configuration file. The drop-in files are in the directory [`DROP_INS`] beside it.
pub(crate) const FILE: &str = "/etc/knarr/config.yaml";
/// Name of the directory with drop-in files.
pub(crate) const DROP_INS: &str = "config.d";
/// The environment variable with the path of the configuration file. Empty: no files are read.
const FILE_VARIABLE: &str = "KNARR_CONFIG";
/// Commands that run a cluster or a node. They use all settings; the keys of a file are their flags.
pub(crate) const RUN: [&str; 3] = ["up", "server", "agent"];
/// The settings that all other commands with these flags use, so that they find the cluster and pull as it does.
const SHARED: [&str; 3] = ["data-dir", registry_flags::PRIVATE_REGISTRY, registry_flags::CONFIG_DIR];
/// Flags that belong to a single call.
const PER_CALL: [&str; 6] = ["background", "config", "help", "log", "systemd-unit", "version"];

/// A value and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub value: FlagValue,
    pub source: Source,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FlagValue {
    /// A flag without a value, which is given or not.
    Switch(bool),
    /// The values of a flag, in order.
    Texts(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A key of a file.
    File { path: PathBuf, line: usize },
    /// An environment variable.
    Environment(String),
}

/// Settings by flag name.
pub(crate) type Settings = BTreeMap<String, Setting>;

impl std::fmt::Display for FlagValue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Switch(is_given) => write!(formatter, "{is_given}"),
            Self::Texts(texts) => write!(formatter, "{}", texts.join(",")),
        }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File { path, line } => write!(formatter, "{}:{line}", path.display()),
            Self::Environment(name) => write!(formatter, "environment variable {name}"),
        }
    }
}

/// A command line with the settings that apply to it.
pub(crate) struct CompletedArgs {
    pub args: Vec<OsString>,
    /// The inserted settings.
    pub settings: Settings,
}

/// Adds `--config` to the commands that use all settings.
pub(crate) fn argument(command: clap::Command) -> clap::Command {
    if !RUN.contains(&command.get_name()) {
        return command;
    }
    command.arg(
        Arg::new("config")
            .long("config")
            .value_name("FILE")
            .help(format!("Configuration file [env: {FILE_VARIABLE}] [default: {FILE}]")),
    )
}

/// Returns the names of the environment variables of this binary that are set.
pub(crate) fn variables() -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("KNARR_")).collect();
    names.sort();
    names
}

/// Removes the settings from the environment of a child process that gets its complete command line.
pub(crate) fn clear(command: &mut std::process::Command) {
    for name in variables().iter().map(String::as_str).chain(service_manager::VARIABLES) {
        command.env_remove(name);
    }
    command.env(FILE_VARIABLE, "");
}

/// Inserts the settings of a configuration file and of the drop-in files beside it, and not those of the environment.
pub(crate) fn complete_from(cli: &clap::Command, args: Vec<OsString>, file: &Path) -> Result<CompletedArgs> {
    let (path, at) = subcommand(cli, &args);
    let settings = configured(cli, file)?;
    Ok(insert(&path, args, at, settings))
}

/// Inserts the settings that apply to the command of `args`.
pub(crate) fn complete(cli: &clap::Command, args: Vec<OsString>) -> Result<CompletedArgs> {
    let (path, at) = subcommand(cli, &args);
    let runs = path.get(1).is_some_and(|command| RUN.contains(&command.get_name()));
    let mut shared = flags(&path).filter(|arg| arg.get_long().is_some_and(|long| SHARED.contains(&long)));
    if !runs && shared.all(|arg| is_given(arg, &args)) {
        return Ok(CompletedArgs { args, settings: Settings::new() });
    }
    // Another command may have a `--config` of its own, such as the kubelet's.
    let file = file_path(if runs { &args[at..] } else { &[] });
    let mut settings = configured(cli, &file)?;
    settings.extend(from_environment(flags(&path), |name| std::env::var_os(name))?);
    let settings = if runs { settings } else { shared_by_all(settings) };
    Ok(insert(&path, args, at, settings))
}

/// Returns the settings of commands that do not run a cluster or a node. Their flags have other meanings: `hollow
/// --nodes` is the number of simulated nodes.
fn shared_by_all(mut settings: Settings) -> Settings {
    settings.retain(|flag, _| SHARED.contains(&flag.as_str()));
    settings
}

/// Returns the command line `knarr NAME` with settings.
pub(crate) fn with(cli: &clap::Command, name: &str, settings: Settings) -> Result<Vec<OsString>> {
    let command = cli.find_subcommand(name).with_context(|| format!("unknown command {name:?}"))?;
    Ok(insert(&[command], vec!["knarr".into(), name.into()], 2, settings).args)
}

/// Returns the settings of the configuration files, checked against the flags of the commands in [`RUN`].
pub(crate) fn configured(cli: &clap::Command, path: &Path) -> Result<Settings> {
    let mut settings = Settings::new();
    if path.as_os_str().is_empty() {
        return Ok(settings);
    }
    for file in files(path)? {
        for (key, entry) in file::read(&file)? {
            let source = Source::File { path: file.clone(), line: entry.line };
            let at = |error: String| anyhow::anyhow!("{source}: {error}");
            let arg = flag(cli, &key).ok_or_else(|| at(unknown(cli, &key)))?;
            match entry.values(arg).map_err(|error| at(format!("{key}: {error}")))? {
                Some(value) => settings.insert(key, Setting { value, source }),
                // `null` in a drop-in file restores the default.
                None => settings.remove(&key),
            };
        }
    }
    Ok(settings)
}

/// Returns the existing files in the order in which they are applied.
fn files(path: &Path) -> Result<Vec<PathBuf>> {
    let drop_ins = path.with_file_name(DROP_INS);
    let mut found: Vec<PathBuf> = match std::fs::read_dir(&drop_ins) {
        Ok(entries) => {
            let paths: std::io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
            paths.with_context(|| format!("failed to list {}", drop_ins.display()))?
        }
        Err(error) if is_absent(&error) => Vec::new(),
        Err(error) => return Err(error).with_context(|| format!("failed to list {}", drop_ins.display())),
    };
    found.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    found.sort();
    match std::fs::metadata(path) {
        Ok(_) => found.insert(0, path.to_owned()),
        // The default file may be absent, also below another root directory.
        Err(error) if is_absent(&error) && path.ends_with(FILE.trim_start_matches('/')) => {}
        Err(error) => return Err(error).with_context(|| format!("failed to read {}", path.display())),
    }
    Ok(found)
}

/// Whether a default file or directory does not exist, or belongs to root while this process is another user's. The
/// commands that need the settings need root too.
fn is_absent(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | NotADirectory)
        || error.kind() == PermissionDenied && !rustix::process::geteuid().is_root()
}

/// Returns the path of the configuration file: the flag, the environment variable, or the default.
fn file_path(args: &[OsString]) -> PathBuf {
    let texts = args.iter().take_while(|arg| *arg != "--").filter_map(|arg| arg.to_str());
    let mut given = None;
    let mut is_next = false;
    for text in texts {
        if is_next {
            given = Some(text);
        }
        is_next = text == "--config";
        given = text.strip_prefix("--config=").or(given);
    }
    let variable = std::env::var_os(FILE_VARIABLE);
    given.map(PathBuf::from).or(variable.map(PathBuf::from)).unwrap_or_else(|| PathBuf::from(FILE))
}

/// Returns the commands from `cli` to the innermost subcommand of a command line, and the index after its name.
fn subcommand<'a>(cli: &'a clap::Command, args: &[OsString]) -> (Vec<&'a clap::Command>, usize) {
    let (mut path, mut at) = (vec![cli], 1);
    for (index, arg) in args.iter().enumerate().skip(1).take_while(|(_, arg)| *arg != "--") {
        if let Some(inner) = path.last().and_then(|command| command.find_subcommand(arg)) {
            path.push(inner);
            at = index + 1;
        }
    }
    (path, at.min(args.len()))
}

/// Returns the flags of the last command of a path that may be set.
pub(crate) fn flags<'a>(path: &[&'a clap::Command]) -> impl Iterator<Item = &'a Arg> + use<'a> {
    let (own, outer) = path.split_last().map_or((None, path), |(own, outer)| (Some(*own), outer));
    let global = outer.iter().flat_map(|command| command.get_arguments()).filter(|arg| arg.is_global_set());
    let is_accepted = |arg: &&Arg| {
        arg.get_long().is_some_and(|long| !PER_CALL.contains(&long)) && !arg.is_hide_set() && !arg.is_positional()
    };
    own.into_iter().flat_map(clap::Command::get_arguments).chain(global.collect::<Vec<_>>()).filter(is_accepted)
}

/// Returns the flag with this name of one of the commands in [`RUN`].
fn flag<'a>(cli: &'a clap::Command, name: &str) -> Option<&'a Arg> {
    run_flags(cli).find(|arg| arg.get_long() == Some(name))
}

fn run_flags(cli: &clap::Command) -> impl Iterator<Item = &Arg> {
    RUN.iter().filter_map(|name| cli.find_subcommand(name)).flat_map(|command| flags(&[command]))
}

/// Returns the message for an unknown key, with the flag that clap suggests.
fn unknown(cli: &clap::Command, key: &str) -> String {
    let suggestion = |name: &&str| {
        let error = cli.clone().try_get_matches_from(["knarr", name, &format!("--{key}")]).err()?;
        error.get(ContextKind::SuggestedArg).map(ToString::to_string)
    };
    match RUN.iter().find_map(suggestion) {
        Some(flag) => format!("unknown key {key:?}; did you mean {:?}?", flag.trim_start_matches('-')),
        None => format!("unknown key {key:?}; the keys are the flags of `knarr up`, `server` and `agent`"),
    }
}

/// Returns the settings of these flags in the environment. An empty variable counts as absent.
pub(crate) fn from_environment<'a>(
    flags: impl Iterator<Item = &'a Arg>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Settings> {
    let mut settings = Settings::new();
    // clap itself reads the variables of flags that name one.
    for arg in flags.filter(|arg| arg.get_env().is_none()) {
        let Some(long) = arg.get_long() else { continue };
        let name = variable_name(long);
        let Some(text) = variable(&name).filter(|text| !text.is_empty()) else { continue };
        let text = text.into_string().ok().with_context(|| format!("{name} is not valid UTF-8"))?;
        let value = if is_switch(arg) {
            match text.as_str() {
                "true" | "1" => FlagValue::Switch(true),
                "false" | "0" => FlagValue::Switch(false),
                _ => bail!("{name}={text:?} is invalid: use true or false"),
            }
        } else {
            FlagValue::Texts(vec![text])
        };
        settings.insert(long.to_owned(), Setting { value, source: Source::Environment(name) });
    }
    Ok(settings)
}

/// Returns the environment variable of a flag.
fn variable_name(flag: &str) -> String {
    format!("KNARR_{}", flag.replace('-', "_").to_uppercase())
}

fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

/// Inserts the settings of flags that are not in the command line, and that do not conflict with one that is.
fn insert(path: &[&clap::Command], mut args: Vec<OsString>, at: usize, mut settings: Settings) -> CompletedArgs {
    let typed: Vec<&Arg> = flags(path).filter(|arg| is_given(arg, &args)).collect();
    let conflicts = |one: &Arg, other: &Arg| {
        path.last().is_some_and(|command| {
            command.get_arg_conflicts_with(one).iter().any(|conflict| conflict.get_id() == other.get_id())
        })
    };
    let is_overridden = |arg: &Arg| {
        typed.iter().any(|typed| typed.get_id() == arg.get_id() || conflicts(typed, arg) || conflicts(arg, typed))
    };
    settings.retain(|flag, _| flags(path).any(|arg| arg.get_long() == Some(flag) && !is_overridden(arg)));
    let mut inserted: Vec<OsString> = Vec::new();
    for (flag, setting) in &settings {
        match &setting.value {
            FlagValue::Switch(true) => inserted.push(format!("--{flag}").into()),
            FlagValue::Switch(false) => {}
            FlagValue::Texts(texts) => inserted.extend(texts.iter().map(|text| format!("--{flag}={text}").into())),
        }
    }
    args.splice(at..at, inserted);
    CompletedArgs { args, settings }
}

/// Whether the arguments give this flag.
fn is_given(arg: &Arg, args: &[OsString]) -> bool {
    args.iter().take_while(|text| *text != "--").any(|text| names(arg, text))
}

/// Whether an argument gives this flag.
fn names(arg: &Arg, text: &OsStr) -> bool {
    let Some(text) = text.to_str() else { return false };
    let long = arg.get_long().zip(text.strip_prefix("--")).is_some_and(|(long, text)| {
        text.strip_prefix(long).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    });
    let short = arg.get_short().zip(text.strip_prefix('-'));
    long || short.is_some_and(|(short, text)| text.starts_with(short))
}

#[cfg(test)]
mod tests;
