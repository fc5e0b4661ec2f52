//! EndpointSlice: some of the addresses behind a service.

use crate::kind::Kind;

/// The row of EndpointSlice.
pub fn kind() -> Kind {
    Kind::stored("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
}
