//! TaintNodesByCondition: a new node gets the not-ready taint, so that no pods run on it before it is ready.

use api::resources::NODES;
use apimachinery::status::Status;
use apimachinery::{Value, value};

use super::pods::{list_mut, spec};
use super::{Attributes, Notes, Plugin, View};

const TAINT: &str = "node.kubernetes.io/not-ready";

pub(crate) struct TaintNodesByCondition;

impl Plugin for TaintNodesByCondition {
    fn admit(&self, attributes: &Attributes<'_>, node: &mut Value, _: &dyn View, _: &mut Notes) -> Result<(), Status> {
        let has = |taint: &Value| taint.text_at(&["key"]) == TAINT && taint.text_at(&["effect"]) == "NoSchedule";
        if !attributes.creates(NODES) || spec(node).list_at(&["taints"]).iter().any(has) {
            return Ok(());
        }
        if let Some(fields) = node.as_object_mut()
            && let Value::Object(spec) = fields.get_or_insert_with("spec", Value::object)
        {
            list_mut(spec, "taints").push(value!({"key": TAINT, "effect": "NoSchedule"}));
        }
        Ok(())
    }
}
