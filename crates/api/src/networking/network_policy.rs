//! NetworkPolicy: who may talk to whom.

use crate::kind::{Kind, names};

/// The row of NetworkPolicy.
pub fn kind() -> Kind {
    Kind {
        short_names: names(&["netpol"]),
        ..Kind::stored("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
    }
}
