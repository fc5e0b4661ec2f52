//! The log: one format for all commands, and a level per component by `--log` or `KNARR_LOG`.

use std::sync::OnceLock;

use anyhow::{Context, Result};
use tracing::Level;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The environment variable with log levels. The flag takes precedence.
pub(crate) const VARIABLE: &str = "KNARR_LOG";

/// The log levels that the user has chosen.
static CHOSEN: OnceLock<String> = OnceLock::new();

/// Adds `--log` to every command.
pub(crate) fn argument(command: clap::Command) -> clap::Command {
    command.arg(
        clap::Arg::new("log")
            .long("log")
            .global(true)
            .value_name("LEVELS")
            .value_parser(|text: &str| parse(text, Level::INFO).map(|_| text.to_owned()))
            .help("Log levels, such as info or kubelet=debug,info [env: KNARR_LOG]"),
    )
}

/// Reads the levels from the flag or the environment. Fails if the environment variable is invalid.
pub(crate) fn choose(matches: &clap::ArgMatches) -> Result<()> {
    let chosen = match matches.get_one::<String>("log") {
        Some(text) => Some(text.clone()),
        None => std::env::var(VARIABLE).ok().filter(|text| !text.is_empty()),
    };
    if let Some(text) = chosen {
        parse(&text, Level::INFO).map_err(anyhow::Error::msg).with_context(|| format!("invalid {VARIABLE}"))?;
        let _ = CHOSEN.set(text);
    }
    Ok(())
}

/// Returns the chosen levels, to pass them to child processes in [`VARIABLE`].
pub(crate) fn chosen() -> Option<&'static str> {
    CHOSEN.get().map(String::as_str)
}

/// Starts the log on standard error. `level` applies to all components if no levels are chosen.
pub(crate) fn to_stderr(level: Level) {
    start(level, std::io::stderr, true);
}

/// Starts the log in a file, without colours.
pub(crate) fn to_file(level: Level, writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static) {
    start(level, writer, false);
}

fn start(level: Level, writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static, ansi: bool) {
    let levels =
        chosen().and_then(|text| parse(text, level).ok()).unwrap_or_else(|| Targets::new().with_default(level));
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    let layer = if ansi { layer } else { layer.with_ansi(false) };
    tracing_subscriber::registry().with(layer.with_filter(levels)).init();
}

/// Parses levels. Components have the names of their crates, such as `kube-apiserver`; later entries override earlier
/// ones. Components that are not named have the level without a name, or else `level`.
fn parse(text: &str, level: Level) -> Result<Targets, String> {
    let mut targets = Targets::new().with_default(level);
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (component, name) =
            entry.split_once('=').map_or((None, entry), |(component, name)| (Some(component), name));
        let level: LevelFilter = name
            .parse()
            .map_err(|_| format!("unknown level {name:?} in {entry:?}; use off, error, warn, info, debug or trace"))?;
        targets = match component {
            // The target of a log line is a module path.
            Some(component) => targets.with_target(component.replace('-', "_"), level),
            None => targets.with_default(level),
        };
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_apply_to_components_by_name() {
        let levels = parse("kubelet=debug,kube-apiserver=error, warn", Level::INFO).unwrap();
        for (target, level, expect) in [
            ("kubelet::pods", Level::DEBUG, true),
            ("kubelet", Level::TRACE, false),
            ("kube_apiserver::request", Level::WARN, false),
            ("kube_apiserver::request", Level::ERROR, true),
            ("store::member", Level::INFO, false),
            ("store::member", Level::WARN, true),
        ] {
            assert_eq!(levels.would_enable(target, &level), expect, "{target} {level}");
        }
        assert!(parse("kubelet=debug", Level::INFO).unwrap().would_enable("store", &Level::INFO));
        assert!(!parse("kubelet=debug", Level::INFO).unwrap().would_enable("store", &Level::DEBUG));
    }

    #[test]
    fn unknown_level_is_rejected_with_the_valid_ones() {
        let error = parse("kubelet=loud", Level::INFO).unwrap_err();
        assert_eq!(error, "unknown level \"loud\" in \"kubelet=loud\"; use off, error, warn, info, debug or trace");
    }
}
