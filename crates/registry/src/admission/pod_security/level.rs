//! Levels and versions as the labels of a namespace name them.

use std::fmt;

use machinery::Value;
use machinery::field::{self, Error, Errors};
use machinery::meta::Meta;
use machinery::Path;

/// How much pods may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    #[default]
    Privileged,
    Baseline,
    Restricted,
}

/// The minor version of Kubernetes whose rules count; `None` is the latest.
pub type Version = Option<u32>;

/// A level by the rules of a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelVersion {
    pub level: Level,
    pub version: Version,
}

/// What is enforced, told to the audit log, and told to the client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Policy {
    pub enforce: LevelVersion,
    pub audit: LevelVersion,
    pub warn: LevelVersion,
}

impl Policy {
    /// Reads the labels of a namespace, and says what is wrong with them.
    pub fn of(namespace: &Value) -> (Self, Errors) {
        let mut errors = Errors::new();
        let meta = Meta::of(namespace);
        let mut enforce = read(meta, "enforce", &mut errors);
        let audit = read(meta, "audit", &mut errors);
        let warn_label = meta.label("pod-security.kubernetes.io/warn");
        let mut warn = read(meta, "warn", &mut errors);
        // Who wrote a level that does not exist meant a strict one.
        if meta.label(&label("enforce")).is_some_and(|text| level(text).is_none()) {
            enforce.level = Level::Restricted;
        }
        if warn_label.is_some_and(|text| level(text).is_none()) {
            warn.level = Level::Privileged;
        }
        // Whoever enforces a level without a word about warnings is warned by the same level.
        (Self { enforce, audit, warn }, errors)
    }
}

fn label(mode: &str) -> String {
    format!("pod-security.kubernetes.io/{mode}")
}

fn read(meta: Meta<'_>, mode: &str, errors: &mut Errors) -> LevelVersion {
    let mut found = LevelVersion::default();
    let metadata = Path::of("metadata");
    let labels = metadata.field("labels");
    let key = label(mode);
    if let Some(text) = meta.label(&key) {
        match level(text) {
            Some(level) => found.level = level,
            None => {
                let detail = "must be one of privileged, baseline, restricted";
                errors.push(Error::invalid(&labels.key(&key), text, detail));
            }
        }
    }
    let key = format!("{key}-version");
    if let Some(text) = meta.label(&key) {
        match version(text) {
            Some(version) => found.version = version,
            None => errors.push(Error::invalid(
                &labels.key(&key),
                text,
                "must be \"latest\" or \"v1.x\"",
            )),
        }
    }
    found
}

fn level(text: &str) -> Option<Level> {
    match text {
        "privileged" => Some(Level::Privileged),
        "baseline" => Some(Level::Baseline),
        "restricted" => Some(Level::Restricted),
        _ => None,
    }
}

fn version(text: &str) -> Option<Version> {
    if text == "latest" {
        return Some(None);
    }
    let minor = text.strip_prefix("v1.")?;
    if minor.len() > 1 && minor.starts_with('0') || !minor.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    minor.parse().ok().map(Some)
}

/// All that is wrong with labels, in one line.
pub fn aggregate(errors: &Errors) -> Option<String> {
    field::aggregate(errors)
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        };
        match self.version {
            None => write!(out, "{level}:latest"),
            Some(minor) => write!(out, "{level}:v1.{minor}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_latest_or_a_minor_version() {
        let check = |text: &str, expect: Option<Version>| assert_eq!(version(text), expect, "{text}");
        check("latest", Some(None));
        check("v1.24", Some(Some(24)));
        check("v1.0", Some(Some(0)));
        check("v1.024", None);
        check("1.24", None);
        check("v2.0", None);
        check("v1.x", None);
    }
}
