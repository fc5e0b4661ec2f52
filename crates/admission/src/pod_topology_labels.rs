//! PodTopologyLabels: copies the node's zone and region labels to a bound pod.

use apimachinery::Value;
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::status::Status;

use super::pods::{spec, text};
use super::{Attributes, Notes, Operation, Plugin, View};

const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

pub(crate) struct PodTopologyLabels;

impl Plugin for PodTopologyLabels {
    fn admit(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        view: &dyn View,
        _: &mut Notes,
    ) -> Result<(), Status> {
        let node = match (attributes.is("", "pods"), attributes.operation, attributes.subresource) {
            (true, Operation::Create, "") => text(spec(object), "nodeName"),
            // The labels of a Binding are copied to the pod.
            (true, Operation::Create, "binding") => object.str_at(&["target", "name"]).unwrap_or_default(),
            _ => "",
        };
        if node.is_empty() {
            return Ok(());
        }
        let Some(node) = view.object("", "nodes", "", node) else { return Ok(()) };
        for label in LABELS {
            if let (Some(value), Some(mut meta)) = (Meta::of(&node).label(label), MetaMut::of(object)) {
                meta.set_label(label, value);
            }
        }
        Ok(())
    }
}
