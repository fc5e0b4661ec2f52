//! Test cluster in one process: a store, an API server, controller managers and simulated nodes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apimachinery::meta::Meta;
use apimachinery::{Key, Value, value};
use auth::User;
use client::cache::{self, ChangeQueue, ChangedKeys, Reader, Source};
use client::config::{Credential, Pem, Secret, Tls};
use client::{Client, Config, DeleteOptions, Patch, Settings, Target, WriteOptions};
use component_base::events::Recorder;
use controller::{Controller, Objects, index_by, kinds};
use controller_runtime::{Caches, Driver, run};
use controllers::deployment::Deployment;
use controllers::replicaset::ReplicaSet;
use kube_apiserver::authentication::Authenticators;
use kube_apiserver::{Server, in_process};
use store::Node;
use tempfile::TempDir;
use tokio::task::JoinSet;

const TOKEN: &str = "a-token-for-tests";
const DEADLINE: Duration = Duration::from_secs(120);

pub(crate) struct Cluster {
    server: Server,
    ca: String,
    /// The readers for conditions of tests, and the names of all pods ever seen.
    watched: Vec<(&'static str, Reader<Value>)>,
    pods: Arc<Mutex<BTreeSet<String>>>,
    _node: Node,
    watches: JoinSet<()>,
    _directory: TempDir,
}

/// A controller manager with synced caches that is not running yet.
pub(crate) struct Manager {
    driver: Arc<Driver>,
    sending: JoinSet<()>,
}

impl Manager {
    /// Runs the controllers while polled.
    pub(crate) async fn run(&self) {
        let replicasets = run::<ReplicaSet>(Arc::clone(&self.driver), Arc::default(), 5);
        let deployments = run::<Deployment>(Arc::clone(&self.driver), Arc::default(), 5);
        tokio::join!(replicasets, deployments);
    }
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (store, node) = store::single_member::open(directory.path().join("store")).await.unwrap();
        let admin = User::authenticated("admin", ["system:masters".into()]);
        let authenticators = Authenticators { tokens: [(TOKEN.into(), admin)].into(), ..Authenticators::default() };
        let mut config =
            kube_apiserver::Config { authenticators, ..kube_apiserver::Config::local(directory.path().join("certs")) };
        // There is no controller here that creates service accounts for pods.
        config.admission.disable.push("ServiceAccount".to_owned());
        let server = Server::start(config, store).await.unwrap();
        let mut cluster = Self {
            server,
            ca: read_certificate(&directory),
            watched: Vec::new(),
            pods: Arc::default(),
            _node: node,
            watches: JoinSet::new(),
            _directory: directory,
        };
        cluster.wait_for_namespaces().await;
        for resource in [&kinds::DEPLOYMENTS, &kinds::PODS, &kinds::LEASES] {
            let source = Source::all(cluster.admin(), resource.clone());
            let pods = Arc::clone(&cluster.pods);
            let is_pods = *resource == kinds::PODS;
            let (reflector, reader) = cache::new(source, cache::Settings::default(), index_by(), move |object| {
                if is_pods {
                    pods.lock().unwrap().insert(Meta::of(&object).uid().to_owned());
                }
                object
            });
            cluster.watches.spawn(reflector.run());
            let name: &'static str = resource.to_string().leak();
            cluster.watched.push((name, reader));
        }
        cluster
    }

    /// Returns an in-process client of a cluster administrator.
    pub(crate) fn admin(&self) -> Client {
        in_process::admin(Arc::clone(self.server.state()))
    }

    /// Returns an HTTPS client of a cluster administrator.
    pub(crate) fn remote(&self) -> Client {
        let mut config = Config::new(format!("https://{}", self.server.address()).parse().unwrap());
        let ca = Some(Pem::Inline(self.ca.clone().into()));
        config.tls = Tls { certificate_authority: ca, ..Tls::default() };
        config.credential = Credential::Token(Secret::new(TOKEN));
        Client::connect(&config, Settings::default()).unwrap()
    }

    /// Returns a manager with separate caches.
    pub(crate) fn candidate(&self, client: Client) -> Manager {
        let reads = ReplicaSet::READS.iter().chain(Deployment::READS).copied();
        let caches = Caches::start(&client, &cache::Settings::default(), reads).unwrap();
        let (events, sending) = Recorder::new(client.clone(), "kcm");
        let mut tasks = JoinSet::new();
        tasks.spawn(sending);
        let driver = Driver { client, caches, events, manager: "kube-controller-manager".into() };
        Manager { driver: Arc::new(driver), sending: tasks }
    }

    /// Runs a manager until the returned set is dropped.
    pub(crate) fn manage(&self, client: Client) -> JoinSet<()> {
        let mut manager = self.candidate(client);
        let mut tasks = std::mem::take(&mut manager.sending);
        tasks.spawn(async move { manager.run().await });
        tasks
    }

    /// Waits until a condition holds for the objects of a kind.
    pub(crate) async fn until(&self, kind: &str, what: &str, condition: impl Fn(&Objects) -> bool) -> Objects {
        let (_, reader) = self.watched.iter().find(|(watched, _)| *watched == kind).expect("the kind is watched");
        let mut reader = reader.clone();
        let waiting = async {
            loop {
                let objects = reader.snapshot().objects;
                if condition(&objects) {
                    return objects;
                }
                reader.advanced().await.unwrap();
            }
        };
        match tokio::time::timeout(DEADLINE, waiting).await {
            Ok(objects) => objects,
            Err(_) => {
                let rendered: Vec<String> = self
                    .watched
                    .iter()
                    .flat_map(|(_, reader)| {
                        let objects = reader.snapshot().objects;
                        objects.iter().take(5).map(|entry| entry.value.to_string()).collect::<Vec<_>>()
                    })
                    .collect();
                panic!("{kind} never {what}:\n{}", rendered.join("\n"));
            }
        }
    }

    /// Returns the number of distinct pods ever seen.
    pub(crate) fn seen_pods(&self) -> usize {
        self.pods.lock().unwrap().len()
    }

    /// Waits until the server has created the initial namespaces.
    async fn wait_for_namespaces(&self) {
        let source = Source::all(self.admin(), kinds::NAMESPACES.clone());
        let (reflector, mut reader) = cache::new(source, cache::Settings::default(), Vec::new(), |object| object);
        let mut tasks = JoinSet::new();
        tasks.spawn(reflector.run());
        let waiting = async {
            let there = |reader: &Reader<Value>, name| reader.snapshot().objects.get(&Key::cluster(name)).is_some();
            while !(there(&reader, "default") && there(&reader, "kube-system")) {
                reader.advanced().await.unwrap();
            }
        };
        tokio::time::timeout(DEADLINE, waiting).await.expect("namespaces");
    }
}

/// Simulates nodes: every pod runs and is ready immediately, and is removed when it is deleted.
pub(crate) fn nodes(client: Client) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let source = Source::all(client.clone(), kinds::PODS.clone());
    let (reflector, reader) = cache::new(source, cache::Settings::default(), Vec::new(), |object| object);
    let notices = ChangeQueue::new(100_000);
    reader.subscribe(&notices, |change, keys| keys.push(change.key.clone()));
    tasks.spawn(reflector.run());
    tasks.spawn(async move {
        loop {
            let ChangedKeys::Keys(keys) = notices.take().await else { panic!("too many pods") };
            let pods = reader.snapshot().objects;
            let mut steps = JoinSet::new();
            for pod in keys.iter().filter_map(|key| pods.get(key)) {
                steps.spawn(step(client.clone(), pod.clone()));
            }
            while steps.join_next().await.is_some() {}
        }
    });
    tasks
}

/// Advances one pod. A pod may change or be deleted concurrently, which is not an error.
async fn step(client: Client, pod: Value) {
    let key = Key::of(&pod);
    if Meta::of(&pod).is_deleting() {
        let options = DeleteOptions { grace_seconds: Some(0), ..DeleteOptions::default() };
        drop(client.delete(&Target::object(&kinds::PODS, &key), &options).await);
    } else if pod.str_at(&["status", "phase"]) != Some("Running") {
        let now = component_base::clock::now().to_string();
        let status = value!({"status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": now}]}});
        let target = Target::object(&kinds::PODS, &key).subresource("status");
        drop(client.patch(&target, &Patch::Merge(status), &WriteOptions::default()).await);
    }
}

/// Returns the server's self-signed certificate.
fn read_certificate(directory: &TempDir) -> String {
    let certs = std::fs::read_dir(directory.path().join("certs")).unwrap();
    let file = certs.map(|file| file.unwrap().path()).find(|path| path.extension().is_some_and(|it| it == "crt"));
    std::fs::read_to_string(file.expect("a certificate")).unwrap()
}
