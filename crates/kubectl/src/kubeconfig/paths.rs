//! Paths in kubeconfig entries, which are relative to the directory of their file.

use std::path::{Component, Path, PathBuf};

use apimachinery::Value;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Entry, Section};
use crate::Failure;
use crate::failure::go_io_error;

/// Makes paths below the directory of the file relative to it, and all others absolute.
pub(super) fn make_relative(section: Section, entry: &mut Entry) {
    let Some(base) = base(entry) else { return };
    each_path(section, entry, |path| {
        let path = clean(&base.join(path));
        let relative = path.strip_prefix(&base).ok().filter(|relative| !relative.as_os_str().is_empty());
        Some(relative.unwrap_or(&path).display().to_string())
    });
}

/// Replaces a path with the content of its file.
pub(super) fn embed(entry: &mut Entry, key: &str) -> Result<(), Failure> {
    let path = entry.text(key).to_owned();
    if path.is_empty() {
        return Ok(());
    }
    let data = format!("{key}-data");
    if !entry.text(&data).is_empty() {
        return Err(Failure::new("cannot have values for both path and contents"));
    }
    let path = base(entry).unwrap_or_default().join(path).display().to_string();
    let content =
        std::fs::read(&path).map_err(|error| Failure::new(format!("open {path}: {}", go_io_error(&error))))?;
    entry.set(key, "");
    entry.set(&data, STANDARD.encode(content));
    Ok(())
}

/// Returns an absolute path without `.` and `..`.
pub fn absolute(path: &str) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
    clean(&path).display().to_string()
}

fn base(entry: &Entry) -> Option<PathBuf> {
    let file = std::path::absolute(entry.origin.as_ref()?).ok()?;
    Some(clean(file.parent()?))
}

fn each_path(section: Section, entry: &mut Entry, change: impl Fn(&str) -> Option<String>) {
    let keys: &[&str] = match section {
        Section::Clusters => &["certificate-authority"],
        Section::Contexts => &[],
        Section::Users => &["client-certificate", "client-key", "tokenFile"],
    };
    for key in keys {
        let old = entry.text(key);
        if let Some(path) = (!old.is_empty()).then(|| change(old)).flatten() {
            entry.fields.insert(*key, path);
        }
    }
    // A command without a slash is searched for in PATH.
    let command = entry.fields.get_mut("exec").and_then(|exec| exec.get_mut("command"));
    if let Some(command) = command
        && let Some(old) = command.as_str().filter(|command| command.contains('/'))
        && let Some(path) = change(old)
    {
        *command = Value::from(path);
    }
}

fn clean(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(out.pop()),
            other => out.push(other),
        }
    }
    out
}
