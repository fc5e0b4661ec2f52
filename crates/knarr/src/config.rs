//! `knarr config`: checks and shows the settings of configuration files and the environment.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, FromArgMatches, Subcommand};

use crate::output::{out, outln};
use crate::settings::{self, RUN, Settings};

/// Check and show the settings of configuration files and the environment.
#[derive(Args, Debug)]
struct Config {
    #[command(subcommand)]
    what: ConfigCommand,
}

#[derive(Subcommand, Debug)]
enum ConfigCommand {
    /// Check the keys and values of a configuration file and of the drop-in files beside it.
    Check {
        /// Configuration file.
        #[arg(default_value = settings::FILE)]
        file: PathBuf,
    },
    /// Show the flags of a command with their values and the sources of these.
    Show {
        /// Command whose flags are shown.
        #[arg(default_value = RUN[0], value_parser = RUN)]
        command: String,
        /// Configuration file.
        #[arg(long, default_value = settings::FILE)]
        file: PathBuf,
    },
}

pub(crate) fn arguments(command: clap::Command) -> clap::Command {
    Config::augment_args(command)
}

pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let cli = crate::cli();
    match Config::from_arg_matches(matches)?.what {
        ConfigCommand::Check { file } => check(&cli, &file),
        ConfigCommand::Show { command, file } => {
            out!("{}", table(&cli, &command, &file)?);
            Ok(())
        }
    }
}

fn check(cli: &clap::Command, file: &Path) -> Result<()> {
    let settings = settings::configured(cli, file)?;
    let invalid: Vec<String> = RUN.iter().flat_map(|command| invalid_values(cli, command, &settings)).collect();
    if let Some(first) = invalid.first() {
        bail!("{first}");
    }
    outln!("{} settings are valid", settings.len());
    Ok(())
}

/// Returns the errors of a command's flags with values that it rejects.
fn invalid_values(cli: &clap::Command, command: &str, settings: &Settings) -> Vec<String> {
    let reject = |(flag, setting): (&String, &settings::Setting)| {
        let one = Settings::from([(flag.clone(), setting.clone())]);
        let args = settings::with(cli, command, one).ok()?;
        let error = cli.clone().try_get_matches_from(args).err()?;
        let is_value = matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue);
        is_value.then(|| format!("{}: {}", setting.source, first_line(&error)))
    };
    settings.iter().filter_map(reject).collect()
}

/// Returns the first line of clap's message, without its prefix.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// Returns the flags of a command with their values and sources, without secrets.
pub(crate) fn table(cli: &clap::Command, name: &str, file: &Path) -> Result<String> {
    let command = cli.find_subcommand(name).context("clap knows the command")?;
    let mut settings = settings::configured(cli, file)?;
    settings.extend(settings::from_environment(settings::flags(&[command]), |name| std::env::var_os(name))?);
    let mut table = format!("{:<28} {:<36} SOURCE\n", "FLAG", "VALUE");
    for arg in settings::flags(&[command]) {
        let Some(flag) = arg.get_long() else { continue };
        let (value, source) = match settings.get(flag) {
            Some(setting) => (setting.value.to_string(), setting.source.to_string()),
            None => {
                let defaults: Vec<_> = arg.get_default_values().iter().map(|text| text.to_string_lossy()).collect();
                (defaults.join(","), "default".to_owned())
            }
        };
        let value = if settings::is_secret(flag) && !value.is_empty() { "(hidden)".to_owned() } else { value };
        let _ = writeln!(table, "{flag:<28} {value:<36} {source}");
    }
    Ok(table)
}
