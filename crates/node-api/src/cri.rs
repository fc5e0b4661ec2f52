//! CRI v1, the container runtime interface between kubelet and runtime.
//!
//! The Windows fields are included so that no field of a client is lost; they are never used.

mod connect;

pub use connect::{ConnectError, connect};

/// Messages, services and clients of package `runtime.v1`.
#[expect(clippy::allow_attributes, clippy::too_many_lines, unused_qualifications, reason = "generated code")]
pub mod v1 {
    tonic::include_proto!("runtime.v1");
}
