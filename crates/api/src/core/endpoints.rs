//! Endpoints: the addresses behind a service, all in one object.

use machinery::GroupVersion;

use crate::kind::{Keeping, Kind, names};

/// The row of Endpoints.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["ep"]),
        keeping: Keeping::Stored {
            prefix: "services/endpoints".into(),
            version: GroupVersion { group: "".into(), version: "v1".into() },
            expires: false,
        },
        create_on_update: true,
        ..Kind::stored("", "v1", "Endpoints", "endpoints")
    }
}
