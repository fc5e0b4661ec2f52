//! Execution of installation steps below a root directory.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::plan::Action;

/// Executes actions. Paths are below `root`; `run` runs a command.
pub(super) fn execute(root: &Path, actions: &[Action], run: &mut dyn FnMut(&[String]) -> Result<()>) -> Result<()> {
    actions.iter().try_for_each(|action| step(root, action, run).with_context(|| format!("failed to {action}")))
}

fn step(root: &Path, action: &Action, run: &mut dyn FnMut(&[String]) -> Result<()>) -> Result<()> {
    match action {
        Action::CreateDir { path, mode } => Ok(sys::create_dirs(&below(root, path), *mode)?),
        Action::Write { path, mode, text } => Ok(sys::replace_file_lazily(&below(root, path), text.as_bytes(), *mode)?),
        Action::Copy { from, path, mode } => copy(from, &below(root, path), *mode),
        Action::Link { path, target } => link(&below(root, path), target),
        Action::Remove(path) => absent_is_removed(std::fs::remove_file(below(root, path))),
        Action::RemoveDir(path) => match std::fs::remove_dir(below(root, path)) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
            removed => absent_is_removed(removed),
        },
        Action::Run(words) => run(words),
    }
}

/// Returns a path of the host below another root directory.
pub(super) fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Replaces a file atomically by a copy. A process that runs the old binary keeps it.
fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let identity = |path: &Path| std::fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino())).ok();
    if identity(from).is_some() && identity(from) == identity(to) {
        return Ok(());
    }
    let content = std::fs::read(from).with_context(|| format!("failed to read {}", from.display()))?;
    Ok(sys::replace_file(to, &content, mode)?)
}

fn link(path: &Path, target: &Path) -> Result<()> {
    if std::fs::read_link(path).is_ok_and(|found| found == target) {
        return Ok(());
    }
    absent_is_removed(std::fs::remove_file(path))?;
    Ok(std::os::unix::fs::symlink(target, path)?)
}

fn absent_is_removed(removed: std::io::Result<()>) -> Result<()> {
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Runs a command of this host.
pub(super) fn command(words: &[String]) -> Result<()> {
    let (program, arguments) = words.split_first().context("the command is empty")?;
    let status = Command::new(program).args(arguments).status()?;
    ensure!(status.success(), "{program} failed with {status}");
    Ok(())
}
