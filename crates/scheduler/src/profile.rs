//! A way of placing pods: which plug-ins, in which order, with which weights.

use machinery::Str;

use crate::framework::Plugin;
use crate::plugins::{
    AffinityToNodes, BalancedAllocation, DefaultConstraints, DefaultPreemption, Fit, ImageLocality, InterPodAffinity,
    NodeName, NodePorts, NodeUnschedulable, SchedulingGates, TaintToleration, TopologySpread, Unsupported,
};

/// How the pods of one `schedulerName` are placed.
pub struct Profile {
    /// The name that pods choose it by.
    pub scheduler_name: Str,
    /// The plug-ins in the order in which they are asked, with their weights.
    pub plugins: Vec<(Box<dyn Plugin>, i64)>,
    /// Of how many nodes in a hundred it is enough to know that they can take a pod; 0 for as the size demands.
    pub percentage_of_nodes_to_score: i64,
    /// How room is made by evicting pods, if it is.
    pub preemption: Option<DefaultPreemption>,
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
        let plugins: Vec<(Box<dyn Plugin>, i64)> = vec![
            (Box::new(SchedulingGates), 0),
            (Box::new(NodeUnschedulable), 0),
            (Box::new(NodeName), 0),
            (Box::new(TaintToleration), 3),
            (Box::new(AffinityToNodes::default()), 2),
            (Box::new(NodePorts), 0),
            (Box::new(Fit::default()), 1),
            (Box::new(Unsupported("VolumeRestrictions")), 0),
            (Box::new(Unsupported("VolumeBinding")), 0),
            (Box::new(TopologySpread::new(DefaultConstraints::System)), 2),
            (Box::new(InterPodAffinity::default()), 2),
            (Box::new(Unsupported("DynamicResources")), 2),
            (Box::new(BalancedAllocation::default()), 1),
            (Box::new(ImageLocality), 1),
        ];
        Self {
            scheduler_name: "default-scheduler".into(),
            plugins,
            percentage_of_nodes_to_score: 0,
            preemption: Some(DefaultPreemption::default()),
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
