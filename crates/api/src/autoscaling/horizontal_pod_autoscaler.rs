//! HorizontalPodAutoscaler: as many pods as the load asks for.

use crate::kind::{Kind, Subresource, names};

/// The row of HorizontalPodAutoscaler.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["hpa"]),
        categories: names(&["all"]),
        subresources: vec![Subresource::status()],
        ..Kind::stored("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
    }
}
