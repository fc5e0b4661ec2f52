//! GroupVersionKind: the type of an API object.

use std::fmt;
use std::str::FromStr;

use crate::{Str, Value};

/// An API group and version. The core group is the empty string.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersion {
    /// `apps`, `batch`; empty for the core group.
    pub group: Str,
    /// `v1`, `v1beta1`.
    pub version: Str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionKind {
    /// `apps`, `batch`; empty for the core group.
    pub group: Str,
    /// `v1`, `v1beta1`.
    pub version: Str,
    pub kind: Str,
}

/// An `apiVersion` with more than one slash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unexpected GroupVersion string: {0}")]
pub struct InvalidGroupVersion(pub String);

impl GroupVersion {
    pub const fn of(group: &'static str, version: &'static str) -> Self {
        Self { group: Str::const_new(group), version: Str::const_new(version) }
    }

    pub fn kind(self, kind: impl Into<Str>) -> GroupVersionKind {
        GroupVersionKind { group: self.group, version: self.version, kind: kind.into() }
    }
}

impl GroupVersionKind {
    pub const fn of(group: &'static str, version: &'static str, kind: &'static str) -> Self {
        Self { group: Str::const_new(group), version: Str::const_new(version), kind: Str::const_new(kind) }
    }

    /// Parses an object's `apiVersion` and `kind`.
    pub fn parse(api_version: &str, kind: &str) -> Result<Self, InvalidGroupVersion> {
        Ok(api_version.parse::<GroupVersion>()?.kind(kind))
    }

    /// Returns the type of an object; absent fields are empty.
    pub fn of_object(object: &Value) -> Result<Self, InvalidGroupVersion> {
        let text = |key| object.get(key).and_then(Value::as_str).unwrap_or_default();
        Self::parse(text("apiVersion"), text("kind"))
    }

    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }

    /// Returns the `apiVersion` of objects of this kind: `apps/v1`, `v1`.
    pub fn api_version(&self) -> Str {
        self.group_version().to_string().into()
    }
}

impl FromStr for GroupVersion {
    type Err = InvalidGroupVersion;

    /// Parses an `apiVersion`. The empty string and `/` are the empty version of the core group, as in Go.
    fn from_str(text: &str) -> Result<Self, InvalidGroupVersion> {
        if text.is_empty() || text == "/" {
            return Ok(Self::default());
        }
        match text.split_once('/') {
            None => Ok(Self { group: Str::default(), version: text.into() }),
            Some((group, version)) if !version.contains('/') => {
                Ok(Self { group: group.into(), version: version.into() })
            }
            Some(_) => Err(InvalidGroupVersion(text.to_owned())),
        }
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            out.write_str(&self.version)
        } else {
            write!(out, "{}/{}", self.group, self.version)
        }
    }
}

/// The form in upstream's messages: `apps/v1, Kind=Deployment`.
impl fmt::Display for GroupVersionKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[test]
    fn api_version_is_a_group_and_a_version_or_a_version_of_the_core_group() {
        let check = |text: &str, group: &str, version: &str| {
            let parsed: GroupVersion = text.parse().unwrap();
            assert_eq!((parsed.group.as_str(), parsed.version.as_str()), (group, version), "{text}");
        };
        check("v1", "", "v1");
        check("apps/v1", "apps", "v1");
        check("rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io", "v1");
        check("", "", "");
        check("/", "", "");
        check("/v1", "", "v1");
    }

    #[test]
    fn two_slashes_fail_with_upstreams_message() {
        let error = "a/b/c".parse::<GroupVersion>().unwrap_err();
        assert_eq!(error.to_string(), "unexpected GroupVersion string: a/b/c");
    }

    #[test]
    fn gvk_is_read_from_an_object() {
        let deployment = GroupVersionKind::of("apps", "v1", "Deployment");
        let object = value!({"apiVersion": "apps/v1", "kind": "Deployment"});
        assert_eq!(GroupVersionKind::of_object(&object), Ok(deployment.clone()));
        assert_eq!(GroupVersionKind::of_object(&value!({})), Ok(GroupVersionKind::default()));
        assert_eq!(deployment.to_string(), "apps/v1, Kind=Deployment");
        assert_eq!(deployment.api_version(), "apps/v1");
        assert_eq!(GroupVersionKind::of("", "v1", "Pod").to_string(), "/v1, Kind=Pod");
        assert_eq!(GroupVersionKind::of("", "v1", "Pod").api_version(), "v1");
    }
}
