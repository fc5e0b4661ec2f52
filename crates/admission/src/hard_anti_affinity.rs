//! LimitPodHardAntiAffinityTopology: required pod anti-affinity may only use the topology key of the host name.

use api::resources::PODS;
use apimachinery::Value;
use apimachinery::status::Status;

use super::pods::spec;
use super::{Attributes, Notes, Plugin, View};

const HOSTNAME: &str = "kubernetes.io/hostname";

pub(crate) struct LimitPodHardAntiAffinityTopology;

impl Plugin for LimitPodHardAntiAffinityTopology {
    fn validate(&self, attributes: &Attributes<'_>, pod: &Value, _: &dyn View, _: &mut Notes) -> Result<(), Status> {
        if !attributes.writes(PODS) {
            return Ok(());
        }
        let anti = &spec(pod)["affinity"]["podAntiAffinity"];
        for term in anti.list_at(&["requiredDuringSchedulingIgnoredDuringExecution"]) {
            let key = term.text_at(&["topologyKey"]);
            if key != HOSTNAME {
                let message = format!(
                    "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} is allowed"
                );
                return Err(attributes.forbidden(pod, message));
            }
        }
        Ok(())
    }
}
