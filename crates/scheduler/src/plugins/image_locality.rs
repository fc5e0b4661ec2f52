//! ImageLocality: prefers nodes that already have the pod's images, weighted by the share of nodes that have them.

use crate::framework::{Cycle, Plugin, SCORE_MAX, Scorer};
use crate::snapshot::NodeId;

const MIB: i64 = 1024 * 1024;
/// Minimum sum of image sizes that affects the score.
const LEAST: i64 = 23 * MIB;
/// Maximum size counted per image.
const MOST_PER_IMAGE: i64 = 1000 * MIB;

pub struct ImageLocality;

struct Local<'a> {
    /// For each image present on any node: the nodes with its size there, and the share of all nodes.
    images: Vec<(&'a [(NodeId, i64)], f64)>,
    most: i64,
}

impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        "ImageLocality"
    }

    #[expect(clippy::cast_precision_loss, reason = "a share of nodes")]
    fn scorer<'a>(&'a self, cycle: Cycle<'a>, _nodes: &[NodeId]) -> Option<Box<dyn Scorer + 'a>> {
        let Cycle { snapshot, pod } = cycle;
        let all = snapshot.nodes().len() as f64;
        let nodes = pod.images.iter().map(|image| snapshot.image_nodes(image));
        let images: Vec<_> =
            nodes.filter(|nodes| !nodes.is_empty()).map(|nodes| (nodes, nodes.len() as f64 / all)).collect();
        if images.is_empty() {
            return None;
        }
        let most = MOST_PER_IMAGE * i64::try_from(pod.images.len()).unwrap_or(1);
        Some(Box::new(Local { images, most }))
    }
}

impl Scorer for Local<'_> {
    #[expect(clippy::cast_possible_truncation, reason = "truncated as upstream does")]
    #[expect(clippy::cast_precision_loss, reason = "sizes of images are far below 2^53")]
    fn score(&self, node: NodeId) -> i64 {
        let scaled = |(nodes, share): &(&[(NodeId, i64)], f64)| {
            let at = nodes.binary_search_by_key(&node, |(node, _)| *node).ok()?;
            Some((nodes[at].1 as f64 * share) as i64)
        };
        let sum: i64 = self.images.iter().filter_map(scaled).sum();
        SCORE_MAX * (sum.clamp(LEAST, self.most) - LEAST) / (self.most - LEAST)
    }
}
