//! API resources: group, version, plural name, kind and scope.

use std::fmt;

use crate::meta::Scope;
use crate::{GroupVersion, GroupVersionKind, Str};

/// A resource in one version of its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// `apps`, `batch`; empty for the core group.
    pub group: Str,
    /// `v1`, `v1beta1`.
    pub version: Str,
    /// The name in the URL path: `deployments`.
    pub plural: Str,
    pub kind: Str,
    pub scope: Scope,
}

impl Resource {
    /// Returns a namespaced resource from constants.
    pub const fn namespaced(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        kind: &'static str,
    ) -> Self {
        Self::of(group, version, plural, kind, Scope::Namespaced)
    }

    /// Returns a cluster-scoped resource from constants.
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

    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }

    pub fn group_version_kind(&self) -> GroupVersionKind {
        self.group_version().kind(self.kind.clone())
    }

    /// Returns the `apiVersion` of its objects: `apps/v1`, `v1`.
    pub fn api_version(&self) -> String {
        self.group_version().to_string()
    }
}

/// The form in RBAC rules: `pods`, `deployments.apps`.
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
    fn resources_print_like_in_rbac_rules() {
        assert_eq!(Resource::namespaced("", "v1", "pods", "Pod").to_string(), "pods");
        let deployments = Resource::namespaced("apps", "v1", "deployments", "Deployment");
        assert_eq!(deployments.to_string(), "deployments.apps");
        assert_eq!(deployments.api_version(), "apps/v1");
    }
}
