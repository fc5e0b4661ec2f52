//! Deployment: pods replaced step by step.

use crate::kind::{Kind, Subresource, names};

/// The row of Deployment.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["deploy"]),
        categories: names(&["all"]),
        subresources: vec![Subresource::scale(), Subresource::status()],
        ..Kind::stored("apps", "v1", "Deployment", "deployments")
    }
}
