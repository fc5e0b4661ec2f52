//! CronJob: a job by the clock.

use crate::kind::{Kind, Subresource, names};

/// The row of CronJob.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["cj"]),
        categories: names(&["all"]),
        subresources: vec![Subresource::status()],
        ..Kind::stored("batch", "v1", "CronJob", "cronjobs")
    }
}
