//! Node: a machine that runs pods.

use machinery::GroupVersion;
use machinery::meta::Scope;

use crate::kind::{Connect, Keeping, Kind, Subresource, Verb, names};

/// The row of Node.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["no"]),
        scope: Scope::Cluster,
        keeping: Keeping::Stored {
            prefix: "minions".into(),
            version: GroupVersion { group: "".into(), version: "v1".into() },
            expires: false,
        },
        subresources: vec![
            Subresource::connect(
                "proxy",
                "NodeProxyOptions",
                &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update],
                Connect::Proxy,
            ),
            Subresource::status(),
        ],
        ..Kind::stored("", "v1", "Node", "nodes")
    }
}
