//! Attributes that own what they say: those of a review, or of a check that comes before the request itself.

use machinery::{Str, fields, labels};

use super::{Attributes, Resource, Target};
use crate::User;

/// What an authorizer is to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Who asks.
    pub user: User,
    /// What they want to do.
    pub verb: Str,
    /// What they want to do it to.
    pub about: About,
}

/// What a question is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// An API resource.
    Resource(OwnedResource),
    /// A path that is no resource.
    Path(Str),
}

/// A [`Resource`] that owns its words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedResource {
    /// Its API group, empty for the core group.
    pub group: Str,
    /// The version of the group.
    pub version: Str,
    /// Its plural name.
    pub resource: Str,
    /// The part of it that is meant.
    pub subresource: Str,
    /// The namespace, empty for all of them and for what has none.
    pub namespace: Str,
    /// The one object that is meant.
    pub name: Str,
    /// What the fields of the objects must be.
    pub field_selector: Vec<fields::Requirement>,
    /// What the labels of the objects must be.
    pub label_selector: Vec<labels::Requirement>,
}

impl Question {
    /// The question as authorizers take it.
    pub fn attributes(&self) -> Attributes<'_> {
        let target = match &self.about {
            About::Path(path) => Target::Path(path),
            About::Resource(resource) => Target::Resource(Resource {
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

impl From<&Attributes<'_>> for Question {
    fn from(attributes: &Attributes<'_>) -> Self {
        let about = match attributes.target {
            Target::Path(path) => About::Path(path.into()),
            Target::Resource(resource) => About::Resource(OwnedResource {
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
