//! ApplySets (KEP-3659): objects that one tool applies together, so that it can prune those it no longer applies.
//!
//! A parent object has the ID of the set as a label, and the kinds and namespaces of the members as annotations. Each
//! member has the ID as a label.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use apimachinery::{Key, Resource, Str};
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The label of the members, with the ID of the set.
pub const PART_OF: &str = "applyset.kubernetes.io/part-of";
/// The label of the parent, with the ID of the set.
pub const ID: &str = "applyset.kubernetes.io/id";
/// The annotation of the parent with the name and version of the tool: `kubectl/v1.36`.
pub const TOOLING: &str = "applyset.kubernetes.io/tooling";
/// The annotation of the parent with the kinds of the members.
pub const CONTAINS_GROUP_KINDS: &str = "applyset.kubernetes.io/contains-group-kinds";
/// The annotation of the parent with the namespaces of the members, except its own.
pub const ADDITIONAL_NAMESPACES: &str = "applyset.kubernetes.io/additional-namespaces";

/// A kind in any version, printed as `Deployment.apps` and `ConfigMap`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupKind {
    pub kind: Str,
    /// Empty for the core group.
    pub group: Str,
}

impl GroupKind {
    pub fn of(resource: &Resource) -> Self {
        Self { kind: resource.kind.clone(), group: resource.group.clone() }
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.kind)?;
        if self.group.is_empty() { Ok(()) } else { write!(out, ".{}", self.group) }
    }
}

impl FromStr for GroupKind {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, group) = text.split_once('.').unwrap_or((text, ""));
        Ok(Self { kind: kind.into(), group: group.into() })
    }
}

/// Returns the ID of the set with this parent.
pub fn id(parent: &Resource, key: &Key) -> String {
    let text = format!("{}.{}.{}.{}", key.name, key.namespace, parent.kind, parent.group);
    format!("applyset-{}-v1", URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes())))
}

/// Formats the value of an annotation that is a set.
pub fn join<T: fmt::Display>(items: &BTreeSet<T>) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Parses the value of an annotation that is a set.
pub fn split<T: FromStr + Ord>(text: &str) -> BTreeSet<T> {
    text.split(',').filter(|item| !item.is_empty()).filter_map(|item| item.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_that_of_kubectl() {
        let config_maps = Resource::namespaced("", "v1", "configmaps", "ConfigMap");
        let id = id(&config_maps, &Key::new("my-ns", "my-set"));
        // From `printf my-set.my-ns.ConfigMap. | openssl sha256 -binary | basenc --base64url`.
        assert_eq!(id, "applyset-cH6yId20fa7Ak8MtKIBN1H8OMqIef-Q9TNkI3Rl_ufo-v1");
        assert!(id.len() <= 63, "a label value");
    }

    #[test]
    fn kinds_are_printed_and_parsed() {
        let kinds: BTreeSet<GroupKind> = split("ConfigMap,Deployment.apps,Ingress.networking.k8s.io");
        assert_eq!(kinds.last().unwrap().group, "networking.k8s.io");
        assert_eq!(join(&kinds), "ConfigMap,Deployment.apps,Ingress.networking.k8s.io");
        assert!(split::<GroupKind>("").is_empty());
    }
}
