//! Tests of the pod network in network namespaces: links, addresses, packet rules, CNI plugins. Needs root.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod mesh;
mod plugins;
mod routed;
mod spoof;
mod topology;
