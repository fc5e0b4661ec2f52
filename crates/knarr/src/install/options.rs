//! Settings of the installed service, from the flags that follow `knarr install`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use apimachinery::{Object, Value};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, FromArgMatches, ValueHint};

use crate::join::token_args::{self, TokenArgs};
use crate::settings::{self, RUN};

/// The command that the service runs, and its settings.
#[derive(Debug)]
pub(super) struct Service {
    pub command: String,
    /// The given flags without the join token, as keys of a configuration file.
    pub settings: Object,
    pub token: Option<String>,
    pub data_dir: PathBuf,
}

/// Reads a command and its flags. `file` is the configuration file of the service, whose settings apply too.
pub(super) fn read(cli: &clap::Command, args: &[OsString], file: &Path) -> Result<Service> {
    let name = args.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    ensure!(
        RUN.contains(&name.as_str()),
        "{name:?} is not a command of a service; use `knarr install up`, `server` or `agent`, followed by its flags"
    );
    let mut cli = cli.clone();
    cli.build();
    let args = [OsString::from("knarr")].into_iter().chain(args.iter().cloned()).collect();
    let completed = settings::complete_from(&cli, args, file)?;
    let matches = cli.clone().try_get_matches_from(&completed.args).map_err(|error| {
        let text = error.to_string();
        anyhow::anyhow!("{}", text.trim_start_matches("error: ").trim_end())
    })?;
    let (_, matches) = matches.subcommand().context("clap requires a command")?;
    let command = cli.find_subcommand(&name).context("clap knows the command")?;
    let accepted: Vec<&str> = settings::flags(&[command]).filter_map(Arg::get_long).collect();
    let mut settings = Object::default();
    for arg in command.get_arguments() {
        let Some(flag) = arg.get_long() else { continue };
        if matches.value_source(arg.get_id().as_str()) != Some(ValueSource::CommandLine)
            || completed.settings.contains_key(flag)
        {
            continue;
        }
        ensure!(
            accepted.contains(&flag),
            "--{flag} is not a setting of a service; for log levels, set KNARR_LOG in {}",
            crate::service_unit::ENVIRONMENT
        );
        if !token_args::FLAGS.contains(&flag) {
            settings.insert(flag, value(arg, matches)?);
        }
    }
    let data_dir: &PathBuf = matches.get_one("data_dir").context("every service has a data directory")?;
    let has_token =
        command.get_arguments().any(|arg| arg.get_id() == "token") && !completed.settings.contains_key("token-file");
    let token = if has_token { TokenArgs::from_arg_matches(matches)?.read()? } else { None };
    Ok(Service {
        command: name,
        settings,
        token: token.map(|token| token.to_string()),
        data_dir: std::path::absolute(data_dir)?,
    })
}

/// Returns the value of a given flag in the form of a configuration file. The service runs in another directory, so
/// paths are made absolute.
fn value(arg: &Arg, matches: &ArgMatches) -> Result<Value> {
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        return Ok(Value::Bool(true));
    }
    let id = arg.get_id().as_str();
    let is_path = !matches!(arg.get_value_hint(), ValueHint::Unknown | ValueHint::Other);
    let mut values = Vec::new();
    for raw in matches.get_raw(id).into_iter().flatten() {
        let text = if is_path { std::path::absolute(raw)?.into_os_string() } else { raw.to_owned() };
        let Ok(text) = text.into_string() else { bail!("--{id} is not valid UTF-8") };
        values.push(match text.parse::<i64>() {
            Ok(number) if number.to_string() == text => Value::Int(number),
            _ => Value::from(text),
        });
    }
    let is_list = arg.get_value_delimiter().is_some() || matches!(arg.get_action(), ArgAction::Append);
    Ok(match values.pop() {
        Some(only) if !is_list => only,
        last => Value::from(values.into_iter().chain(last).collect::<Vec<_>>()),
    })
}

#[cfg(test)]
mod tests {
    use apimachinery::yaml;

    use super::*;

    const TOKEN: &str = "abcdef.0123456789abcdef.0000000000000000000000000000000000000000000000000000000000000000";

    fn read_line(line: &str, file: &Path) -> Result<Service> {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        read(&crate::cli(), &args, file)
    }

    #[test]
    fn flags_become_keys_of_a_configuration_file() {
        let file = Path::new("/nowhere/etc/knarr/config.yaml");
        let service = read_line(
            "up --node-name one --disable ingress,dns --secure-port 7443 --static-pods --kubelet-arg a=1 --kubelet-arg b",
            file,
        )
        .unwrap();
        let expect = "disable:\n- ingress\n- dns\nkubelet-arg:\n- a=1\n- b\nnode-name: one\nsecure-port: 7443\nstatic-pods: true\n";
        assert_eq!(yaml::to_string(&Value::Object(service.settings)), expect);
        assert_eq!((service.command.as_str(), service.data_dir), ("up", PathBuf::from("/var/lib/knarr")));
        assert!(service.token.is_none());
        let service = read_line("up --data-dir x", file).unwrap();
        assert_eq!(service.data_dir, std::env::current_dir().unwrap().join("x"));
        assert_eq!(service.settings.get("data-dir").and_then(Value::as_str), service.data_dir.to_str());
    }

    #[test]
    fn token_is_separated_from_the_settings() {
        let service = read_line(&format!("agent --server https://a:6443 --token {TOKEN}"), Path::new("")).unwrap();
        assert_eq!(service.token.as_deref(), Some(TOKEN));
        assert_eq!(yaml::to_string(&Value::Object(service.settings)), "server: https://a:6443\n");
    }

    #[test]
    fn flags_of_a_single_call_and_invalid_flags_are_rejected() {
        let check = |line: &str, expect: &str| {
            let error = format!("{:#}", read_line(line, Path::new("")).unwrap_err());
            assert!(error.contains(expect), "{line}: {error}");
        };
        check("up -d", "--background is not a setting of a service");
        check("up --log debug", "--log is not a setting of a service");
        check("up --systemd-unit", "--systemd-unit is not a setting");
        check("agent --server https://a --netns /x", "--netns is not a setting");
        check("up --nod-name x", "unexpected argument '--nod-name' found");
        check("agent", "--server");
        check("status", "\"status\" is not a command of a service");
    }

    #[test]
    fn settings_of_the_configuration_file_apply_and_are_not_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.yaml");
        std::fs::write(&file, "server: https://a:6443\ndata-dir: /srv/knarr\n").unwrap();
        let service = read_line("agent --node-name two", &file).unwrap();
        assert_eq!(yaml::to_string(&Value::Object(service.settings)), "node-name: two\n");
        assert_eq!(service.data_dir, PathBuf::from("/srv/knarr"));
    }
}
