//! Proxy tests: kubelets, pods and aggregated API servers behind the API server, all real servers in this process.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod aggregated;
mod cluster;
mod evictions;
mod hostile;
mod kubelet;
mod proxied;
mod server;
mod streams;
