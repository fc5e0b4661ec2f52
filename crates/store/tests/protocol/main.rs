//! etcd's protocol, as its clients see it: over a real member, and side by side with a real etcd.

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
