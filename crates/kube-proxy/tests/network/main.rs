//! Tests of services in network namespaces: rules in the kernel, and connections through them. Needs root.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod fixture;
mod listing;
mod policies;
mod scale;
mod services;
#[path = "../../../pod-network/tests/network/topology.rs"]
mod topology;
