//! The served kinds by group and version.

use std::cmp::Reverse;
use std::sync::Arc;

use api::Kind;
use api::kind::Version;
use api::version_priority::version_priority;

/// The kinds and their served versions.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    /// All kinds, in the order in which discovery lists their groups.
    pub kinds: &'a [Arc<Kind>],
    /// Whether a version of a kind is served, according to `--runtime-config` or the CRD.
    pub served: &'a dyn Fn(&Kind, &Version) -> bool,
}

impl<'a> Table<'a> {
    /// Returns the groups in order without duplicates, including the core group. Groups of custom resources come last:
    /// upstream gives them one priority, and sorts groups of equal priority by name.
    pub fn groups(&self) -> Vec<&'a str> {
        let (mut groups, mut custom): (Vec<&str>, Vec<&str>) = Default::default();
        for kind in self.kinds {
            let name = kind.group.as_str();
            let served = || kind.versions.iter().any(|version| (self.served)(kind, version));
            if !groups.contains(&name) && !custom.contains(&name) && served() {
                if kind.is_custom() { custom.push(name) } else { groups.push(name) }
            }
        }
        custom.sort_unstable();
        groups.extend(custom);
        groups
    }

    /// Returns the served versions of a group, the preferred one first.
    pub fn versions(&self, group: &str) -> Vec<&'a str> {
        let mut versions: Vec<&str> = self.rows_of(group).map(|(_, version)| version.name.as_str()).collect();
        versions.sort_by_key(|version| Reverse(version_priority(version)));
        versions.dedup();
        versions
    }

    /// Returns the served kinds of a group version, sorted by resource.
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
