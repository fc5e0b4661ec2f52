//! PodDisruptionBudget: how many pods may be away at once.

use crate::kind::{Kind, Subresource, names};

/// The row of PodDisruptionBudget.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["pdb"]),
        subresources: vec![Subresource::status()],
        ..Kind::stored("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
    }
}
