//! Configuration files: a mapping from flags to values.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use apimachinery::{Value, yaml};
use clap::Arg;

use super::{FlagValue, is_switch};

/// Maximum size of a file.
const BYTES_MAX: u64 = 1 << 20;
/// Keys with secrets. Other users must not be able to read a file with one.
const SECRET: [&str; 1] = ["token"];

/// A key of a file.
pub(super) struct Entry {
    pub line: usize,
    value: Value,
}

/// Whether the value of a flag is a secret.
pub(crate) fn is_secret(flag: &str) -> bool {
    SECRET.contains(&flag)
}

/// Reads a configuration file. Errors name the file, and the line where one is known.
pub(super) fn read(path: &Path) -> Result<BTreeMap<String, Entry>> {
    let context = || format!("failed to read {}", path.display());
    let file = File::open(path).with_context(context)?;
    let metadata = file.metadata().with_context(context)?;
    ensure!(metadata.is_file(), "{} is not a regular file", path.display());
    if let Some(problem) = distrust(metadata.mode(), metadata.uid(), &trusted_owners()) {
        bail!("{}: {problem}", path.display());
    }
    let mut text = String::new();
    file.take(BYTES_MAX + 1).read_to_string(&mut text).with_context(context)?;
    ensure!(text.len() as u64 <= BYTES_MAX, "{} is larger than {BYTES_MAX} bytes", path.display());
    let entries = parse(&text).with_context(|| format!("{} is invalid", path.display()))?;
    if let Some((key, entry)) = entries.iter().find(|(key, _)| is_secret(key))
        && metadata.mode() & 0o077 != 0
    {
        let (path, line) = (path.display(), entry.line);
        bail!("{path}:{line}: other users can read {key}; run `chmod 600 {path}`");
    }
    Ok(entries)
}

/// Returns the users whose files are read: root, the user of this process, and the user who runs it with sudo.
fn trusted_owners() -> [u32; 3] {
    let own = rustix::process::geteuid().as_raw();
    let sudo = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
    [0, own, sudo.unwrap_or(own)]
}

/// Returns why a file is not read. Its flags run commands and open files as root, so no other user may set them.
fn distrust(mode: u32, owner: u32, trusted: &[u32]) -> Option<String> {
    if !trusted.contains(&owner) {
        return Some(format!("the file belongs to user {owner}, who could change the flags; run `chown root` on it"));
    }
    (mode & 0o022 != 0).then(|| "other users can change the file; run `chmod go-w` on it".to_owned())
}

fn parse(text: &str) -> Result<BTreeMap<String, Entry>> {
    let mut documents = yaml::documents(text).with_bool_words_as_text();
    let object = match documents.next().transpose()?.unwrap_or_default() {
        Value::Null => return Ok(BTreeMap::new()),
        Value::Object(object) => object,
        _ => bail!("the file must be a mapping from flags to values"),
    };
    if let Some(repeated) = documents.repeated().first() {
        bail!("{repeated}");
    }
    let lines: BTreeMap<String, usize> = documents.lines().iter().map(|(key, line)| (key.to_string(), *line)).collect();
    ensure!(documents.next().transpose()?.is_none(), "the file has more than one document");
    let entry = |(key, value): (apimachinery::Str, Value)| {
        let line = lines.get(key.as_str()).copied().unwrap_or(1);
        (key.to_string(), Entry { line, value })
    };
    Ok(object.into_iter().map(entry).collect())
}

impl Entry {
    /// Returns the value in the form of the flag, or `None` for `null`.
    pub(super) fn values(&self, arg: &Arg) -> Result<Option<FlagValue>, String> {
        if self.value == Value::Null {
            return Ok(None);
        }
        if is_switch(arg) {
            return match self.value {
                Value::Bool(is_given) => Ok(Some(FlagValue::Switch(is_given))),
                _ => Err("use true or false".to_owned()),
            };
        }
        match &self.value {
            Value::Array(items) if is_list(arg) => {
                items.iter().map(scalar).collect::<Result<_, _>>().map(|texts| Some(FlagValue::Texts(texts)))
            }
            Value::Array(_) => Err("the flag takes one value, not a list".to_owned()),
            value => scalar(value).map(|text| Some(FlagValue::Texts(vec![text]))),
        }
    }
}

/// Whether a flag takes several values.
fn is_list(arg: &Arg) -> bool {
    arg.get_value_delimiter().is_some() || matches!(arg.get_action(), clap::ArgAction::Append)
}

fn scalar(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.to_string()),
        Value::Int(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Bool(is_true) => Ok(is_true.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => Err("use a text, a number or a list of them".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_other_users_can_change_are_not_trusted() {
        let check = |mode: u32, owner: u32, expect: Option<&str>| {
            let found = distrust(0o100_000 | mode, owner, &[0, 1000]);
            assert_eq!(found.is_some(), expect.is_some(), "{mode:o} {owner}: {found:?}");
            assert!(found.unwrap_or_default().contains(expect.unwrap_or_default()), "{mode:o} {owner}");
        };
        check(0o644, 0, None);
        check(0o600, 1000, None);
        check(0o664, 0, Some("chmod go-w"));
        check(0o646, 1000, Some("chmod go-w"));
        check(0o600, 1001, Some("belongs to user 1001"));
    }
}
