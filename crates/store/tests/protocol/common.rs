//! A cluster of one member in a directory of its own, served on a port of its own.

use std::time::Duration;

use anyhow::Result;
use consensus::Peer;
use store::Node;
use store::backend::NodeBackend;
use store::etcd::{self, Endpoint};
use store::node::{Config, Start};
use store::watch::Hub;

/// A member that runs as long as the value lives.
pub struct Single {
    /// Where clients reach it.
    pub endpoint: String,
    /// The member itself.
    pub backend: NodeBackend,
    node: Node,
    _folder: tempfile::TempDir,
}

impl Single {
    pub async fn start(config: etcd::Config) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let clients = Endpoint::open("127.0.0.1:0", None).await?;
        let endpoint = format!("http://{}", clients.local_addr()?);
        let hub = Hub::default();
        let publisher = hub.clone();
        let this = Peer {
            id: 0x8e9e_05c5_2164_694d,
            name: "default".to_owned(),
            peer_urls: vec!["http://127.0.0.1:2380".to_owned()],
            client_urls: vec![endpoint.clone()],
            learner: false,
        };
        let node = Node::start(Config {
            id: this.id,
            cluster_id: 0xcdf8_18b9_5c66_4d02,
            data_dir: folder.path().to_owned(),
            heartbeat: Duration::from_millis(100),
            election_ticks: 10,
            start: Start::New(vec![this]),
            listeners: Vec::new(),
            tls: None,
            on_apply: Box::new(move |state| publisher.publish(state)),
            segment_bytes: 1 << 20,
            checkpoint_bytes: 1 << 20,
        })
        .await?;
        let backend = NodeBackend::new(node.clone(), hub);
        let router = etcd::router(backend.clone(), config);
        let stopped = node.clone();
        tokio::spawn(etcd::serve(clients, router, async move {
            stopped.stopped().await;
        }));
        Ok(Self { endpoint, backend, node, _folder: folder })
    }

    /// Stops the member; its directory is gone after this.
    pub async fn stop(self) {
        self.node.stop().await;
    }
}
