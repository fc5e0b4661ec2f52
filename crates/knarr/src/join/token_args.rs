//! Join token arguments: a file, an environment variable, or a command line argument that is hidden from other users.

use std::ffi::OsString;
use std::fs::File;
use std::io::{PipeReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use rustix::io::{FdFlags, fcntl_setfd};

use super::JoinToken;
use crate::up::DATA_DIR_MODE;

/// The flags of [`TokenArgs`].
pub(crate) const FLAGS: [&str; 2] = ["token", "token-file"];
/// Maximum size of a token: four parts of at most 64 characters, with a margin.
const BYTES_MAX: u64 = 1024;
/// File in the data directory with the token for the first start.
const STORED_TOKEN: &str = "join-token";

/// Source of the join token.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct TokenArgs {
    /// Join token from `knarr token create`; needed only to join. Prefer --token-file: arguments are visible to all
    /// users.
    #[arg(long, env = "KNARR_TOKEN", hide_env_values = true, conflicts_with = "token_file")]
    pub token: Option<String>,
    /// File with the join token, readable only by its owner. Not needed after the node has joined.
    #[arg(long, value_name = "PATH")]
    pub token_file: Option<PathBuf>,
}

impl TokenArgs {
    /// Returns the token, or `None` if none was given.
    pub(crate) fn read(&self) -> Result<Option<JoinToken>> {
        let text = match (&self.token, &self.token_file) {
            (Some(token), _) => Some(token.clone()),
            (None, Some(file)) => {
                Some(read_secret(file).with_context(|| format!("failed to read the token file {}", file.display()))?)
            }
            (None, None) => None,
        };
        text.map(|text| JoinToken::parse(&text)).transpose()
    }
}

/// Reads a small file. Fails if other users than its owner may read it.
fn read_secret(path: &Path) -> Result<String> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let by_systemd = std::env::var_os("CREDENTIALS_DIRECTORY").is_some_and(|directory| path.starts_with(directory));
    ensure!(by_systemd || metadata.mode() & 0o077 == 0, "other users can read the file; run `chmod 600` on it");
    let mut text = String::new();
    file.take(BYTES_MAX + 1).read_to_string(&mut text)?;
    ensure!(text.len() as u64 <= BYTES_MAX, "the content is too long for a token");
    Ok(text)
}

/// Returns the path of the file with a token for the first start.
pub(crate) fn stored_token(data_dir: &Path) -> PathBuf {
    data_dir.join(STORED_TOKEN)
}

/// Writes a token for the first start. Only root may read the file, and other users cannot list a new data directory.
pub(crate) fn store_token(data_dir: &Path, token: &str) -> Result<PathBuf> {
    let file = stored_token(data_dir);
    sys::create_dirs(data_dir, DATA_DIR_MODE).with_context(|| format!("failed to create {}", data_dir.display()))?;
    pki::write(&file, token.trim(), 0o600)?;
    Ok(file)
}

/// Deletes the token for the first start after the node has joined.
pub(crate) fn delete_token(data_dir: &Path) -> Result<()> {
    match std::fs::remove_file(stored_token(data_dir)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).context("failed to remove the join token")
        }
        _ => Ok(()),
    }
}

/// Returns the arguments without `--token`, and the token.
pub(crate) fn split(arguments: impl Iterator<Item = OsString>) -> (Vec<OsString>, Option<String>) {
    let (mut rest, mut token, mut is_next) = (Vec::new(), None, false);
    for argument in arguments {
        let text = argument.to_str().unwrap_or_default();
        if is_next {
            token = Some(text.to_owned());
            is_next = false;
        } else if let Some(value) = text.strip_prefix("--token=") {
            token = Some(value.to_owned());
        } else if text == "--token" {
            is_next = true;
        } else {
            rest.push(argument);
        }
    }
    (rest, token)
}

/// Re-executes this binary without the token in its arguments, which `ps` shows to all users. Does nothing if the token
/// was given otherwise.
///
/// The token is passed through a pipe that is read once. It is neither in the arguments nor in the environment.
pub(crate) fn hide_token() -> Result<()> {
    let (mut arguments, Some(token)) = split(std::env::args_os().skip(1)) else { return Ok(()) };
    let pipe = filled_pipe(&token)?;
    arguments.push(format!("--token-file=/proc/self/fd/{}", pipe.as_raw_fd()).into());
    let program = std::env::current_exe().context("failed to find the path of this executable")?;
    let failed = Command::new(program).args(arguments).exec();
    Err(failed).context("failed to re-execute this process without the token in its arguments; use --token-file")
}

fn filled_pipe(token: &str) -> Result<PipeReader> {
    ensure!(token.len() as u64 <= BYTES_MAX, "--token is too long for a token");
    let (reader, mut writer) = std::io::pipe()?;
    writer.write_all(token.as_bytes())?;
    fcntl_setfd(&reader, FdFlags::empty())?;
    Ok(reader)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const TOKEN: &str = "abcdef.0123456789abcdef.0000000000000000000000000000000000000000000000000000000000000000";

    fn args_with_file(file: &Path) -> TokenArgs {
        TokenArgs { token: None, token_file: Some(file.to_owned()) }
    }

    #[test]
    fn token_file_must_be_readable_only_by_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let file = store_token(directory.path(), &format!("{TOKEN}\n")).unwrap();
        assert_eq!(args_with_file(&file).read().unwrap().unwrap().to_string(), TOKEN);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(format!("{:#}", args_with_file(&file).read().unwrap_err()).contains("chmod 600"));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&file, "x".repeat(5000)).unwrap();
        assert!(format!("{:#}", args_with_file(&file).read().unwrap_err()).contains("too long"));
        delete_token(directory.path()).unwrap();
        delete_token(directory.path()).unwrap();
        assert!(!file.exists());
        assert!(args_with_file(&file).read().is_err());
        assert!(TokenArgs::default().read().unwrap().is_none());
    }

    #[test]
    fn new_data_directory_of_a_token_cannot_be_listed_by_other_users() {
        let parent = tempfile::tempdir().unwrap();
        let data_dir = parent.path().join("knarr");
        store_token(&data_dir, TOKEN).unwrap();
        assert_eq!(std::fs::metadata(&data_dir).unwrap().permissions().mode() & 0o777, 0o711);
    }

    #[test]
    fn token_argument_is_replaced_by_a_pipe() {
        let check = |typed: &[&str], rest: &[&str], token: Option<&str>| {
            let (found, found_token) = split(typed.iter().map(OsString::from));
            assert_eq!((found, found_token.as_deref()), (rest.iter().map(OsString::from).collect(), token));
        };
        check(&["agent", "--token", "t", "-d"], &["agent", "-d"], Some("t"));
        check(&["agent", "--token=t", "-d"], &["agent", "-d"], Some("t"));
        check(&["agent", "--token-file", "f"], &["agent", "--token-file", "f"], None);
        let pipe = filled_pipe(TOKEN).unwrap();
        let path = PathBuf::from(format!("/proc/self/fd/{}", pipe.as_raw_fd()));
        assert_eq!(args_with_file(&path).read().unwrap().unwrap().to_string(), TOKEN);
    }
}
