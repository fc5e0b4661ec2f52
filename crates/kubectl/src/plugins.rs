//! Plugins: `kubectl foo bar` runs the executable `kubectl-foo-bar` or `kubectl-foo` on `PATH`.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;

/// Returns the names of the plugins on `PATH` that are not names of commands.
pub fn names(is_command: impl Fn(&str) -> bool) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for file in files() {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let name = name.trim_start_matches("kubectl-").split('-').next().unwrap_or_default().replace('_', "-");
        let known = is_command(&name) || names.contains(&name);
        if !known && is_executable(&file) && !name.starts_with("complete") {
            names.push(name);
        }
    }
    names
}

/// Returns all files on `PATH` that are named like plugins, in the order of `PATH`.
pub fn files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for directory in directories() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        let mut files: Vec<PathBuf> = entries
            .filter_map(Result::ok)
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("kubectl-"))
            .map(|entry| entry.path())
            .filter(|path| !path.is_dir())
            .collect();
        files.sort();
        found.extend(files);
    }
    found
}

/// Returns the directories of `PATH`, each once.
pub fn directories() -> Vec<PathBuf> {
    let mut directories: Vec<PathBuf> = Vec::new();
    for directory in std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()) {
        if !directory.as_os_str().is_empty() && !directories.contains(&directory) {
            directories.push(directory);
        }
    }
    directories
}

pub fn is_executable(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Replaces this process by the plugin with the longest matching name, which has at least `names_min` parts. Returns if
/// there is none.
pub fn run(args: &[String], names_min: usize) -> Result<(), Failure> {
    let names: Vec<String> =
        args.iter().take_while(|arg| !arg.starts_with('-')).map(|arg| arg.replace('-', "_")).collect();
    for used in (names_min..=names.len()).rev() {
        let file_name = format!("kubectl-{}", names[..used].join("-"));
        if file_name.contains('/') {
            continue;
        }
        let found =
            directories().into_iter().map(|directory| directory.join(&file_name)).find(|file| is_executable(file));
        if let Some(file) = found {
            let error = Command::new(&file).args(&args[used..]).exec();
            return Err(Failure::new(format!("fork/exec {}: {}", file.display(), crate::failure::go_io_error(&error))));
        }
    }
    Ok(())
}
