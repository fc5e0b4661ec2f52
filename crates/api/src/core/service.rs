//! Service: one name and address for many pods.

use machinery::GroupVersion;

use crate::kind::{Connect, Keeping, Kind, Subresource, Verb, names};

/// The row of Service.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["svc"]),
        categories: names(&["all"]),
        keeping: Keeping::Stored {
            prefix: "services/specs".into(),
            version: GroupVersion { group: "".into(), version: "v1".into() },
            expires: false,
        },
        subresources: vec![
            Subresource::connect(
                "proxy",
                "ServiceProxyOptions",
                &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update],
                Connect::Proxy,
            ),
            Subresource::status(),
        ],
        create_on_update: true,
        returns_deleted: true,
        ..Kind::stored("", "v1", "Service", "services")
    }
}
