//! A store of one member in this process, which nobody else reaches.

use std::path::PathBuf;
use std::time::Duration;

use consensus::Peer;

use crate::backend::NodeBackend;
use crate::client::Client;
use crate::node::{self, Node, Start, StartError};
use crate::watch::Hub;

/// Bytes of a log segment.
pub const SEGMENT_BYTES: u64 = 64 << 20;
/// Bytes of log after which a checkpoint is written, at least.
pub const CHECKPOINT_BYTES: u64 = 64 << 20;

/// Opens the store in a folder, made now if it is the first time. The member runs until it is stopped or all its handles are
/// gone.
pub async fn open(data_dir: PathBuf) -> Result<(Client, Node), StartError> {
    let hub = Hub::default();
    let watching = hub.clone();
    let peer = Peer { id: 1, name: "default".into(), peer_urls: Vec::new(), client_urls: Vec::new(), learner: false };
    let config = node::Config {
        id: 1,
        cluster_id: 1,
        data_dir,
        heartbeat: Duration::from_millis(100),
        election_ticks: 10,
        start: Start::New(vec![peer]),
        listeners: Vec::new(),
        tls: None,
        on_apply: Box::new(move |state| watching.publish(state)),
        segment_bytes: SEGMENT_BYTES,
        checkpoint_bytes: CHECKPOINT_BYTES,
    };
    let node = Node::start(config).await?;
    let backend = NodeBackend::new(node.clone(), hub).with_quota(crate::etcd::Config::default().quota_bytes);
    Ok((Client::Local(backend), node))
}
