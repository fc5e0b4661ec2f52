//! Runs this command again through sudo if it needs root and a user at a terminal can enter a password.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::output;

/// Environment variables that sudo keeps.
const PRESERVED_ENV: &str = "--preserve-env=KNARR_LOG";

/// Replaces this process by `sudo` with the same command line. Returns if it already runs as root, or if there is no
/// terminal or no sudo; the preflight checks then report that root is missing.
pub(super) fn run_as_root() -> Result<()> {
    if rustix::process::geteuid().is_root() || !std::io::stdin().is_terminal() {
        return Ok(());
    }
    let Some(sudo) = find("sudo", std::env::var_os("PATH").as_deref()) else { return Ok(()) };
    let this = std::env::current_exe().context("failed to find the path of this executable")?;
    output::error_line(format_args!("pods need root: running `sudo {}`", this.display()));
    let error = Command::new(sudo).args(arguments(&this, std::env::args_os().skip(1))).exec();
    Err(error).context("failed to run sudo; run this command as root")
}

/// Returns the arguments of sudo. The executable is named by its path, because sudo uses a different search path.
fn arguments(this: &Path, own: impl Iterator<Item = OsString>) -> Vec<OsString> {
    [PRESERVED_ENV.into(), "--".into(), this.as_os_str().to_owned()].into_iter().chain(own).collect()
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
        let own = ["up", "--nodes", "3"].map(OsString::from);
        let expect = ["--preserve-env=KNARR_LOG", "--", "/opt/knarr", "up", "--nodes", "3"];
        assert_eq!(arguments(Path::new("/opt/knarr"), own.into_iter()), expect);
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
