//! The container runtime interface, CRI v1, as the contract between a kubelet and a runtime.
//!
//! The messages and services are described in `proto/` by the facts of Kubernetes' `runtime.v1` package; Windows' part is
//! carried so that nothing a client sends is lost, and is never acted upon.

mod connect;

pub use connect::{ConnectError, connect};

/// Messages, services and clients of package `runtime.v1`.
#[expect(missing_docs, reason = "the protocol's own names")]
#[expect(clippy::allow_attributes, clippy::too_many_lines, unused_qualifications, reason = "generated code")]
pub mod v1 {
    tonic::include_proto!("runtime.v1");
}
