//! Where objects of a kind are found in the API: group, version, the plural in the path, and whether in namespaces.

use std::fmt;

use crate::meta::Scope;
use crate::{GroupVersion, GroupVersionKind, Str};

/// One resource in one version of its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// `apps`, `batch`; empty for the core group.
    pub group: Str,
    /// `v1`, `v1beta1`.
    pub version: Str,
    /// The word in the path: `deployments`.
    pub plural: Str,
    /// What its objects call themselves: `Deployment`.
    pub kind: Str,
    /// Whether its objects live in namespaces.
    pub scope: Scope,
}

impl Resource {
    /// A resource whose objects live in namespaces, from constants.
    pub const fn namespaced(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        kind: &'static str,
    ) -> Self {
        Self::of(group, version, plural, kind, Scope::Namespaced)
    }

    /// A resource whose objects live in no namespace, from constants.
    pub const fn cluster(group: &'static str, version: &'static str, plural: &'static str, kind: &'static str) -> Self {
        Self::of(group, version, plural, kind, Scope::Cluster)
    }

    const fn of(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        kind: &'static str,
        scope: Scope,
    ) -> Self {
        Self {
            group: Str::const_new(group),
            version: Str::const_new(version),
            plural: Str::const_new(plural),
            kind: Str::const_new(kind),
            scope,
        }
    }

    /// The group and version.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }

    /// The kind of its objects.
    pub fn group_version_kind(&self) -> GroupVersionKind {
        self.group_version().kind(self.kind.clone())
    }

    /// How its objects state their version: `apps/v1`, `v1`.
    pub fn api_version(&self) -> String {
        self.group_version().to_string()
    }
}

/// As rules of access name it: `pods`, `deployments.apps`.
impl fmt::Display for Resource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.plural)?;
        if !self.group.is_empty() {
            write!(out, ".{}", self.group)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_named_as_rules_of_access_name_it() {
        assert_eq!(Resource::namespaced("", "v1", "pods", "Pod").to_string(), "pods");
        let deployments = Resource::namespaced("apps", "v1", "deployments", "Deployment");
        assert_eq!(deployments.to_string(), "deployments.apps");
        assert_eq!(deployments.api_version(), "apps/v1");
    }
}
