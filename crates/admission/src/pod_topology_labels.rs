//! PodTopologyLabels: copies the node's zone and region labels to a bound pod.

use api::resources::{NODES, PODS};
use apimachinery::Value;
use apimachinery::meta::{Meta, MetaMut};
use apimachinery::status::Status;

use super::pods::spec;
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
        let node = match (attributes.is(PODS), attributes.operation, attributes.subresource) {
            (true, Operation::Create, "") => spec(object).text_at(&["nodeName"]),
            // The labels of a Binding are copied to the pod.
            (true, Operation::Create, "binding") => object.text_at(&["target", "name"]),
            _ => "",
        };
        if node.is_empty() {
            return Ok(());
        }
        let Some(node) = view.object(NODES, "", node) else { return Ok(()) };
        for label in LABELS {
            if let (Some(value), Some(mut meta)) = (Meta::of(&node).label(label), MetaMut::of(object)) {
                meta.set_label(label, value);
            }
        }
        Ok(())
    }
}
