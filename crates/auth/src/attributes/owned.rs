//! Owned authorization attributes, for reviews and for checks before the request itself.

use apimachinery::{Str, fields, labels};

use super::{Attributes, Resource, Target};
use crate::User;

/// An owned form of [`Attributes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedAttributes {
    /// The requester.
    pub user: User,
    pub verb: Str,
    pub about: OwnedTarget,
}

/// An owned form of [`Target`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedTarget {
    Resource(OwnedResource),
    /// A non-resource path.
    Path(Str),
}

/// An owned form of [`Resource`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedResource {
    /// The API group, empty for the core group.
    pub group: Str,
    pub version: Str,
    /// The plural name.
    pub resource: Str,
    pub subresource: Str,
    /// The namespace, empty for all namespaces and for cluster-scoped resources.
    pub namespace: Str,
    /// The object name, empty for requests on collections.
    pub name: Str,
    pub field_selector: Vec<fields::Requirement>,
    pub label_selector: Vec<labels::Requirement>,
}

impl OwnedAttributes {
    /// Returns the borrowed form of the attributes.
    pub fn attributes(&self) -> Attributes<'_> {
        let target = match &self.about {
            OwnedTarget::Path(path) => Target::Path(path),
            OwnedTarget::Resource(resource) => Target::Resource(Resource {
                group: &resource.group,
                version: &resource.version,
                resource: &resource.resource,
                subresource: &resource.subresource,
                namespace: &resource.namespace,
                name: &resource.name,
                field_selector: &resource.field_selector,
                label_selector: &resource.label_selector,
            }),
        };
        Attributes { user: &self.user, verb: &self.verb, target }
    }
}

impl From<&Attributes<'_>> for OwnedAttributes {
    fn from(attributes: &Attributes<'_>) -> Self {
        let about = match attributes.target {
            Target::Path(path) => OwnedTarget::Path(path.into()),
            Target::Resource(resource) => OwnedTarget::Resource(OwnedResource {
                group: resource.group.into(),
                version: resource.version.into(),
                resource: resource.resource.into(),
                subresource: resource.subresource.into(),
                namespace: resource.namespace.into(),
                name: resource.name.into(),
                field_selector: resource.field_selector.to_vec(),
                label_selector: resource.label_selector.to_vec(),
            }),
        };
        Self { user: attributes.user.clone(), verb: attributes.verb.into(), about }
    }
}
