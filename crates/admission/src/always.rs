//! AlwaysAdmit and AlwaysDeny admission plugins.

use apimachinery::Value;
use apimachinery::status::Status;

use super::{Attributes, Notes, Plugin, View};

pub(crate) struct AlwaysAdmit;
pub(crate) struct AlwaysDeny;

impl Plugin for AlwaysAdmit {}

impl Plugin for AlwaysDeny {
    fn admit(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        view: &dyn View,
        notes: &mut Notes,
    ) -> Result<(), Status> {
        self.validate(attributes, object, view, notes)
    }

    fn validate(&self, attributes: &Attributes<'_>, object: &Value, _: &dyn View, _: &mut Notes) -> Result<(), Status> {
        Err(attributes.forbidden(object, "admission control is denying all modifications"))
    }
}
