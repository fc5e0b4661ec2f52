//! Runs this command again through sudo if it needs root and a user at a terminal can enter a password.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{output, settings};

/// Replaces this process by `sudo` with the same command line. Returns if it already runs as root, or if there is no
/// terminal or no sudo; the preflight checks then report that root is missing.
pub(super) fn run_as_root() -> Result<()> {
    if rustix::process::geteuid().is_root() || !std::io::stdin().is_terminal() {
        return Ok(());
    }
    let Some(sudo) = find("sudo", std::env::var_os("PATH").as_deref()) else { return Ok(()) };
    let this = std::env::current_exe().context("failed to find the path of this executable")?;
    output::error_line(format_args!("pods need root: running `sudo {}`", this.display()));
    let arguments = arguments(&this, &settings::variables(), std::env::args_os().skip(1));
    let error = Command::new(sudo).args(arguments).exec();
    Err(error).context("failed to run sudo; run this command as root")
}

/// Returns the arguments of sudo. The executable is named by its path, because sudo uses a different search path.
fn arguments(this: &Path, variables: &[String], own: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let kept = (!variables.is_empty()).then(|| format!("--preserve-env={}", variables.join(",")).into());
    kept.into_iter().chain(["--".into(), this.as_os_str().to_owned()]).chain(own).collect()
}

/// Returns the first file of that name in a search path.
fn find(name: &str, path: Option<&OsStr>) -> Option<std::path::PathBuf> {
    std::env::split_paths(path?).map(|dir| dir.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sudo_runs_the_same_command_line() {
        let check = |variables: &[&str], expect: &[&str]| {
            let variables: Vec<String> = variables.iter().map(ToString::to_string).collect();
            let own = ["up", "--nodes", "3"].map(OsString::from);
            assert_eq!(arguments(Path::new("/opt/knarr"), &variables, own.into_iter()), expect);
        };
        check(&[], &["--", "/opt/knarr", "up", "--nodes", "3"]);
        let kept = "--preserve-env=KNARR_CONFIG,KNARR_LOG";
        check(&["KNARR_CONFIG", "KNARR_LOG"], &[kept, "--", "/opt/knarr", "up", "--nodes", "3"]);
    }

    #[test]
    fn first_file_of_the_search_path_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("a"), dir.path().join("b"));
        for dir in [&first, &second] {
            std::fs::create_dir(dir).unwrap();
        }
        std::fs::write(second.join("sudo"), "").unwrap();
        let path = std::env::join_paths([&first, &second]).unwrap();
        assert_eq!(find("sudo", Some(&path)), Some(second.join("sudo")));
        assert_eq!(find("sudo", Some(first.as_os_str())), None);
        assert_eq!(find("sudo", None), None);
    }
}
