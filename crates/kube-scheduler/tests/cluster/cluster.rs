//! Test cluster: a store, an API server and schedulers in this process; nodes are objects without a kubelet.

use std::sync::Arc;
use std::time::Duration;

use apimachinery::{Key, Resource, Value, value};
use client::cache::{self, Reader, Source};
use client::{Client, Patch, Target, WriteOptions};
use controller::{Objects, kinds};
use controller_runtime::Caches;
use kube_apiserver::{Server, in_process};
use kube_scheduler::events::Recorder;
use kube_scheduler::{Metrics, Runner};
use scheduler::Configuration;
use store::Node;
use tempfile::TempDir;
use tokio::task::JoinSet;

const DEADLINE: Duration = Duration::from_secs(120);

pub(crate) struct Cluster {
    server: Server,
    pods: Reader<Value>,
    watches: JoinSet<()>,
    _node: Node,
    _directory: TempDir,
}

/// A scheduler that runs until it is dropped.
pub(crate) struct Running {
    pub metrics: Arc<Metrics>,
    _tasks: JoinSet<()>,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (store, node) = store::single_member::open(directory.path().join("store")).await.unwrap();
        let mut config = kube_apiserver::Config::local(directory.path().join("certs"));
        // No controller creates the service accounts that pods would use.
        config.admission.disable.push("ServiceAccount".to_owned());
        let server = Server::start(config, store).await.unwrap();
        let client = admin(&server);
        let mut watches = JoinSet::new();
        let mut watch = |resource: &Resource| {
            let source = Source::all(client.clone(), resource.clone());
            let (reflector, reader) = cache::new(source, cache::Settings::default(), Vec::new(), |object| object);
            watches.spawn(reflector.run());
            reader
        };
        let (pods, namespaces) = (watch(&kinds::PODS), watch(&kinds::NAMESPACES));
        let cluster = Self { server, pods, watches, _node: node, _directory: directory };
        wait(namespaces, "the default namespace", |all| all.get(&Key::cluster("default")).is_some()).await;
        cluster
    }

    /// Returns an in-process client with all permissions.
    pub(crate) fn admin(&self) -> Client {
        admin(&self.server)
    }

    pub(crate) async fn create(&self, resource: &Resource, object: Value) -> Value {
        let namespace = object.text_at(&["metadata", "namespace"]).to_owned();
        let target = Target::within(resource, namespace);
        self.admin().create(&target, &object, &WriteOptions::default()).await.unwrap()
    }

    /// Creates a node with this CPU capacity.
    pub(crate) async fn node(&self, name: &str, zone: &str, cpu: &str) {
        let labels = value!({"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone});
        let node = value!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
        self.create(&kinds::NODES, node).await;
        // The server taints new nodes as not ready.
        let open = value!({"spec": {"taints": null}});
        let target = Target::object(&kinds::NODES, &Key::cluster(name));
        self.admin().patch(&target, &Patch::Merge(open), &WriteOptions::default()).await.unwrap();
        let amounts = value!({"cpu": cpu, "memory": "16Gi", "pods": "110"});
        let status = value!({"status": {"capacity": (amounts.clone()), "allocatable": amounts}});
        let target = Target::object(&kinds::NODES, &Key::cluster(name)).subresource("status");
        self.admin().patch(&target, &Patch::Merge(status), &WriteOptions::default()).await.unwrap();
    }

    /// Creates a pod with this CPU request.
    pub(crate) async fn pod(&self, name: &str, cpu: &str, mut spec: Value) -> Value {
        let fields = spec.as_object_mut().unwrap();
        fields.get_or_insert_with("terminationGracePeriodSeconds", || 0.into());
        let container = value!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
        fields.insert("containers", value!([container]));
        let meta = value!({"name": name, "namespace": "default", "labels": {"app": "web", "pod": name}});
        self.create(&kinds::PODS, value!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})).await
    }

    /// Starts a scheduler with `rest` appended to an empty configuration.
    pub(crate) fn schedule(&self, rest: &str) -> Running {
        schedule(&self.admin(), rest)
    }

    /// Waits for a condition on all pods.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&Objects) -> bool) -> Objects {
        wait(self.pods.clone(), what, condition).await
    }

    /// Waits for a condition on a resource type that is not watched permanently.
    pub(crate) async fn until_of(
        &mut self,
        resource: &Resource,
        what: &str,
        condition: impl Fn(&Objects) -> bool,
    ) -> Objects {
        let source = Source::all(self.admin(), resource.clone());
        let (reflector, reader) = cache::new(source, cache::Settings::default(), Vec::new(), |object| object);
        self.watches.spawn(reflector.run());
        wait(reader, what, condition).await
    }
}

/// Starts a scheduler with `rest` appended to an empty configuration.
pub(crate) fn schedule(client: &Client, rest: &str) -> Running {
    let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
    let configuration = Configuration::read(&format!("{head}{rest}")).unwrap();
    let caches = Caches::start(client, &cache::Settings::default(), Runner::reads()).unwrap();
    let (recorder, sending) = Recorder::new(client.clone(), "host");
    let metrics = Arc::new(Metrics::default());
    let config = kube_scheduler::Config {
        profiles: configuration.profiles,
        extenders: kube_scheduler::Extenders::new(&configuration.extenders).unwrap(),
        queue: configuration.queue,
        requests_max: 64,
    };
    let shell = Runner::new(client.clone(), caches, recorder, config, Arc::clone(&metrics)).unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(sending);
    tasks.spawn(async move { shell.run().await.unwrap() });
    Running { metrics, _tasks: tasks }
}

/// Returns the node of a pod; empty if it has none.
pub(crate) fn node_of(pods: &Objects, name: &str) -> String {
    let pod = pods.get(&Key::new("default", name));
    pod.and_then(|pod| pod.str_at(&["spec", "nodeName"])).unwrap_or_default().to_owned()
}

/// Returns the number of assigned pods.
pub(crate) fn placed(pods: &Objects) -> usize {
    pods.iter().filter(|entry| !node_of(pods, &entry.key.name).is_empty()).count()
}

async fn wait(mut reader: Reader<Value>, what: &str, condition: impl Fn(&Objects) -> bool) -> Objects {
    let waiting = async {
        loop {
            let objects = reader.snapshot().objects;
            if reader.progress().synced && condition(&objects) {
                return objects;
            }
            reader.advanced().await.unwrap();
        }
    };
    match tokio::time::timeout(DEADLINE, waiting).await {
        Ok(objects) => objects,
        Err(_) => {
            let objects = reader.snapshot().objects;
            let rendered: Vec<String> = objects.iter().take(10).map(|entry| entry.value.to_string()).collect();
            panic!("never {what}:\n{}", rendered.join("\n"));
        }
    }
}

fn admin(server: &Server) -> Client {
    in_process::admin(Arc::clone(server.state()))
}
