//! Pod Security levels and versions in namespace labels.

use std::fmt;

use apimachinery::Path;
use apimachinery::Value;
use apimachinery::field::{Error, Errors};
use apimachinery::meta::Meta;

/// A Pod Security Standards level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    #[default]
    Privileged,
    Baseline,
    Restricted,
}

/// The Kubernetes minor version whose checks apply; `None` is the latest.
pub(super) type Version = Option<u32>;

/// A level with the version of its checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LevelVersion {
    pub level: Level,
    pub version: Version,
}

/// The enforce, audit and warn levels of a namespace.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Policy {
    pub enforce: LevelVersion,
    pub audit: LevelVersion,
    pub warn: LevelVersion,
}

impl Policy {
    /// Parses the labels of a namespace, and returns errors for invalid ones.
    pub(super) fn of(namespace: &Value, defaults: &Self) -> (Self, Errors) {
        let mut errors = Errors::new();
        let meta = Meta::of(namespace);
        // An invalid enforce level becomes restricted; invalid audit and warn levels become privileged.
        let enforce = read(meta, "enforce", Level::Restricted, defaults.enforce, &mut errors);
        let audit = read(meta, "audit", Level::Privileged, defaults.audit, &mut errors);
        let warn = read(meta, "warn", Level::Privileged, defaults.warn, &mut errors);
        (Self { enforce, audit, warn }, errors)
    }

    /// Parses the `defaults` of the plugin's configuration.
    pub(super) fn of_config(defaults: &Value) -> Self {
        let of = |mode: &str| LevelVersion {
            level: defaults.str_at(&[mode]).and_then(level).unwrap_or_default(),
            version: defaults.str_at(&[&format!("{mode}-version")]).and_then(version).unwrap_or_default(),
        };
        Self { enforce: of("enforce"), audit: of("audit"), warn: of("warn") }
    }
}

fn label(mode: &str) -> String {
    format!("pod-security.kubernetes.io/{mode}")
}

fn read(meta: Meta<'_>, mode: &str, mistaken: Level, mut found: LevelVersion, errors: &mut Errors) -> LevelVersion {
    let metadata = Path::of("metadata");
    let labels = metadata.field("labels");
    let key = label(mode);
    if let Some(text) = meta.label(&key) {
        match level(text) {
            Some(level) => found.level = level,
            None => {
                found.level = mistaken;
                let detail = "must be one of privileged, baseline, restricted";
                errors.push(Error::invalid(&labels.key(&key), text, detail));
            }
        }
    }
    let key = format!("{key}-version");
    if let Some(text) = meta.label(&key) {
        match version(text) {
            Some(version) => found.version = version,
            None => {
                found.version = None;
                errors.push(Error::invalid(&labels.key(&key), text, "must be \"latest\" or \"v1.x\""));
            }
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
    fn pod_security_versions_are_latest_or_a_minor_version() {
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
