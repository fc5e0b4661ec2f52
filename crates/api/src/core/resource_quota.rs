//! ResourceQuota: how much a namespace may use.

use crate::kind::{Kind, Subresource, names};

/// The row of ResourceQuota.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["quota"]),
        subresources: vec![Subresource::status()],
        returns_deleted: true,
        ..Kind::stored("", "v1", "ResourceQuota", "resourcequotas")
    }
}
