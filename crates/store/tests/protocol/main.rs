//! etcd protocol tests, against a real member and in comparison with a real etcd.

mod auth;
mod client;
mod cluster;
mod common;
mod coordination;
mod etcdctl;
mod health;
mod members;
mod metrics;
mod tls;
mod transcript;
mod watch;
