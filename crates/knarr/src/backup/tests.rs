//! Backups of an embedded store, and their restoration.

use std::time::SystemTime;

use ::store::client::Client;

use super::restore::{RestoreTarget, restore};
use super::*;

/// A data directory whose store serves snapshots, as that of a running cluster does.
struct Cluster {
    dir: tempfile::TempDir,
    client: Client,
    _stop: tokio::sync::oneshot::Sender<()>,
}

impl Cluster {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (client, _) = single_member::open(dir.path().join("store")).await.unwrap();
        let Client::Local(backend) = client.clone() else { panic!("it is in this process") };
        let socket = dir.path().join(crate::apiserver::STORE_SOCKET);
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let at = socket.clone();
        tokio::spawn(async move {
            single_member::serve_snapshots(backend, &at, async { drop(stopped.await) }).await.unwrap();
        });
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            tokio::task::yield_now().await;
        }
        let pki = Pki::open(&dir.path().join(PKI)).unwrap();
        let kubelet = pki::Subject::client("kubelet", "system:node:first", "system:nodes");
        pki.certificate(&kubelet, SystemTime::now()).unwrap();
        std::fs::write(dir.path().join("cluster.json"), "{}").unwrap();
        Self { dir, client, _stop: stop }
    }

    async fn put(&self, key: &'static str) {
        let put = mvcc::Put { key: key.into(), value: Some("1".into()), lease: Some(0), want_previous: false };
        let put = mvcc::Txn { compare: Vec::new(), success: vec![mvcc::Operation::Put(put)], failure: Vec::new() };
        self.client.txn(put).await.unwrap();
    }

    fn request(&self, name: &str, encrypt_to: Option<String>) -> Request {
        let to = self.dir.path().join("saved").join(name);
        Request { data_dir: self.dir.path().to_owned(), to, encrypt_to }
    }
}

fn place(dir: &Path) -> RestoreTarget {
    RestoreTarget { data_dir: dir.join("data"), root: dir.join("root"), node_name: None, node_ip: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_of_a_running_store_is_restored_with_keys_and_settings() {
    let cluster = Cluster::start().await;
    cluster.put("a").await;
    let (secret, public) = backup_encryption::new_key_pair().unwrap();
    for (name, encrypt_to, secret) in [("plain", None, None), ("sealed", Some(public), Some(secret.as_str()))] {
        let request = cluster.request(name, encrypt_to);
        let record = make(&request).await.unwrap();
        assert_eq!(Record::read(cluster.dir.path()).unwrap().file, record.file);
        let saved: Vec<_> = std::fs::read_dir(request.to.parent().unwrap()).unwrap().flatten().collect();
        assert!(saved.iter().all(|entry| entry.path().extension().is_none()), "unfinished files are left: {saved:?}");

        let target = tempfile::tempdir().unwrap();
        let place = place(target.path());
        let restored = restore(&request.to, secret, &place).unwrap();
        assert_eq!(restored.description.node_name, "first");
        for file in ["pki/ca.key", "pki/sa.key", "pki/kubelet.crt", "cluster.json"] {
            let read = |dir: &Path| std::fs::read(dir.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert_eq!(read(&place.data_dir), read(cluster.dir.path()), "{file}");
        }
        assert!(!place.data_dir.join("restore.tmp").exists());
        let (client, _) = single_member::open(place.data_dir.join("store")).await.unwrap();
        assert!(client.revision().await.unwrap() >= record.revision + i64::from(snapshot::SKIPPED));
        let again = restore(&request.to, secret, &place).err().unwrap().to_string();
        assert!(again.contains("is not empty") && again.contains("knarr down --purge"), "{again}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_backup_is_not_restored_and_leaves_nothing() {
    let cluster = Cluster::start().await;
    let request = cluster.request("b", None);
    make(&request).await.unwrap();
    let mut bytes = std::fs::read(&request.to).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&request.to, bytes).unwrap();
    let target = tempfile::tempdir().unwrap();
    let place = place(target.path());
    let error = restore(&request.to, None, &place).err().unwrap();
    assert!(format!("{error:#}").contains("is damaged"), "{error:#}");
    assert_eq!(std::fs::read_dir(&place.data_dir).unwrap().count(), 0);
    assert!(!place.root.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn existing_files_and_missing_clusters_are_rejected() {
    let cluster = Cluster::start().await;
    let request = cluster.request("b", None);
    std::fs::create_dir_all(request.to.parent().unwrap()).unwrap();
    std::fs::write(&request.to, "mine").unwrap();
    let error = make(&request).await.unwrap_err().to_string();
    assert!(error.contains("exists; name another file with --to"), "{error}");
    let empty = tempfile::tempdir().unwrap();
    let request = Request { data_dir: empty.path().to_owned(), to: empty.path().join("b"), encrypt_to: None };
    assert!(make(&request).await.unwrap_err().to_string().contains("has no store"));
    std::fs::create_dir(empty.path().join("store")).unwrap();
    assert!(make(&request).await.unwrap_err().to_string().contains("start the cluster first"));
    let bad = Request { encrypt_to: Some("x".to_owned()), ..cluster.request("c", None) };
    assert!(format!("{:#}", make(&bad).await.unwrap_err()).contains("backup-public:HEX"));
}

#[test]
fn full_disk_is_explained() {
    let full = anyhow::Error::new(std::io::Error::from(std::io::ErrorKind::StorageFull)).context("deep");
    let error = format!("{:#}", with_advice(full, Path::new("/b")));
    assert!(error.contains("the disk of /b is full; free some space"), "{error}");
    let other = anyhow::Error::new(std::io::Error::from(std::io::ErrorKind::NotFound));
    assert!(!format!("{:#}", with_advice(other, Path::new("/b"))).contains("full"));
}

#[test]
fn files_of_the_host_are_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (name, text) in [("from/etc/knarr/config.yaml", "a"), ("from/etc/keys", "k"), ("root/etc/keys", "other")] {
        std::fs::create_dir_all(at(name).parent().unwrap()).unwrap();
        std::fs::write(at(name), text).unwrap();
    }
    let kept = restore::restore_host_files(&at("from"), &at("root")).unwrap();
    assert_eq!(kept, [at("root/etc/keys")]);
    assert_eq!(std::fs::read_to_string(at("root/etc/knarr/config.yaml")).unwrap(), "a");
    assert_eq!(std::fs::read_to_string(at("root/etc/keys")).unwrap(), "other");
    assert!(restore::restore_host_files(&at("none"), &at("root")).unwrap().is_empty());
}
