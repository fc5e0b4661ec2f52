//! End-to-end tests of a node: the real API server, the real kubelet with the built-in runtime, real containers.
//! The tests need root. `KNARR_TEST_RUNTIME=containerd` uses Debian's containerd.
//! `KNARR_TEST_CGROUP=v2` requires that only cgroup v2 is mounted, and allows kubelets to run without controllers.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod bootstrap;
mod builtin;
mod cluster;
mod confined;
mod containerd;
mod controllers;
mod devices;
mod drivers;
mod features;
mod hooks;
mod host;
mod hostile;
mod images;
mod kubectl;
#[path = "../common/leftovers.rs"]
mod leftovers;
mod life;
mod machine;
mod nearness;
mod node;
mod pressure;
mod propagation;
mod registries;
mod registry;
mod server;
mod sources;
mod special;
mod standalone;
mod storage;
mod volumes;
