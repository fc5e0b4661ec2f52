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

/// The group and plural name of a built-in resource, which identify it in any version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    /// `apps`, `batch`; empty for the core group.
    pub group: &'static str,
    /// The name in the URL path: `deployments`.
    pub plural: &'static str,
}

impl GroupResource {
    pub const fn new(group: &'static str, plural: &'static str) -> Self {
        Self { group, plural }
    }

    /// Whether the group and plural name are those of this resource.
    pub fn is(self, group: &str, plural: &str) -> bool {
        self.plural == plural && self.group == group
    }
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

    /// Whether this is a version of a built-in resource.
    pub fn is(&self, resource: GroupResource) -> bool {
        resource.is(&self.group, &self.plural)
    }

    /// Whether both are the same resource, possibly in different versions.
    pub fn is_version_of(&self, other: &Self) -> bool {
        self.plural == other.plural && self.group == other.group
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
        write_name(&self.group, &self.plural, out)
    }
}

/// The form in RBAC rules: `pods`, `deployments.apps`.
impl fmt::Display for GroupResource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_name(self.group, self.plural, out)
    }
}

fn write_name(group: &str, plural: &str, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    out.write_str(plural)?;
    if group.is_empty() { Ok(()) } else { write!(out, ".{group}") }
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
        assert_eq!(GroupResource::new("", "pods").to_string(), "pods");
        assert_eq!(GroupResource::new("apps", "deployments").to_string(), "deployments.apps");
        assert!(deployments.is(GroupResource::new("apps", "deployments")));
        assert!(!deployments.is(GroupResource::new("", "deployments")));
    }
}
