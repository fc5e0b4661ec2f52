//! The replicated key-value store: speaks etcd's protocol, keeps the log and the members.

pub mod backend;
pub mod etcd;
pub mod watch;
