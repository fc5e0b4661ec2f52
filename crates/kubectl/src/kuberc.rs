//! kuberc: the user's preferences: aliases of commands, defaults of flags, and the policy of credential plugins.
//!
//! The file is `~/.kube/kuberc`, or that of `--kuberc` or of the environment variable `KUBERC`, which may be `off`.

mod decode;
mod expand;

use std::io::Write;
use std::path::{Path, PathBuf};

use client::config::PluginPolicy;

use crate::failure::go_io_error;
use crate::transport::log;
use crate::{Failure, context, flags};

pub use expand::{apply_defaults, expand_alias, set_options};

/// The verbosity from which the reading of the file is logged.
const LEVEL: i64 = 5;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preference {
    pub defaults: Vec<Defaults>,
    pub aliases: Vec<Alias>,
    pub plugin_policy: PluginPolicy,
}

/// Values of flags that a command has when they are not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    /// `get` or `set image`.
    pub command: String,
    pub options: Vec<FlagValue>,
}

/// Another name of a command, with arguments and flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alias {
    pub name: String,
    /// `get` or `set image`.
    pub command: String,
    /// Arguments after the command.
    pub prepend_args: Vec<String>,
    /// Arguments at the end of the command line.
    pub append_args: Vec<String>,
    pub options: Vec<FlagValue>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlagValue {
    /// The long name, without dashes.
    pub name: String,
    pub value: String,
}

/// The preference file and whether it was named explicitly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    pub file: PathBuf,
    pub explicit: bool,
}

/// Whether `KUBECTL_KUBERC` disables preferences and the command that edits them.
pub fn is_disabled() -> bool {
    std::env::var("KUBECTL_KUBERC").is_ok_and(|value| flags::parse_bool(&value) == Some(false))
}

/// Returns the preference file for the value of `--kuberc`, which may be empty; `None` if `KUBERC` is `off`.
pub fn locate(flag: &str) -> Result<Option<Location>, Failure> {
    let variable = std::env::var("KUBERC").unwrap_or_default();
    location(flag, &variable, &context::home().join(".kube/kuberc"))
}

fn location(flag: &str, variable: &str, default: &Path) -> Result<Option<Location>, Failure> {
    let explicit = |file: &str| Ok(Some(Location { file: file.into(), explicit: true }));
    match (flag, variable) {
        ("", "off") => Ok(None),
        (_, "off") => {
            Err(Failure::new("disabling kuberc via KUBERC=off and passing kuberc flag are mutually exclusive"))
        }
        ("", "") => Ok(Some(Location { file: default.to_owned(), explicit: false })),
        ("", file) | (file, _) => explicit(file),
    }
}

/// Reads the preferences for a command line; `None` if there are none.
pub fn load(args: &[String]) -> Result<Option<Preference>, Failure> {
    if args.is_empty() || is_disabled() {
        return Ok(None);
    }
    let flag = flag_value(args).map_err(failure)?;
    let Some(location) = locate(&flag).map_err(|error| failure(format!("kuberc error {}", error.message)))? else {
        return Ok(None);
    };
    let Some(preference) = read(&location, verbosity(args))? else { return Ok(None) };
    preference.validate().map_err(failure)?;
    Ok(Some(preference))
}

/// Returns the failure to use the preferences.
pub fn failure(message: impl std::fmt::Display) -> Failure {
    Failure::plain(format!("error occurred while applying preferences {message}"))
}

fn read(location: &Location, verbosity: i64) -> Result<Option<Preference>, Failure> {
    let file = location.file.display();
    let mut stderr = std::io::stderr().lock();
    let text = match std::fs::read_to_string(&location.file) {
        Ok(text) => text,
        Err(error) if location.explicit => {
            return Err(failure(format_args!("kuberc error kuberc: open {file}: {}", go_io_error(&error))));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let error = go_io_error(&error);
            let _ = writeln!(stderr, "kuberc: no preferences loaded from {file}: open {file}: {error}");
            return Ok(None);
        }
    };
    let decoded = decode::decode_file(&text, |entry, problem| {
        if verbosity >= LEVEL {
            log::line("marshal.go:82", &format!("kuberc: entry {entry} in {file}: {problem}"));
        }
    });
    match decoded {
        Ok(Some(decoded)) => {
            if !decoded.problems.is_empty() {
                let problems = decoded.problems.join(", ");
                let _ = writeln!(
                    stderr,
                    "kuberc: ignoring strict decoding error in {file}: strict decoding error: {problems}"
                );
            }
            let policy = PluginPolicy::new(&decoded.policy, decoded.allowlist).map_err(failure)?;
            Ok(Some(Preference { plugin_policy: policy, ..decoded.preference }))
        }
        Ok(None) => {
            if verbosity >= LEVEL {
                log::line("marshal.go:110", &format!("kuberc: no preferences found in {file}"));
            }
            Ok(None)
        }
        Err(decode::NoPreference) => {
            let problem = format!("no valid preferences found in {file}, use --v=5 to see details");
            if location.explicit {
                return Err(failure(format_args!("kuberc error kuberc: {problem}")));
            }
            let _ = writeln!(stderr, "kuberc: no preferences loaded from {file}: {problem}");
            Ok(None)
        }
    }
}

impl Preference {
    fn validate(&self) -> Result<(), String> {
        let options = |options: &[FlagValue]| match options.iter().find(|option| option.name.starts_with('-')) {
            Some(option) => Err(format!("flag name {} should be in long form without dashes", option.name)),
            None => Ok(()),
        };
        for (at, alias) in self.aliases.iter().enumerate() {
            if alias.name.is_empty() || !alias.name.bytes().all(|byte| byte.is_ascii_alphabetic()) {
                return Err("invalid alias name, can only include alphabetical characters".to_owned());
            }
            options(&alias.options)?;
            if self.aliases[..at].iter().any(|earlier| earlier.name == alias.name) {
                return Err(format!("duplicate alias name {}", alias.name));
            }
        }
        self.defaults.iter().try_for_each(|defaults| options(&defaults.options))
    }
}

/// Returns the value of `--kuberc`, which is needed before the command is known; empty if it is not given.
fn flag_value(args: &[String]) -> Result<String, &'static str> {
    let mut args = args.iter().take_while(|arg| *arg != "--");
    while let Some(arg) = args.next() {
        let value = match arg.strip_prefix("--kuberc") {
            Some("") => args.next().map(String::as_str),
            Some(rest) => match rest.strip_prefix('=') {
                Some(value) => Some(value),
                None => continue,
            },
            None => continue,
        };
        return value.filter(|value| !value.is_empty()).map(str::to_owned).ok_or("kuberc file is not found");
    }
    Ok(String::new())
}

/// Returns the value of `-v`, which is needed before the command is known.
fn verbosity(args: &[String]) -> i64 {
    let mut args = args.iter().take_while(|arg| *arg != "--");
    while let Some(arg) = args.next() {
        let value = match arg.as_str() {
            "-v" | "--v" => args.next().map(String::as_str),
            other => {
                other.strip_prefix("--v=").or_else(|| other.strip_prefix("-v=")).or_else(|| other.strip_prefix("-v"))
            }
        };
        if let Some(level) = value.and_then(|value| value.parse().ok()) {
            return level;
        }
    }
    0
}

#[cfg(test)]
mod tests;
