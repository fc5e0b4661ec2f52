//! Scheduler plugins, one file each.

pub mod balanced_allocation;
pub mod default_preemption;
pub mod dynamic_resources;
pub mod fit;
pub mod image_locality;
pub mod inter_pod_affinity;
pub mod node_affinity;
pub mod node_declared_features;
pub mod node_name;
pub mod node_ports;
pub mod node_unschedulable;
pub mod node_volume_limits;
pub mod priority_sort;
pub mod scheduling_gates;
pub mod taint_toleration;
pub mod topology_spread;
pub mod volume_binding;
pub mod volume_restrictions;
pub mod volume_zone;

pub use balanced_allocation::BalancedAllocation;
pub use default_preemption::DefaultPreemption;
pub use dynamic_resources::DynamicResources;
pub use fit::{Fit, Strategy};
pub use image_locality::ImageLocality;
pub use inter_pod_affinity::InterPodAffinity;
pub use node_affinity::AffinityToNodes;
pub use node_declared_features::NodeDeclaredFeatures;
pub use node_name::NodeName;
pub use node_ports::NodePorts;
pub use node_unschedulable::NodeUnschedulable;
pub use node_volume_limits::NodeVolumeLimits;
pub use scheduling_gates::SchedulingGates;
pub use taint_toleration::TaintToleration;
pub use topology_spread::{DefaultConstraints, TopologySpread};
pub use volume_binding::VolumeBinding;
pub use volume_restrictions::VolumeRestrictions;
pub use volume_zone::VolumeZone;

#[cfg(test)]
mod tests;
