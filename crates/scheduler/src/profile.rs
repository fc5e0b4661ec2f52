//! Scheduler profiles: plugins with their order and weights.

use std::time::Duration;

use apimachinery::Str;

use crate::framework::Plugin;
use crate::plugins::{
    AffinityToNodes, BalancedAllocation, DefaultConstraints, DefaultPreemption, DynamicResources, Fit, ImageLocality,
    InterPodAffinity, NodeDeclaredFeatures, NodeName, NodePorts, NodeUnschedulable, NodeVolumeLimits, SchedulingGates,
    TaintToleration, TopologySpread, VolumeBinding, VolumeRestrictions, VolumeZone,
};

/// A profile, selected by the `schedulerName` of pods.
pub struct Profile {
    pub scheduler_name: Str,
    /// Plugins in filter order.
    pub plugins: Vec<EnabledPlugin>,
    /// Percentage of nodes that must be feasible before the search stops; 0 selects it by cluster size.
    pub percentage_of_nodes_to_score: i64,
    /// `None` disables preemption.
    pub preemption: Option<DefaultPreemption>,
    pub timeouts: Patience,
}

/// Timeouts of the steps before binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Timeout for volume provisioning.
    pub volumes: Duration,
    /// Timeout for the binding conditions of devices.
    pub devices: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { volumes: Duration::from_secs(600), devices: Duration::from_secs(600) }
    }
}

/// A plugin and its enabled extension points.
pub struct EnabledPlugin {
    pub plugin: Box<dyn Plugin>,
    /// Whether PreEnqueue runs.
    pub gates: bool,
    /// Whether PreFilter runs, which may reject the pod or restrict the candidate nodes.
    pub pre_filters: bool,
    /// Whether Filter runs.
    pub filters: bool,
    /// Weight of the score; 0 disables Score.
    pub weight: i64,
}

impl EnabledPlugin {
    /// Enables a plugin at all its extension points.
    pub fn fully(plugin: impl Plugin + 'static, weight: i64) -> Self {
        Self { plugin: Box::new(plugin), gates: true, pre_filters: true, filters: true, weight }
    }
}

impl Profile {
    /// Returns the number of feasible nodes at which the search stops, in a cluster of `all` nodes.
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
                EnabledPlugin::fully(SchedulingGates, 0),
                EnabledPlugin::fully(NodeUnschedulable, 0),
                EnabledPlugin::fully(NodeName, 0),
                EnabledPlugin::fully(TaintToleration, 3),
                EnabledPlugin::fully(AffinityToNodes::default(), 2),
                EnabledPlugin::fully(NodePorts, 0),
                EnabledPlugin::fully(Fit::default(), 1),
                EnabledPlugin::fully(VolumeRestrictions, 0),
                EnabledPlugin::fully(NodeVolumeLimits, 0),
                EnabledPlugin::fully(VolumeBinding, 0),
                EnabledPlugin::fully(VolumeZone, 0),
                EnabledPlugin::fully(TopologySpread::new(DefaultConstraints::System), 2),
                EnabledPlugin::fully(InterPodAffinity::default(), 2),
                EnabledPlugin::fully(DynamicResources, 2),
                EnabledPlugin::fully(BalancedAllocation::default(), 1),
                EnabledPlugin::fully(ImageLocality, 1),
                EnabledPlugin::fully(NodeDeclaredFeatures, 0),
            ],
            percentage_of_nodes_to_score: 0,
            preemption: Some(DefaultPreemption::default()),
            timeouts: Patience::default(),
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
