//! Proxy tests: kubelets, pods and aggregated API servers behind the API server, all real servers in this process.

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod aggregated;
mod cluster;
mod evictions;
mod hostile;
mod kubelet;
mod proxied;
mod server;
mod streams;
