//! Event: something that happened to an object.

use machinery::GroupVersion;

use crate::kind::{Keeping, Kind, names};

/// The row of Event.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["ev"]),
        keeping: Keeping::Stored {
            prefix: "events".into(),
            version: GroupVersion { group: "".into(), version: "v1".into() },
            expires: true,
        },
        create_on_update: true,
        ..Kind::stored("events.k8s.io", "v1", "Event", "events")
    }
}
