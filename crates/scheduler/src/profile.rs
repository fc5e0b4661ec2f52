//! A way of placing pods: which plug-ins, in which order, with which weights.

use std::time::Duration;

use machinery::Str;

use crate::framework::Plugin;
use crate::plugins::{
    AffinityToNodes, BalancedAllocation, DefaultConstraints, DefaultPreemption, DynamicResources, Fit, ImageLocality,
    InterPodAffinity, NodeDeclaredFeatures, NodeName, NodePorts, NodeUnschedulable, NodeVolumeLimits, SchedulingGates,
    TaintToleration, TopologySpread, VolumeBinding, VolumeRestrictions, VolumeZone,
};

/// How the pods of one `schedulerName` are placed.
pub struct Profile {
    /// The name that pods choose it by.
    pub scheduler_name: Str,
    /// The plug-ins, in the order in which they are asked about nodes.
    pub plugins: Vec<Enabled>,
    /// Of how many nodes in a hundred it is enough to know that they can take a pod; 0 for as the size demands.
    pub percentage_of_nodes_to_score: i64,
    /// How room is made by evicting pods, if it is.
    pub preemption: Option<DefaultPreemption>,
    /// How long its pods wait for what they need once they have a node.
    pub patience: Patience,
}

/// How long a pod that has a node waits for what must be ready before it is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For volumes to be made.
    pub volumes: Duration,
    /// For devices to become ready.
    pub devices: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { volumes: Duration::from_secs(600), devices: Duration::from_secs(600) }
    }
}

/// A plug-in and what it is asked.
pub struct Enabled {
    /// The plug-in.
    pub plugin: Box<dyn Plugin>,
    /// Whether it may keep a pod out of the queue.
    pub gates: bool,
    /// Whether it may reject a pod, or all but some nodes, before any node is looked at.
    pub pre_filters: bool,
    /// Whether it judges nodes.
    pub filters: bool,
    /// How much its ranking of nodes counts; 0 for not at all.
    pub weight: i64,
}

impl Enabled {
    /// A plug-in that is asked everything it has an answer to.
    pub fn fully(plugin: impl Plugin + 'static, weight: i64) -> Self {
        Self { plugin: Box::new(plugin), gates: true, pre_filters: true, filters: true, weight }
    }
}

impl Profile {
    /// How many nodes that can take a pod are enough, of so many.
    pub fn nodes_enough(&self, all: usize) -> usize {
        const LEAST: usize = 100;
        const LEAST_PERCENTAGE: i64 = 5;
        if all < LEAST || self.percentage_of_nodes_to_score >= 100 {
            return all;
        }
        let adaptive = || (50 - i64::try_from(all).unwrap_or(i64::MAX) / 125).max(LEAST_PERCENTAGE);
        let percentage = match self.percentage_of_nodes_to_score {
            given if given > 0 => given,
            _ => adaptive(),
        };
        let enough = all * usize::try_from(percentage).unwrap_or(100) / 100;
        enough.max(LEAST)
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            scheduler_name: "default-scheduler".into(),
            plugins: vec![
                Enabled::fully(SchedulingGates, 0),
                Enabled::fully(NodeUnschedulable, 0),
                Enabled::fully(NodeName, 0),
                Enabled::fully(TaintToleration, 3),
                Enabled::fully(AffinityToNodes::default(), 2),
                Enabled::fully(NodePorts, 0),
                Enabled::fully(Fit::default(), 1),
                Enabled::fully(VolumeRestrictions, 0),
                Enabled::fully(NodeVolumeLimits, 0),
                Enabled::fully(VolumeBinding, 0),
                Enabled::fully(VolumeZone, 0),
                Enabled::fully(TopologySpread::new(DefaultConstraints::System), 2),
                Enabled::fully(InterPodAffinity::default(), 2),
                Enabled::fully(DynamicResources, 2),
                Enabled::fully(BalancedAllocation::default(), 1),
                Enabled::fully(ImageLocality, 1),
                Enabled::fully(NodeDeclaredFeatures, 0),
            ],
            percentage_of_nodes_to_score: 0,
            preemption: Some(DefaultPreemption::default()),
            patience: Patience::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_clusters_are_sampled() {
        let check = |percentage_of_nodes_to_score, all, expect| {
            let profile = Profile { percentage_of_nodes_to_score, ..Profile::default() };
            assert_eq!(profile.nodes_enough(all), expect);
        };
        check(0, 99, 99);
        check(0, 100, 100);
        check(0, 1000, 420);
        check(0, 5000, 500);
        check(0, 6000, 300);
        check(40, 1000, 400);
        check(5, 1000, 100);
        check(100, 1000, 1000);
    }
}
