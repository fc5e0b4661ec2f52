//! `--background` and `--systemd-unit`: clusters that outlive the shell that started them.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Instance, instance};
use crate::join::{JoinToken, token_args};
use crate::output::out;
use crate::service_unit;

/// Interval at which the lock file is polled for readiness.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Starts this binary again, detached from the terminal, and waits until its cluster is ready.
pub(crate) fn start(data_dir: &Path) -> Result<()> {
    if let Some(holder) = Instance::holder(data_dir)? {
        bail!("a cluster already runs as process {holder}; stop it with `knarr down`");
    }
    instance::prepare(data_dir)?;
    let output = data_dir.join("up.out");
    let file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&output)?;
    let this = std::env::current_exe().context("failed to find the path of this executable")?;
    let arguments = std::env::args_os().skip(1).filter(|argument| argument != "-d" && argument != "--background");
    let mut child = Command::new(this)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .process_group(0)
        .spawn()?;
    while !Instance::is_ready(data_dir) || Instance::holder(data_dir)? != Some(child.id()) {
        if child.try_wait()?.is_some() {
            bail!("{}", std::fs::read_to_string(&output).unwrap_or_default().trim());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    out!("{}", std::fs::read_to_string(&output)?);
    Ok(())
}

/// Prints a systemd unit for this command line. Units are world-readable, so a token in the arguments is moved to a
/// file that only root may read. The file is deleted when the node has joined.
pub(crate) fn print_unit(data_dir: &Path) -> Result<()> {
    let (arguments, token) = token_args::split(std::env::args_os().skip(1));
    let file = match token {
        Some(token) => {
            JoinToken::parse(&token)?;
            Some(token_args::store_token(data_dir, &token)?)
        }
        None => None,
    };
    let arguments = unit_arguments(arguments, file.as_deref());
    let down = ["--data-dir".to_owned(), std::path::absolute(data_dir)?.display().to_string()];
    out!("{}", service_unit::systemd(&std::env::current_exe()?, &arguments, &down));
    Ok(())
}

/// Returns the arguments of a unit for this command line.
fn unit_arguments(arguments: Vec<OsString>, token_file: Option<&Path>) -> Vec<String> {
    let of_now = ["--systemd-unit", "-d", "--background"];
    let arguments = arguments.into_iter().map(|argument| argument.to_string_lossy().into_owned());
    let token_file = token_file.map(|file| format!("--token-file={}", file.display()));
    arguments.filter(|argument| !of_now.contains(&argument.as_str())).chain(token_file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_runs_the_same_command_line_with_a_token_file() {
        let typed = ["server", "--join", "https://192.0.2.1:6443", "--systemd-unit", "-d", "--kubelet-arg", "a<5%"];
        let file = Path::new("/var/lib/knarr/join-token");
        let arguments = unit_arguments(typed.map(OsString::from).to_vec(), Some(file));
        let expect = ["server", "--join", "https://192.0.2.1:6443", "--kubelet-arg", "a<5%"];
        assert_eq!(arguments[..5], expect);
        assert_eq!(arguments[5..], ["--token-file=/var/lib/knarr/join-token"]);
    }
}
