//! Embedded single-member store: it runs in this process and listens on no port.

use std::path::{Path, PathBuf};
use std::time::Duration;

use consensus::Peer;

use crate::backend::NodeBackend;
use crate::client::Client;
use crate::etcd::{self, Endpoint, ServeError};
use crate::member::{self, Node, Start, StartError};
use crate::watch::Hub;

/// Size of a log segment in bytes.
pub const SEGMENT_BYTES: u64 = 64 << 20;
/// Minimum log size in bytes between two checkpoints.
pub const CHECKPOINT_BYTES: u64 = 64 << 20;

/// Returns the single member.
pub fn member() -> Peer {
    Peer { id: 1, name: "default".into(), peer_urls: Vec::new(), client_urls: Vec::new(), learner: false }
}

/// Opens the store in a directory and creates it if needed. The member runs until it is stopped or all its handles are
/// dropped.
pub async fn open(data_dir: PathBuf) -> Result<(Client, Node), StartError> {
    let hub = Hub::default();
    let watching = hub.clone();
    let config = member::Config {
        id: 1,
        cluster_id: 1,
        data_dir,
        heartbeat: Duration::from_millis(100),
        election_ticks: 10,
        start: Start::New(vec![member()]),
        listeners: Vec::new(),
        tls: None,
        on_apply: Box::new(move |state| watching.publish(state)),
        segment_bytes: SEGMENT_BYTES,
        checkpoint_bytes: CHECKPOINT_BYTES,
    };
    let node = Node::start(config).await?;
    let backend = NodeBackend::new(node.clone(), hub).with_quota(etcd::Config::default().quota_bytes);
    Ok((Client::Local(backend), node))
}

/// Serves the maintenance API (snapshots) of a store in this process on a Unix socket, until `stop` completes. Only the
/// owner can connect, and no request can change objects.
pub async fn serve_snapshots(
    store: NodeBackend,
    socket: &Path,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let endpoint = Endpoint::open_own(socket)?;
    etcd::serve(endpoint, etcd::maintenance(store, etcd::Config::default()), stop).await;
    let _ = std::fs::remove_file(socket);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Freshness, RemoteConfig};
    use crate::snapshot;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn embedded_store_is_snapshotted_while_running_and_restored() {
        let dir = tempfile::tempdir().unwrap();
        let (client, node) = open(dir.path().join("store")).await.unwrap();
        let Client::Local(backend) = client.clone() else { panic!("it is in this process") };
        let put = mvcc::Put { key: "a".into(), value: Some("1".into()), lease: Some(0), want_previous: false };
        let put = mvcc::Txn { compare: Vec::new(), success: vec![mvcc::Operation::Put(put)], failure: Vec::new() };
        client.txn(put).await.unwrap();
        let socket = dir.path().join("store.sock");
        std::fs::write(&socket, "left by one that died").unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let at = socket.clone();
        let serving = tokio::spawn(async move { serve_snapshots(backend, &at, async { drop(stopped.await) }).await });
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            tokio::task::yield_now().await;
        }
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&socket).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        let server = RemoteConfig { servers: vec![format!("unix://{}", socket.display())], ..RemoteConfig::default() };
        let file = dir.path().join("snapshot");
        snapshot::save(&server, &file).await.unwrap();
        drop(stop);
        serving.await.unwrap().unwrap();
        assert!(!socket.exists());
        node.stop().await;

        let mut state = snapshot::read(&file).unwrap();
        let before = state.revision();
        state.skip_revisions(snapshot::SKIPPED);
        state.compact_all();
        snapshot::restore(state, &[member()], &dir.path().join("restored")).unwrap();
        let (restored, node) = open(dir.path().join("restored")).await.unwrap();
        let found = restored.get("a".into(), Freshness::Linearizable).await.unwrap();
        assert!(format!("{found:?}").contains('1'), "{found:?}");
        assert_eq!(restored.revision().await.unwrap(), before + i64::from(snapshot::SKIPPED));
        // A watch from a revision after the snapshot fails, so that the client lists again.
        let watch_error = match restored.watch(mvcc::Span::key(bytes::Bytes::from("a")), before + 5).await {
            Ok(mut watch) => watch.next().await.err(),
            Err(error) => Some(error),
        };
        assert!(watch_error.as_ref().is_some_and(|error| error.to_string().contains("compacted")), "{watch_error:?}");
        node.stop().await;
    }
}
