//! The kinds that a server serves, by group and version.

use std::cmp::Reverse;
use std::sync::Arc;

use api::Kind;
use api::kind::Version;
use machinery::Str;

/// The kinds, and which of their versions are served.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    /// All kinds, in the order in which discovery lists their groups.
    pub kinds: &'a [Arc<Kind>],
    /// Whether a version of a kind is served: what `--runtime-config` says, or the version's own word.
    pub served: &'a dyn Fn(&Kind, &Version) -> bool,
}

impl<'a> Table<'a> {
    /// The groups in order, each once; the core group, if there is one, among them.
    pub fn groups(&self) -> Vec<&'a str> {
        let mut groups: Vec<&str> = Vec::new();
        for kind in self.kinds {
            let served = || kind.versions.iter().any(|version| (self.served)(kind, version));
            if !groups.contains(&kind.group.as_str()) && served() {
                groups.push(&kind.group);
            }
        }
        groups
    }

    /// The served versions of a group, the preferred one first.
    pub fn versions(&self, group: &str) -> Vec<&'a str> {
        let mut versions: Vec<&str> = self.rows_of(group).map(|(_, version)| version.name.as_str()).collect();
        versions.sort_by_key(|version| Reverse(priority(version)));
        versions.dedup();
        versions
    }

    /// The served kinds of a group version, by resource.
    pub fn resources(&self, group: &str, version: &str) -> Vec<(&'a Kind, &'a Version)> {
        let mut rows: Vec<_> = self.rows_of(group).filter(|(_, one)| one.name == version).collect();
        rows.sort_by(|(a, _), (b, _)| a.plural.cmp(&b.plural));
        rows
    }

    fn rows_of(&self, group: &str) -> impl Iterator<Item = (&'a Kind, &'a Version)> {
        let kinds = self.kinds.iter().filter(move |kind| kind.group == group);
        let rows = kinds.flat_map(|kind| kind.versions.iter().map(move |version| (&**kind, version)));
        rows.filter(|(kind, version)| (self.served)(kind, version))
    }
}

/// How much a version is preferred: released ones before betas before alphas before anything else, newer before
/// older, and the rest backwards by name.
pub fn priority(version: &str) -> (u8, u64, u64, Reverse<Str>) {
    let other = || (0, 0, 0, Reverse(version.into()));
    let Some((major, rest)) = version.strip_prefix('v').and_then(number) else { return other() };
    let (class, minor) = match rest {
        "" => (3, Some((0, ""))),
        _ => match rest.strip_prefix("beta") {
            Some(rest) => (2, number(rest)),
            None => (1, rest.strip_prefix("alpha").and_then(number)),
        },
    };
    match minor {
        Some((minor, "")) => (class, major, minor, Reverse(Str::default())),
        _ => other(),
    }
}

/// The number that a text begins with, and the rest. Versions do not begin with a zero.
fn number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if digits.starts_with('0') { None } else { Some((digits.parse().ok()?, rest)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_preferred_by_how_ready_and_how_new_they_are() {
        let mut versions =
            ["v1", "foo1", "v2beta1", "v10", "v1alpha2", "v11alpha2", "foo10", "v3beta1", "v12alpha1", "v2"];
        versions.sort_by_key(|version| Reverse(priority(version)));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v3beta1", "v2beta1", "v12alpha1", "v11alpha2", "v1alpha2", "foo1", "foo10"]
        );
    }
}
