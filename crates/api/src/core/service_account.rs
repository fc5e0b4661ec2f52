//! ServiceAccount: who a pod is.

use crate::kind::{Does, Kind, Subresource, names};

/// The row of ServiceAccount.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["sa"]),
        subresources: vec![Subresource::action("token", ("authentication.k8s.io", "v1", "TokenRequest"), Does::Token)],
        returns_deleted: true,
        ..Kind::stored("", "v1", "ServiceAccount", "serviceaccounts")
    }
}
