//! `KEY=VALUE` arguments: separates them from resource arguments and parses them.

use super::Error;

/// Arguments of a command: resources first, then pairs and removals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    pub resources: Vec<String>,
    pub pairs: Vec<String>,
}

/// Splits arguments into resources and `KEY=VALUE` or `KEY-`. `kind` is the name of the pairs in the message.
pub fn split(args: &[String], kind: &str) -> Result<Arguments, Error> {
    let mut found = Arguments::default();
    for arg in args {
        let is_pair = (arg.contains('=') && !arg.starts_with('=')) || (arg.ends_with('-') && arg != "-");
        match (is_pair, found.pairs.is_empty()) {
            (true, _) => found.pairs.push(arg.clone()),
            (false, true) => found.resources.push(arg.clone()),
            (false, false) => {
                return Err(Error::new(format!("all resources must be specified before {kind} changes: {arg}")));
            }
        }
    }
    Ok(found)
}

/// Parses `KEY=VALUE` pairs, in order; a later value of a key replaces an earlier one.
pub fn parse(pairs: &[String], kind: &str) -> Result<Vec<(String, String)>, Error> {
    let mut parsed: Vec<(String, String)> = Vec::new();
    let mut invalid = Vec::new();
    for pair in pairs {
        match pair.split_once('=') {
            Some((key, value)) if !key.is_empty() => {
                parsed.retain(|(have, _)| have != key);
                parsed.push((key.to_owned(), value.to_owned()));
            }
            _ => invalid.push(pair.as_str()),
        }
    }
    if invalid.is_empty() {
        Ok(parsed)
    } else {
        Err(Error::new(format!("invalid {kind} format: {}", invalid.join(", "))))
    }
}
