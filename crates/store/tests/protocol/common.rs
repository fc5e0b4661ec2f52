//! Test members with separate directories and ports.

use std::time::Duration;

use anyhow::Result;
use consensus::Peer;
use store::Node;
use store::backend::NodeBackend;
use store::etcd::{self, Endpoint};
use store::member::{Config, Start};
use store::watch::Hub;
use tokio::net::TcpListener;
use tonic::transport::Channel;

use crate::transcript::Servers;

const CLUSTER_ID: u64 = 0xcdf8_18b9_5c66_4d02;
/// Number of heartbeats without a leader until an election.
const ELECTION_TICKS: u32 = 10;

/// A single-member cluster that runs while the value exists.
pub(crate) struct Single {
    pub endpoint: String,
    pub backend: NodeBackend,
    node: Node,
    _dir: tempfile::TempDir,
}

impl Servers for Single {
    fn endpoint(&self) -> String {
        self.endpoint.clone()
    }
}

impl Single {
    pub(crate) async fn start(config: etcd::Config) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let clients = Endpoint::open("127.0.0.1:0", None).await?;
        let endpoint = format!("http://{}", clients.local_addr()?);
        let this = Peer {
            id: 0x8e9e_05c5_2164_694d,
            name: "default".to_owned(),
            peer_urls: vec!["http://127.0.0.1:2380".to_owned()],
            client_urls: vec![endpoint.clone()],
            learner: false,
        };
        let (id, start) = (this.id, Start::New(vec![this]));
        let (node, backend) = start_node(id, &dir, Duration::from_millis(100), start, Vec::new()).await?;
        serve(&node, clients, etcd::router(backend.clone(), config));
        Ok(Self { endpoint, backend, node, _dir: dir })
    }

    /// Stops the member and deletes its directory.
    pub(crate) async fn stop(self) {
        self.node.stop().await;
    }
}

/// A member that can start: its peer and client listeners are open.
pub(crate) struct Seat {
    pub peer: Peer,
    dir: tempfile::TempDir,
    listener: TcpListener,
    clients: Endpoint,
    heartbeat: Duration,
}

/// A running member with a client.
pub(crate) struct Member {
    pub node: Node,
    pub channel: Channel,
    /// The client services.
    pub router: axum::Router,
    _dir: tempfile::TempDir,
}

impl Seat {
    pub(crate) async fn new(id: u64, heartbeat: Duration) -> Result<Self> {
        let (listener, clients) = (TcpListener::bind("127.0.0.1:0").await?, Endpoint::open("127.0.0.1:0", None).await?);
        let peer_urls = vec![format!("http://{}", listener.local_addr()?)];
        let client_urls = vec![format!("http://{}", clients.local_addr()?)];
        let peer = Peer { id, name: format!("m{}", id & 0xf), peer_urls, client_urls, learner: false };
        Ok(Self { peer, dir: tempfile::tempdir()?, listener, clients, heartbeat })
    }

    pub(crate) async fn start(self, start: Start) -> Result<Member> {
        let Self { peer, dir, listener, clients, heartbeat } = self;
        let (node, backend) = start_node(peer.id, &dir, heartbeat, start, vec![listener]).await?;
        let channel = Channel::from_shared(peer.client_urls[0].clone())?.connect_lazy();
        let config = etcd::Config { election_timeout: heartbeat * ELECTION_TICKS, ..Default::default() };
        let router = etcd::router(backend, config);
        serve(&node, clients, router.clone());
        Ok(Member { node, channel, router, _dir: dir })
    }
}

async fn start_node(
    id: u64,
    dir: &tempfile::TempDir,
    heartbeat: Duration,
    start: Start,
    listeners: Vec<TcpListener>,
) -> Result<(Node, NodeBackend)> {
    let hub = Hub::default();
    let publisher = hub.clone();
    let node = Node::start(Config {
        id,
        cluster_id: CLUSTER_ID,
        data_dir: dir.path().to_owned(),
        heartbeat,
        election_ticks: ELECTION_TICKS as usize,
        start,
        listeners,
        tls: None,
        on_apply: Box::new(move |state| publisher.publish(state)),
        segment_bytes: 1 << 20,
        checkpoint_bytes: 1 << 20,
    })
    .await?;
    let backend = NodeBackend::new(node.clone(), hub);
    Ok((node, backend))
}

fn serve(node: &Node, clients: Endpoint, router: axum::Router) {
    let stopped = node.clone();
    tokio::spawn(etcd::serve(clients, router, async move {
        stopped.stopped().await;
    }));
}
