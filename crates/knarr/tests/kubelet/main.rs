//! End-to-end tests of a node: the real API server, the real kubelet with the built-in runtime, real containers.
//! Without root the tests are skipped with a message. `KNARR_TEST_RUNTIME=containerd` uses Debian's containerd.

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
