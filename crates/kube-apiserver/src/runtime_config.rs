//! `--runtime-config`: enables and disables API versions and resources.

use std::sync::Arc;

use api::kind::{Kind, Version};

/// Reasons why the flag is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("invalid value of {key}={value}, it must be true or false")]
    Value {
        /// The part of the entry before `=`.
        key: String,
        value: String,
    },
    /// The key names an unknown group.
    #[error("unknown api groups {0}")]
    Group(String),
    /// The key has too many or too few path segments.
    #[error("runtime-config invalid key {0}")]
    Key(String),
}

/// The stability level that a key such as `api/beta` selects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    All,
    Ga,
    Beta,
    Alpha,
}

/// The API versions to which an entry of the flag applies.
enum EntryScope<'a> {
    Stage(Stage),
    Version { group: &'a str, version: &'a str },
    Resource { group: &'a str, version: &'a str, plural: &'a str },
}

/// Returns the kinds with the enabled versions. Rules for stages apply first, then those for versions, then those for
/// resources.
pub fn apply(kinds: Vec<Arc<Kind>>, entries: &[String]) -> Result<Vec<Arc<Kind>>, Error> {
    let mut rules: Vec<(EntryScope<'_>, bool)> = entries.iter().map(|entry| read(entry)).collect::<Result<_, _>>()?;
    if rules.is_empty() {
        return Ok(kinds);
    }
    for (what, _) in &rules {
        let (EntryScope::Version { group, .. } | EntryScope::Resource { group, .. }) = what else { continue };
        if !kinds.iter().any(|kind| kind.group == *group) {
            return Err(Error::Group((*group).to_owned()));
        }
    }
    rules.sort_by_key(|(what, _)| match what {
        EntryScope::Stage(_) => 0,
        EntryScope::Version { .. } => 1,
        EntryScope::Resource { .. } => 2,
    });
    let with = |kind: Arc<Kind>| {
        let mut changed = (*kind).clone();
        for at in 0..changed.versions.len() {
            for (what, served) in &rules {
                if what.is_about(&changed, &changed.versions[at]) {
                    changed.versions[at].served = *served;
                }
            }
        }
        Arc::new(changed)
    };
    Ok(kinds.into_iter().map(with).collect())
}

fn read(entry: &str) -> Result<(EntryScope<'_>, bool), Error> {
    let (key, value) = entry.split_once('=').unwrap_or((entry, ""));
    let served = match value {
        "" | "true" => true,
        "false" => false,
        _ => return Err(Error::Value { key: key.to_owned(), value: value.to_owned() }),
    };
    let what = match key.split('/').collect::<Vec<_>>().as_slice() {
        ["api", "all"] => EntryScope::Stage(Stage::All),
        ["api", "ga"] => EntryScope::Stage(Stage::Ga),
        ["api", "beta"] => EntryScope::Stage(Stage::Beta),
        ["api", "alpha"] => EntryScope::Stage(Stage::Alpha),
        ["v1"] | ["api", "v1"] => EntryScope::Version { group: "", version: "v1" },
        [group, version] => EntryScope::Version { group, version },
        [group, version, plural] => EntryScope::Resource { group, version, plural },
        _ => return Err(Error::Key(key.to_owned())),
    };
    Ok((what, served))
}

impl EntryScope<'_> {
    fn is_about(&self, kind: &Kind, version: &Version) -> bool {
        match self {
            Self::Stage(stage) => *stage == Stage::All || *stage == stage_of(&version.name),
            Self::Version { group, version: name } => kind.group == *group && version.name == *name,
            Self::Resource { group, version: name, plural } => {
                kind.group == *group && version.name == *name && kind.plural == *plural
            }
        }
    }
}

fn stage_of(version: &str) -> Stage {
    match version {
        version if version.contains("alpha") => Stage::Alpha,
        version if version.contains("beta") => Stage::Beta,
        _ => Stage::Ga,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(entries: &[&str], group: &str, version: &str, plural: &str) -> bool {
        let entries: Vec<String> = entries.iter().map(ToString::to_string).collect();
        let kinds = apply(api::kinds::all(), &entries).unwrap();
        let kind = kinds.iter().find(|kind| kind.group == group && kind.plural == plural).unwrap();
        kind.version(version).is_some_and(|version| version.served)
    }

    #[test]
    fn more_specific_entries_override_general_ones_in_any_order() {
        assert!(served(&[], "apps", "v1", "deployments"));
        assert!(!served(&["apps/v1=false"], "apps", "v1", "deployments"));
        assert!(!served(&["api/all=false"], "apps", "v1", "deployments"));
        assert!(served(&["apps/v1/deployments=true", "apps/v1=false"], "apps", "v1", "deployments"));
        assert!(!served(&["apps/v1/deployments=true", "apps/v1=false"], "apps", "v1", "daemonsets"));
        assert!(!served(&["api/ga=false"], "", "v1", "pods"));
        assert!(served(&["api/ga=false", "v1"], "", "v1", "pods"));
    }

    #[test]
    fn unknown_groups_and_invalid_entries_are_errors() {
        let check = |entry: &str, expect: &str| {
            assert_eq!(apply(api::kinds::all(), &[entry.to_owned()]).unwrap_err().to_string(), expect);
        };
        check("nonsense.io/v1=true", "unknown api groups nonsense.io");
        check("apps/v1=maybe", "invalid value of apps/v1=maybe, it must be true or false");
        check("a/b/c/d=true", "runtime-config invalid key a/b/c/d");
    }
}
