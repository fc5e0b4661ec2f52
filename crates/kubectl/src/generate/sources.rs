//! Key-value pairs of config maps and secrets: literals, files, directories and environment files.

use std::fs;
use std::io;
use std::path::Path;

use apimachinery::{go, names};

use super::Error;

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub data: Vec<u8>,
}

/// The sources of the data of a config map or secret: the flags `--from-…`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sources<'a> {
    pub literals: &'a [String],
    pub files: &'a [String],
    pub env_files: &'a [String],
}

impl Sources<'_> {
    /// Checks that the flags can be combined.
    pub fn validate(self) -> Result<(), Error> {
        if self.env_files.is_empty() || (self.files.is_empty() && self.literals.is_empty()) {
            return Ok(());
        }
        Err(Error::new("from-env-file cannot be combined with from-file or from-literal"))
    }
}

/// Parses `key=value`.
pub fn literal(source: &str) -> Result<Entry, Error> {
    match source.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok(Entry { key: key.to_owned(), data: value.into() }),
        _ => Err(Error::new(format!("invalid literal source {source}, expected key=value"))),
    }
}

/// Reads a file source: `path` or `key=path`. A directory yields each regular file in it, sorted by name.
pub fn read_file(source: &str) -> Result<Vec<Entry>, Error> {
    let (key, path) = file_source(source)?;
    let info = fs::metadata(&path).map_err(|error| Error::new(format!("error reading {path}: {}", go_text(&error))))?;
    if !info.is_dir() {
        return Ok(vec![Entry { key, data: read(Path::new(&path))? }]);
    }
    if source.contains('=') {
        return Err(Error::new("cannot give a key name for a directory path"));
    }
    let list =
        |error: io::Error| Error::new(format!("error listing files in {path}: open {path}: {}", go_text(&error)));
    let mut files = Vec::new();
    for item in fs::read_dir(&path).map_err(list)? {
        let item = item.map_err(list)?;
        if item.file_type().is_ok_and(|kind| kind.is_file()) {
            files.push(item.path());
        }
    }
    files.sort();
    let key = |file: &Path| file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    files.iter().map(|file| Ok(Entry { key: key(file), data: read(file)? })).collect()
}

/// Reads an environment file: lines of `KEY=value`, or of `KEY` to take the value from `environment`. `kind` names the
/// target in a message.
pub fn read_env_file(path: &str, kind: &str, environment: impl Fn(&str) -> String) -> Result<Vec<Entry>, Error> {
    let info = fs::metadata(path).map_err(|error| Error::new(format!("error reading {path}: {}", go_text(&error))))?;
    if info.is_dir() {
        return Err(Error::new(format!("env {kind} file cannot be a directory")));
    }
    env_entries(&read(Path::new(path))?, path, environment)
}

/// Parses the text of an environment file.
pub fn env_entries(text: &[u8], path: &str, environment: impl Fn(&str) -> String) -> Result<Vec<Entry>, Error> {
    const BYTE_ORDER_MARK: char = '\u{feff}';
    let mut entries = Vec::new();
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Ok(line) = std::str::from_utf8(line) else {
            let bytes: Vec<String> = line.iter().map(u8::to_string).collect();
            let (number, bytes) = (number + 1, bytes.join(" "));
            return Err(Error::new(format!("env file {path} contains invalid utf8 bytes at line {number}: [{bytes}]")));
        };
        let line = if number == 0 { line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line) } else { line };
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once('=').map_or((line, None), |(key, value)| (key, Some(value)));
        let faults = names::env_var_name(key);
        if !faults.is_empty() {
            return Err(Error::new(format!("{} is not a valid key name: {}", go::quote(key), faults.join(";"))));
        }
        let data = value.map_or_else(|| environment(key), str::to_owned);
        entries.push(Entry { key: key.to_owned(), data: data.into_bytes() });
    }
    Ok(entries)
}

/// Reads a file; the message of a failure is Go's.
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| Error::new(path_fault(path, &error)))
}

/// Formats a failure to read a file like Go.
pub fn path_fault(path: &Path, error: &io::Error) -> String {
    let operation = if error.kind() == io::ErrorKind::IsADirectory { "read" } else { "open" };
    format!("{operation} {}: {}", path.display(), go_text(error))
}

/// Formats an error of the operating system like Go: without its number, in lower case.
fn go_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

/// Returns the key and the path of a file source.
fn file_source(source: &str) -> Result<(String, String), Error> {
    match source.split('=').collect::<Vec<_>>()[..] {
        [path] => Ok((base_name(path).to_owned(), path.to_owned())),
        ["", path] => Err(Error::new(format!("key name for file path {path} missing"))),
        [key, ""] => Err(Error::new(format!("file path for key name {key} missing"))),
        [key, path] => Ok((key.to_owned(), path.to_owned())),
        _ => Err(Error::new("key names or file paths cannot contain '='")),
    }
}

/// Returns the last element of a path, like Go's `path.Base`.
fn base_name(path: &str) -> &str {
    if path.is_empty() {
        return ".";
    }
    match path.trim_end_matches('/') {
        "" => "/",
        trimmed => trimmed.rsplit('/').next().unwrap_or(trimmed),
    }
}
