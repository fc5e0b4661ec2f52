//! The pod network in network namespaces of its own: links, addresses, packet rules, plug-ins. Needs root.

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod mesh;
mod plugins;
mod routed;
mod spoof;
mod world;
