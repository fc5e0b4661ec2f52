//! Configuration files of an operator: read with limits, and checked key by key.
//!
//! The text is YAML, or TOML if the name of the file ends with `.toml`. Errors name the file, the line and the key, and
//! for an unknown key the nearest known one. They never contain a value of the file, which may be a secret.

mod text;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use apimachinery::{Str, Value};

use crate::trust;

/// Maximum size of a file.
const BYTES_MAX: u64 = 1 << 20;
/// Minimum similarity of an unknown key and the key that is suggested for it.
const SIMILARITY_MIN: f64 = 0.7;

/// A configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigFileError {
    #[error("failed to read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file is not a regular one, too large, or belongs to or is writable by another user.
    #[error("{path}{problem}")]
    File { path: PathBuf, problem: String },
    /// The text cannot be parsed.
    #[error("{path} is invalid: {problem}")]
    Syntax { path: PathBuf, problem: String },
    /// A key is unknown, or its value is invalid.
    #[error("{path}:{line}: {problem}")]
    Key { path: PathBuf, line: usize, problem: String },
}

/// The content of a configuration file.
#[derive(Debug)]
pub struct ConfigFile {
    path: PathBuf,
    mode: u32,
    root: Value,
    /// The order of each key in the text, and its line.
    places: BTreeMap<Vec<Str>, (usize, usize)>,
}

/// A value of a configuration file.
#[derive(Clone, Debug)]
pub struct Node<'a> {
    file: &'a ConfigFile,
    path: Vec<Str>,
    value: &'a Value,
}

impl ConfigFile {
    /// Reads a file that only root, the user of this process, or the user who runs it with sudo can change. Its values
    /// run commands and open files as root.
    pub fn read(path: &Path) -> Result<Self, ConfigFileError> {
        let failed = |source| ConfigFileError::Read { path: path.to_owned(), source };
        let refused = |problem: String| ConfigFileError::File { path: path.to_owned(), problem };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(refused(" is not a regular file".to_owned()));
        }
        if let Some(problem) = trust::problem("file", &metadata) {
            return Err(refused(format!(": {problem}")));
        }
        let mut text = String::new();
        file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > BYTES_MAX {
            return Err(refused(format!(" is larger than {BYTES_MAX} bytes")));
        }
        Self::parse(path, metadata.mode(), &text)
    }

    fn parse(path: &Path, mode: u32, text: &str) -> Result<Self, ConfigFileError> {
        let is_toml = path.extension().is_some_and(|extension| extension == "toml");
        let parsed = if is_toml { text::toml(text) } else { text::yaml(text) };
        let (root, lines) = parsed.map_err(|problem| ConfigFileError::Syntax { path: path.to_owned(), problem })?;
        let numbered = lines.into_iter().enumerate();
        let places = numbered.map(|(order, (key, line))| (key, (order, line))).collect();
        Ok(Self { path: path.to_owned(), mode, root, places })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the whole content, which is `null` for an empty file.
    pub fn root(&self) -> Node<'_> {
        Node { file: self, path: Vec::new(), value: &self.root }
    }
}

impl<'a> Node<'a> {
    /// Returns the last part of the key.
    pub fn name(&self) -> &str {
        self.path.last().map_or("", |name| name)
    }

    pub const fn value(&self) -> &'a Value {
        self.value
    }

    /// Whether the key has no value. Such a key counts as absent.
    pub const fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    pub fn line(&self) -> usize {
        self.place().1
    }

    fn place(&self) -> (usize, usize) {
        // A key that a YAML merge sets has no place of its own.
        let mut outer = (1..=self.path.len()).rev().filter_map(|length| self.file.places.get(&self.path[..length]));
        outer.next().copied().unwrap_or((0, 1))
    }

    /// Returns the error that this value is invalid.
    pub fn error(&self, problem: impl std::fmt::Display) -> ConfigFileError {
        match self.path.is_empty() {
            true => self.error_at(problem.to_string()),
            false => self.error_at(format!("{}: {problem}", self.path.join("."))),
        }
    }

    fn error_at(&self, problem: String) -> ConfigFileError {
        ConfigFileError::Key { path: self.file.path.clone(), line: self.line(), problem }
    }

    /// Fails if other users can read the file, which has a secret under this key.
    pub fn require_private(&self) -> Result<(), ConfigFileError> {
        if self.file.mode & 0o077 == 0 {
            return Ok(());
        }
        let path = self.file.path.display();
        Err(self.error_at(format!("other users can read {}; run `chmod 600 {path}`", self.path.join("."))))
    }

    /// Returns the entries of a mapping in the order of the text.
    pub fn entries(&self) -> Result<Vec<Node<'a>>, ConfigFileError> {
        let entries = match self.value {
            Value::Null => return Ok(Vec::new()),
            Value::Object(entries) => entries,
            _ if self.path.is_empty() => {
                return Err(ConfigFileError::Syntax {
                    path: self.file.path.clone(),
                    problem: "the file must be a mapping from keys to values".to_owned(),
                });
            }
            _ => return Err(self.error("use a mapping from keys to values")),
        };
        let mut children: Vec<Node<'a>> = entries.iter().map(|(key, value)| self.child(key.into(), value)).collect();
        children.sort_by_key(Node::place);
        Ok(children)
    }

    /// Returns the entries of a mapping that has only these keys. A key without a value counts as absent.
    pub fn known(&self, keys: &[&'static str]) -> Result<BTreeMap<&'static str, Node<'a>>, ConfigFileError> {
        let mut found = BTreeMap::new();
        for child in self.entries()? {
            match keys.iter().find(|key| **key == child.name()) {
                None => return Err(child.error_at(self.unknown(child.name(), keys))),
                Some(_) if child.is_null() => {}
                Some(key) => drop(found.insert(*key, child)),
            }
        }
        Ok(found)
    }

    /// Returns the items of a list.
    pub fn items(&self) -> Result<Vec<Node<'a>>, ConfigFileError> {
        match self.value {
            Value::Array(items) => {
                Ok(items.iter().enumerate().map(|(index, item)| self.child(index.to_string().into(), item)).collect())
            }
            _ => Err(self.error("use a list")),
        }
    }

    /// Returns the items of a list, or the value itself if it is a text.
    pub fn one_or_more(&self) -> Result<Vec<Node<'a>>, ConfigFileError> {
        match self.value {
            Value::String(_) => Ok(vec![self.clone()]),
            Value::Array(_) => self.items(),
            _ => Err(self.error("use a text or a list of texts")),
        }
    }

    /// Returns a text that is not empty.
    pub fn text(&self) -> Result<&'a str, ConfigFileError> {
        match self.value {
            Value::String(text) if !text.is_empty() => Ok(text),
            Value::String(_) => Err(self.error("the text is empty")),
            Value::Int(_) | Value::Float(_) | Value::Bool(_) => {
                Err(self.error("use a text; write the value in quotes"))
            }
            _ => Err(self.error("use a text")),
        }
    }

    pub fn flag(&self) -> Result<bool, ConfigFileError> {
        match self.value {
            Value::Bool(flag) => Ok(*flag),
            _ => Err(self.error("use true or false")),
        }
    }

    fn child(&self, key: Str, value: &'a Value) -> Node<'a> {
        let path = self.path.iter().cloned().chain([key]).collect();
        Node { file: self.file, path, value }
    }

    fn unknown(&self, name: &str, keys: &[&str]) -> String {
        let within = if self.path.is_empty() { String::new() } else { format!(" in {}", self.path.join(".")) };
        match nearest(name, keys) {
            Some(key) => format!("unknown key {name:?}{within}; did you mean {key:?}?"),
            None => format!("unknown key {name:?}{within}; the keys are {}", keys.join(", ")),
        }
    }
}

/// Returns the key that is most similar to an unknown one, if any is.
fn nearest<'k>(name: &str, keys: &[&'k str]) -> Option<&'k str> {
    let rated = keys.iter().map(|key| (strsim::jaro(&name.to_lowercase(), &key.to_lowercase()), *key));
    let similar = rated.filter(|(similarity, _)| *similarity > SIMILARITY_MIN);
    similar.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, key)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str, text: &str) -> Result<ConfigFile, ConfigFileError> {
        ConfigFile::parse(Path::new(name), 0o644, text)
    }

    #[test]
    fn errors_name_file_line_key_and_the_nearest_key() {
        let check = |name: &str, text: &str, expect: &str| {
            let file = parse(name, text).unwrap();
            let error = match file.root().known(&["mirrors", "configs"]) {
                Err(error) => error,
                Ok(found) => found["mirrors"].flag().unwrap_err(),
            };
            assert_eq!(error.to_string(), expect, "{text}");
        };
        check("a.yaml", "\nmirror: 1\n", "a.yaml:2: unknown key \"mirror\"; did you mean \"mirrors\"?");
        check("a.yaml", "xyz: 1\n", "a.yaml:1: unknown key \"xyz\"; the keys are mirrors, configs");
        check("a.yaml", "configs: {}\nmirrors: secret\n", "a.yaml:2: mirrors: use true or false");
        check("a.toml", "\n[config]\n", "a.toml:2: unknown key \"config\"; did you mean \"configs\"?");
        check("a.toml", "configs = 1\nmirrors = 'secret'\n", "a.toml:2: mirrors: use true or false");
    }

    #[test]
    fn entries_keep_the_order_of_the_text() {
        let names = |name: &str, text: &str| -> Vec<String> {
            let file = parse(name, text).unwrap();
            let host = file.root().entries().unwrap().remove(0);
            host.entries().unwrap().iter().map(|child| format!("{}:{}", child.name(), child.line())).collect()
        };
        assert_eq!(names("a.yaml", "host:\n  z: 1\n  a: 2\n"), ["z:2", "a:3"]);
        let text = "[host.\"https://z\"]\nca = 'x'\n[host.\"https://a\"]\n[host.\"https://a\".header]\n";
        assert_eq!(names("a.toml", text), ["https://z:1", "https://a:3"]);
    }

    #[test]
    fn syntax_errors_name_the_line_and_no_content() {
        for (name, text) in [("a.yaml", "a: 1\nb: {secret\n"), ("a.toml", "a = 1\nb = secret\n")] {
            let error = parse(name, text).unwrap_err().to_string();
            assert!(error.contains(&format!("{name} is invalid")) && error.contains("line"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        let error = parse("a.yaml", "a: 1\na: 2\n").unwrap_err().to_string();
        assert_eq!(error, "a.yaml is invalid: line 2: key \"a\" already set in map");
        let error = parse("a.toml", "a = 1\na = 2\n").unwrap_err().to_string();
        assert!(error.starts_with("a.toml is invalid: line 2: "), "{error}");
    }

    #[test]
    fn file_with_a_secret_must_be_private() {
        let file = |mode| ConfigFile::parse(Path::new("a.yaml"), mode, "auth: x\n").unwrap();
        let check =
            |mode| file(mode).root().known(&["auth"]).unwrap()["auth"].require_private().map_err(|e| e.to_string());
        assert_eq!(check(0o600), Ok(()));
        assert_eq!(check(0o640), Err("a.yaml:1: other users can read auth; run `chmod 600 a.yaml`".to_owned()));
    }
}
