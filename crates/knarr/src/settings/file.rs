//! Configuration files: a mapping from flags to values.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};
use apimachinery::Value;
use clap::Arg;
use component_base::config_file::ConfigFile;

use super::{FlagValue, is_switch};

/// Keys whose values are secrets. A file with such a key must not be readable by other users.
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

/// Reads a configuration file.
pub(super) fn read(path: &Path) -> Result<BTreeMap<String, Entry>> {
    let file = ConfigFile::read(path)?;
    let root = file.root();
    if !matches!(root.value(), Value::Null | Value::Object(_)) {
        bail!("{} is invalid: the file must be a mapping from flags to values", path.display());
    }
    let mut entries = BTreeMap::new();
    for entry in root.entries()? {
        if is_secret(entry.name()) {
            entry.require_private()?;
        }
        entries.insert(entry.name().to_owned(), Entry { line: entry.line(), value: entry.value().clone() });
    }
    Ok(entries)
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
