//! A node from outside: the real API server, the real kubelet with the runtime inside, real containers. Needs root; says so and
//! passes without. With `KNARR_TEST_RUNTIME=containerd` the same over Debian's containerd.

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod bootstrap;
mod builtin;
mod cluster;
mod confined;
mod containerd;
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
mod registry;
mod server;
mod sources;
mod special;
mod standalone;
mod storage;
mod volumes;
