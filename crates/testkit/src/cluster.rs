//! An in-process store and API server, and an admin client.

use std::sync::Arc;
use std::time::Duration;

use apimachinery::{Key, Resource, Value};
use client::cache::{self, Reader, Source};
use client::{Client, Target, WriteOptions};
use controller::{Objects, index_by, kinds};
use kube_apiserver::{Server, in_process};
use store::Node;
use tempfile::TempDir;
use tokio::task::JoinSet;

/// Time limit of every wait.
const DEADLINE: Duration = Duration::from_secs(120);

/// A store and an API server. Both are stopped and their files are deleted on drop.
pub struct Cluster {
    server: Server,
    watched: Vec<(Resource, Reader<Value>)>,
    _node: Node,
    _watches: JoinSet<()>,
    _directory: TempDir,
}

impl Cluster {
    /// Starts a cluster, and watches these kinds for [`Cluster::until`].
    ///
    /// # Panics
    /// If the cluster does not start.
    pub async fn start(watched: &[&Resource]) -> Self {
        let directory = tempfile::tempdir().expect("a directory for temporary files");
        let (store, node) = store::single_member::open(directory.path().join("store")).await.expect("the store starts");
        let mut config = kube_apiserver::Config::local(directory.path().join("certs"));
        // No controller here creates service accounts for pods or removes the taint of a new node.
        config.admission.disable.extend(["ServiceAccount", "TaintNodesByCondition"].map(str::to_owned));
        let server = Server::start(config, store).await.expect("the API server starts");
        let mut cluster =
            Self { server, watched: Vec::new(), _node: node, _watches: JoinSet::new(), _directory: directory };
        for resource in watched.iter().copied().chain([&kinds::NAMESPACES]) {
            let source = Source::all(cluster.admin(), resource.clone());
            let (reflector, reader) = cache::new(source, cache::Settings::default(), index_by(), |object| object);
            cluster._watches.spawn(reflector.run());
            cluster.watched.push((resource.clone(), reader));
        }
        let first = ["default", "kube-system", "kube-node-lease"].map(Key::cluster);
        cluster.until(&kinds::NAMESPACES, "made", |all| first.iter().all(|key| all.get(key).is_some())).await;
        cluster
    }

    /// Returns an in-process admin client.
    ///
    /// # Panics
    /// Never: its settings are valid.
    pub fn admin(&self) -> Client {
        in_process::admin(Arc::clone(self.server.state()))
    }

    /// Creates an object in the namespace `default`.
    ///
    /// # Panics
    /// If the server rejects it.
    pub async fn create(&self, resource: &Resource, object: &Value) -> Value {
        let target = Target::within(resource, "default");
        let created = self.admin().create(&target, object, &WriteOptions::default()).await;
        created.unwrap_or_else(|error| panic!("{object}\nwas rejected: {error}"))
    }

    /// Updates an object in the namespace `default` with a strategic merge patch.
    ///
    /// # Panics
    /// If the server rejects it.
    pub async fn patch(&self, resource: &Resource, name: &str, change: Value) -> Value {
        let target = Target::named(resource, "default", name);
        let patched = self.admin().patch(&target, &client::Patch::Strategic(change), &WriteOptions::default()).await;
        patched.unwrap_or_else(|error| panic!("the patch of {name} was rejected: {error}"))
    }

    /// Returns the cache of a watched kind.
    ///
    /// # Panics
    /// If the kind is not watched.
    pub fn reader(&self, resource: &Resource) -> &Reader<Value> {
        let found = self.watched.iter().find(|(watched, _)| watched == resource);
        &found.unwrap_or_else(|| panic!("{resource} is not watched")).1
    }

    /// Waits until the objects of a watched kind satisfy the condition.
    ///
    /// # Panics
    /// After the time limit; the message contains all watched objects.
    pub async fn until(&self, resource: &Resource, what: &str, condition: impl Fn(&Objects) -> bool) -> Objects {
        let mut reader = self.reader(resource).clone();
        let waiting = async {
            loop {
                let objects = reader.snapshot().objects;
                if condition(&objects) {
                    return objects;
                }
                reader.advanced().await.expect("the server runs");
            }
        };
        if let Ok(objects) = tokio::time::timeout(DEADLINE, waiting).await {
            return objects;
        }
        let lines: Vec<String> = self
            .watched
            .iter()
            .flat_map(|(_, reader)| {
                let objects = reader.snapshot().objects;
                objects.iter().take(10).map(|entry| entry.value.to_string()).collect::<Vec<_>>()
            })
            .collect();
        panic!("{resource} never {what}:\n{}", lines.join("\n"));
    }
}
