//! One etcd-compatible member with the few etcd flags that benchmarks use: `serve --data-dir=D --listen-client-urls=U`.

use std::time::Duration;

use consensus::Peer;
use store::Node;
use store::backend::NodeBackend;
use store::etcd::{self, Endpoint};
use store::member::{Config, Start};
use store::watch::Hub;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() {
    let flag = |name: &str| {
        let prefix = format!("--{name}=");
        std::env::args().find_map(|argument| argument.strip_prefix(&prefix).map(str::to_owned)).expect(name)
    };
    let url = flag("listen-client-urls");
    let hub = Hub::default();
    let watching = hub.clone();
    let peer = Peer { id: 1, name: "one".into(), peer_urls: vec![], client_urls: vec![url.clone()], learner: false };
    let config = Config {
        id: 1,
        cluster_id: 1,
        data_dir: flag("data-dir").into(),
        heartbeat: Duration::from_millis(100),
        election_ticks: 10,
        start: Start::New(vec![peer]),
        listeners: vec![],
        tls: None,
        on_apply: Box::new(move |state| watching.publish(state)),
        segment_bytes: store::single_member::SEGMENT_BYTES,
        checkpoint_bytes: store::single_member::CHECKPOINT_BYTES,
    };
    let node = Node::start(config).await.expect("started");
    let router =
        etcd::router(NodeBackend::new(node.clone(), hub), etcd::Config { quota_bytes: None, ..Default::default() });
    let endpoint = Endpoint::open(url.trim_start_matches("http://"), None).await.expect("an address to listen on");
    tokio::select! {
        () = etcd::serve(endpoint, router, std::future::pending()) => {}
        reason = node.stopped() => eprintln!("{reason:?}"),
    }
}
