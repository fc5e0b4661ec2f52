//! NamespaceExists: rejects requests in namespaces that do not exist.

use api::resources::NAMESPACES;
use apimachinery::Value;
use apimachinery::status::{GroupName, Status};

use super::{Attributes, Notes, Plugin, View};

pub(crate) struct NamespaceExists;

impl Plugin for NamespaceExists {
    fn validate(&self, attributes: &Attributes<'_>, _: &Value, view: &dyn View, _: &mut Notes) -> Result<(), Status> {
        let namespace = attributes.namespace;
        if namespace.is_empty() || view.object(NAMESPACES, "", namespace).is_some() {
            return Ok(());
        }
        Err(Status::not_found(GroupName::new("", "namespaces"), namespace))
    }
}
