//! Job: pods that come to an end.

use crate::kind::{Dependents, Kind, Subresource, names};

/// The row of Job.
pub fn kind() -> Kind {
    Kind {
        categories: names(&["all"]),
        subresources: vec![Subresource::status()],
        returns_deleted: true,
        dependents: Dependents::Orphan,
        ..Kind::stored("batch", "v1", "Job", "jobs")
    }
}
