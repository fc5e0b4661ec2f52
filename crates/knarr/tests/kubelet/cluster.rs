//! A cluster of one node per test: an API server, a kubelet, and cleanup of both.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use apimachinery::{Resource, Value, json, value};
use cgroups::Cgroup;
use client::config::Kubeconfig;
use client::{Client, Event, Target, WatchOptions, WriteOptions};

use crate::containerd::{Daemon, containerd};
pub(crate) use crate::machine::{IMAGE, Machine, NODE, Process, busybox, component};

/// Time limit of every wait.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) static PODS: Resource = Resource::namespaced("", "v1", "pods", "Pod");
pub(crate) static NODES: Resource = Resource::cluster("", "v1", "nodes", "Node");
pub(crate) static CONFIG_MAPS: Resource = Resource::namespaced("", "v1", "configmaps", "ConfigMap");
pub(crate) static SECRETS: Resource = Resource::namespaced("", "v1", "secrets", "Secret");
pub(crate) static SERVICES: Resource = Resource::namespaced("", "v1", "services", "Service");
pub(crate) static EVENTS: Resource = Resource::namespaced("", "v1", "events", "Event");
pub(crate) static LEASES: Resource = Resource::namespaced("coordination.k8s.io", "v1", "leases", "Lease");

/// The fields are dropped in order: processes before the environment that they run in.
pub(crate) struct Cluster {
    kubelet: Process,
    _server: Process,
    /// A runtime other than the built-in one.
    engine: Option<Daemon>,
    pub machine: Machine,
    ready: String,
    pub client: Client,
    flags: Vec<String>,
}

pub(crate) async fn cluster() -> Cluster {
    cluster_with(&[]).await
}

pub(crate) async fn cluster_with(extra: &[&str]) -> Cluster {
    make(requested_runtime().await, extra, "").await
}

/// Returns a cluster with additional fields in the kubelet's configuration.
pub(crate) async fn cluster_with_config(config: &str) -> Cluster {
    make(requested_runtime().await, &[], config).await
}

/// Returns a cluster with the built-in runtime, for features that only it has. A run over another runtime leaves these
/// tests out.
pub(crate) async fn cluster_with_built_in() -> Cluster {
    cluster_with_built_in_and(&[]).await
}

pub(crate) async fn cluster_with_built_in_and(extra: &[&str]) -> Cluster {
    assert!(!is_on_containerd(), "add this test to BUILT_IN_RUNTIME in xtask/src/ci.rs");
    make(None, extra, "").await
}

/// Returns a cluster with the built-in runtime, whose kubelet has no cgroup controllers.
pub(crate) async fn cluster_without_controllers(flags: &[&str]) -> Cluster {
    assert!(!is_on_containerd(), "containerd uses the cgroups of the host");
    let mut start = Start::new(None).await;
    start.machine.without_controllers = true;
    start.kubelet(flags, "")
}

/// Returns a cluster with a runtime that was started for it.
pub(crate) async fn cluster_on(engine: Option<Daemon>) -> Cluster {
    make(engine, &[], "").await
}

/// With `KNARR_TEST_RUNTIME=containerd`, all tests use Debian's containerd and runc.
fn is_on_containerd() -> bool {
    std::env::var("KNARR_TEST_RUNTIME").is_ok_and(|name| name == "containerd")
}

/// Returns the runtime for this test run; `None` is the built-in one.
async fn requested_runtime() -> Option<Daemon> {
    if is_on_containerd() { Some(containerd().await) } else { None }
}

async fn make(engine: Option<Daemon>, flags: &[&str], config: &str) -> Cluster {
    Start::new(engine).await.kubelet(flags, config)
}

/// A cluster without a kubelet.
pub(crate) struct Start {
    server: Process,
    engine: Option<Daemon>,
    pub machine: Machine,
    pub address: String,
    pub client: Client,
}

impl Start {
    async fn new(engine: Option<Daemon>) -> Self {
        let machine = Machine::new().await;
        let (server, address) = start_server(&machine);
        fs::write(machine.path("admin.kubeconfig"), kubeconfig(&address, "a-token")).unwrap();
        let config = Kubeconfig::load(&[machine.path("admin.kubeconfig")]).unwrap().config(None).unwrap();
        let client = Client::connect(&config, client::Settings::default()).unwrap();
        prepare(&client).await;
        Self { engine, machine, server, address, client }
    }

    /// Whether the runtime is containerd.
    pub(crate) const fn is_on_containerd(&self) -> bool {
        self.engine.is_some()
    }

    /// Starts a kubelet that authenticates with a token.
    pub(crate) fn kubelet(self, flags: &[&str], config: &str) -> Cluster {
        fs::write(self.machine.path("node.kubeconfig"), kubeconfig(&self.address, "n-token")).unwrap();
        self.stranger(flags, config)
    }

    /// Starts a kubelet without credentials, which must bootstrap.
    pub(crate) fn stranger(self, flags: &[&str], config: &str) -> Cluster {
        let Self { server, engine, machine, client, .. } = self;
        let mut flags: Vec<String> = flags.iter().map(|text| (*text).to_owned()).collect();
        if let Some(engine) = &engine {
            flags.extend(["--container-runtime-endpoint".to_owned(), format!("unix://{}", engine.socket().display())]);
        }
        machine.configure(config);
        let (kubelet, ready) = machine.start(kubelet(&machine, &flags));
        Cluster { kubelet, _server: server, engine, machine, ready, client, flags }
    }
}

/// Returns a cluster whose kubelet is not started yet.
pub(crate) async fn cluster_without_kubelet() -> Start {
    Start::new(requested_runtime().await).await
}

fn kubelet(machine: &Machine, flags: &[String]) -> Command {
    let mut kubelet = machine.kubelet();
    kubelet.arg("--kubeconfig").arg(machine.path("node.kubeconfig"));
    kubelet.arg("--client-ca-file").arg(machine.path("client.pem")).args(flags);
    kubelet
}

fn start_server(machine: &Machine) -> (Process, String) {
    let tokens = machine.path("tokens.csv");
    let lines = format!(
        "a-token,admin,admin,\"system:masters\"\nn-token,system:node:{NODE},node,\"system:nodes\"\n\
         b-token,system:bootstrap:aaaaaa,joins,\"system:bootstrappers\"\n"
    );
    fs::write(&tokens, lines).unwrap();
    write_certificates(machine);
    let mut server = Command::new(env!("CARGO_BIN_EXE_knarr"))
        .args(["kube-apiserver", "--bind-address", "127.0.0.1", "--secure-port", "0"])
        .args(["--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction"])
        .arg("--allow-privileged=true")
        .args(["--service-cluster-ip-range", "10.96.0.0/16", "--kubelet-preferred-address-types", "InternalIP"])
        .arg("--data-dir")
        .arg(machine.path("server"))
        .arg("--cert-dir")
        .arg(machine.path("certs"))
        .arg("--token-auth-file")
        .arg(&tokens)
        .arg("--client-ca-file")
        .arg(machine.path("ca.pem"))
        .arg("--kubelet-client-certificate")
        .arg(machine.path("client.pem"))
        .arg("--kubelet-client-key")
        .arg(machine.path("client.key"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let address = lines.by_ref().map(Result::unwrap).find_map(|line| {
        let (_, rest) = line.split_once("address=")?;
        let end = |letter: char| letter != ':' && letter != '.' && !letter.is_ascii_digit();
        Some(rest.split(end).next()?.to_owned())
    });
    machine.keep(lines, "server");
    (Process(server), address.expect("the server prints its address"))
}

/// Writes the API server's self-signed client certificate for kubelets, and a CA for other certificates.
fn write_certificates(machine: &Machine) {
    let write = |name: &str, params: &rcgen::CertificateParams| {
        let key = rcgen::KeyPair::generate().unwrap();
        fs::write(machine.path(&format!("{name}.pem")), params.self_signed(&key).unwrap().pem()).unwrap();
        fs::write(machine.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    };
    let mut client = rcgen::CertificateParams::default();
    client.distinguished_name = rcgen::DistinguishedName::new();
    client.distinguished_name.push(rcgen::DnType::OrganizationName, "system:masters");
    client.distinguished_name.push(rcgen::DnType::CommonName, "kube-apiserver-kubelet-client");
    write("client", &client);
    let mut ca = rcgen::CertificateParams::default();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    write("ca", &ca);
}

pub(crate) fn kubeconfig(address: &str, token: &str) -> String {
    format!(
        r#"{{"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{{"name": "c", "cluster": {{"server": "https://{address}", "insecure-skip-tls-verify": true}}}}],
        "users": [{{"name": "u", "user": {{"token": "{token}"}}}}],
        "contexts": [{{"name": "c", "context": {{"cluster": "c", "user": "u"}}}}]}}"#
    )
}

/// Creates the objects that controllers would create: the default service account and the root CA ConfigMap.
async fn prepare(client: &Client) {
    static NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces", "Namespace");
    static CLASSES: Resource = Resource::cluster("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass");
    for (resource, name) in [(&NAMESPACES, "default"), (&CLASSES, "system-node-critical")] {
        let options = WatchOptions {
            field_selector: format!("metadata.name={name}"),
            send_initial_events: true,
            ..Default::default()
        };
        let first = async {
            let mut watch = client.watch(&Target::all(resource), &options).await.unwrap();
            while !matches!(watch.next().await.unwrap().unwrap(), Event::Added(_)) {}
        };
        tokio::time::timeout(TIMEOUT, first).await.expect("the API server makes the first objects");
    }
    static ACCOUNTS: Resource = Resource::namespaced("", "v1", "serviceaccounts", "ServiceAccount");
    let account =
        value!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}});
    let trust = value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt", "namespace": "default"},
        "data": {"ca.crt": "trust me\n"}});
    for (resource, object) in [(&ACCOUNTS, account), (&CONFIG_MAPS, trust)] {
        client.create(&Target::within(resource, "default"), &object, &WriteOptions::default()).await.unwrap();
    }
}

/// Returns a pod on the test's node with one container that runs a script.
pub(crate) fn pod(name: &str, script: &str) -> Value {
    with(name, value!({"containers": [(container("c", script))], "terminationGracePeriodSeconds": 1}))
}

/// Returns a pod on the test's node with the given spec.
pub(crate) fn with(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    let fields = spec.as_object_mut().unwrap();
    fields.insert("nodeName", NODE);
    value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

pub(crate) fn container(name: &str, script: &str) -> Value {
    value!({"name": name, "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script]})
}

/// Sets a field of a pod's spec.
pub(crate) fn set(pod: &mut Value, field: &str, value: impl Into<Value>) {
    pod.get_mut("spec").unwrap().as_object_mut().unwrap().insert(field, value);
}

/// Sets a field of a pod's first container.
pub(crate) fn set_container(pod: &mut Value, field: &str, value: impl Into<Value>) {
    let containers = pod.get_mut("spec").unwrap().get_mut("containers").unwrap();
    containers.as_array_mut().unwrap()[0].as_object_mut().unwrap().insert(field, value);
}

pub(crate) fn phase(pod: &Value) -> &str {
    pod.str_at(&["status", "phase"]).unwrap_or_default()
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().unwrap_or_default();
    conditions.iter().any(|one| one.str_at(&["type"]) == Some("Ready") && one.str_at(&["status"]) == Some("True"))
}

impl Cluster {
    /// Returns the name that the runtime reports.
    pub(crate) const fn runtime_name(&self) -> &'static str {
        if self.engine.is_some() { "containerd" } else { "knarr" }
    }

    /// Returns the parent of the cgroups of pods.
    pub(crate) fn cgroup(&self) -> &str {
        &self.machine.cgroup
    }

    /// Returns the address of the kubelet's server.
    pub(crate) fn kubelet_address(&self) -> String {
        let (_, address) = self.ready.rsplit_once(' ').unwrap();
        address.replace("0.0.0.0", "127.0.0.1")
    }

    /// Waits until a container's log contains `text`.
    pub(crate) async fn logged(&self, name: &str, container: &str, attempt: u32, text: &str) {
        let pod = self.get(&PODS, name).await;
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        while !self.printed(&pod, container, attempt).contains(text) {
            if tokio::time::Instant::now() > deadline {
                let events = self.events().await.join("\n");
                panic!("{text:?} is not printed\n{events}\n{}", self.machine.log.lock().unwrap());
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits until a process has logged a text.
    pub(crate) async fn log_line(&self, text: &str) {
        let waiting = async {
            while !self.machine.log.lock().unwrap().contains(text) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TIMEOUT, waiting).await.unwrap_or_else(|_| panic!("{text:?} is not logged"));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.machine.path(name)
    }

    pub(crate) async fn create(&self, resource: &'static Resource, object: &Value) -> Value {
        let target = Target::within(resource, object.str_at(&["metadata", "namespace"]).unwrap_or_default());
        self.client.create(&target, object, &WriteOptions::default()).await.unwrap()
    }

    /// Waits until the object satisfies the condition.
    pub(crate) async fn wait(
        &self,
        resource: &'static Resource,
        name: &str,
        what: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Value {
        let namespace = if resource.kind == "Node" { "" } else { "default" };
        self.wait_in(resource, namespace, name, what, is).await
    }

    pub(crate) async fn wait_in(
        &self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        what: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Value {
        let options = WatchOptions {
            field_selector: format!("metadata.name={name}"),
            send_initial_events: true,
            ..WatchOptions::default()
        };
        let mut last = Value::Null;
        let waiting = async {
            let mut watch = self.client.watch(&Target::within(resource, namespace), &options).await.unwrap();
            loop {
                match watch.next().await.unwrap().unwrap() {
                    Event::Added(object) | Event::Modified(object) => {
                        if is(&object) {
                            return object;
                        }
                        last = object;
                    }
                    Event::Deleted(_) => panic!("{name} was deleted while waiting for it to be {what}"),
                    Event::Bookmark { .. } => {}
                }
            }
        };
        match tokio::time::timeout(TIMEOUT, waiting).await {
            Ok(object) => object,
            Err(_) => {
                let events = self.events().await.join("\n");
                panic!(
                    "{name} is not {what}: {}\n{events}\n{}",
                    json::to_string_pretty(&last),
                    self.machine.log.lock().unwrap()
                )
            }
        }
    }

    /// Creates a pod and waits until it satisfies the condition.
    pub(crate) async fn run(&self, pod: &Value, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        self.create(&PODS, pod).await;
        self.wait(&PODS, pod.str_at(&["metadata", "name"]).unwrap(), what, is).await
    }

    /// Runs a pod until it terminates and returns the output of its first container.
    pub(crate) async fn output(&self, pod: &Value) -> String {
        let finished = self.run(pod, "over", |pod| matches!(phase(pod), "Succeeded" | "Failed")).await;
        let text = self.printed(&finished, "c", 0);
        assert_eq!(phase(&finished), "Succeeded", "{text}\n{}", json::to_string_pretty(&finished["status"]));
        text
    }

    /// Returns the output of a container.
    pub(crate) fn printed(&self, pod: &Value, container: &str, attempt: u32) -> String {
        let text = |field: &str| pod.str_at(&["metadata", field]).unwrap_or_default();
        let dir = format!("{}_{}_{}", text("namespace"), text("name"), text("uid"));
        let path = self.path("logs").join(dir).join(container).join(format!("{attempt}.log"));
        let log = fs::read_to_string(&path).unwrap_or_default();
        log.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).map(|line| format!("{line}\n")).collect()
    }

    pub(crate) async fn get(&self, resource: &'static Resource, name: &str) -> Value {
        let namespace = if resource.kind == "Node" { "" } else { "default" };
        self.client.get(&Target::named(resource, namespace, name)).await.unwrap()
    }

    /// Returns an object of the default namespace, or `None`.
    pub(crate) async fn find(&self, resource: &'static Resource, name: &str) -> Option<Value> {
        self.client.get(&Target::named(resource, "default", name)).await.ok()
    }

    /// Deletes a pod and waits until it is deleted.
    pub(crate) async fn delete(&self, name: &str) {
        let target = Target::named(&PODS, "default", name);
        self.client.delete(&target, &client::DeleteOptions::default()).await.unwrap();
        self.wait_until_deleted(name).await;
    }

    /// Deletes a pod and waits until the node has removed all of it. A terminated pod is deleted from the API server
    /// earlier.
    pub(crate) async fn delete_wholly(&self, name: &str) {
        let pod = self.get(&PODS, name).await;
        let uid = pod.str_at(&["metadata", "uid"]).unwrap();
        self.delete(name).await;
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        while self.left().iter().any(|path| path.contains(uid)) {
            assert!(tokio::time::Instant::now() < deadline, "{:?}", self.left());
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn wait_until_deleted(&self, name: &str) {
        let options = WatchOptions {
            field_selector: format!("metadata.name={name}"),
            send_initial_events: true,
            ..WatchOptions::default()
        };
        let waiting = async {
            let mut there = false;
            let mut watch = self.client.watch(&Target::within(&PODS, "default"), &options).await.unwrap();
            loop {
                match watch.next().await.unwrap().unwrap() {
                    Event::Deleted(_) => return,
                    Event::Added(_) | Event::Modified(_) => there = true,
                    Event::Bookmark { initial_events_end: true, .. } if !there => return,
                    Event::Bookmark { .. } => {}
                }
            }
        };
        if tokio::time::timeout(TIMEOUT, waiting).await.is_err() {
            panic!("{name} does not go\n{}", self.machine.log.lock().unwrap());
        }
    }

    /// Returns reasons and messages of all events.
    pub(crate) async fn events(&self) -> Vec<String> {
        let list =
            self.client.list(&Target::within(&EVENTS, "default"), &client::ListOptions::default()).await.unwrap();
        let text = |event: &Value, field: &str| event.str_at(&[field]).unwrap_or_default().to_owned();
        list.items.iter().map(|event| format!("{}: {}", text(event, "reason"), text(event, "message"))).collect()
    }

    /// Waits for an event whose text starts with `beginning`.
    pub(crate) async fn event(&self, beginning: &str) -> Value {
        let waiting = async {
            let options = WatchOptions { send_initial_events: true, ..WatchOptions::default() };
            let mut watch = self.client.watch(&Target::within(&EVENTS, "default"), &options).await.unwrap();
            loop {
                let (Event::Added(event) | Event::Modified(event)) = watch.next().await.unwrap().unwrap() else {
                    continue;
                };
                let text = |field: &str| event.str_at(&[field]).unwrap_or_default().to_owned();
                if format!("{}: {}", text("reason"), text("message")).starts_with(beginning) {
                    return event;
                }
            }
        };
        match tokio::time::timeout(TIMEOUT, waiting).await {
            Ok(event) => event,
            Err(_) => panic!(
                "there is no event {beginning:?}\n{}\n{}",
                self.events().await.join("\n"),
                self.machine.log.lock().unwrap()
            ),
        }
    }

    /// Returns the directories of a pod's sandboxes. Each sandbox is in a cgroup with the pod's UID.
    pub(crate) fn sandboxes_of(&self, pod: &Value) -> Vec<String> {
        let group = format!("/pod{}/", pod.str_at(&["metadata", "uid"]).unwrap());
        let entries = fs::read_dir(self.path("runtime/sandboxes")).unwrap().flatten().map(|entry| entry.path());
        let own = |dir: &PathBuf| fs::read_to_string(dir.join("record.json")).is_ok_and(|text| text.contains(&group));
        entries.filter(own).map(|dir| dir.display().to_string()).collect()
    }

    /// Kills all processes whose command line contains `part`.
    pub(crate) fn kill_processes(&self, part: &str) {
        let mut killed = 0;
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw).filter(|_| line.contains(part)) {
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
                killed += 1;
            }
        }
        assert!(killed > 0, "no process runs {part}");
    }

    /// Sends SIGTERM to the kubelet and waits until it has exited.
    pub(crate) fn terminate(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.kubelet.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.kubelet.0.wait().unwrap();
    }

    /// Returns the kubelet's command with further flags.
    pub(crate) fn kubelet_command(&self, flags: &[&str]) -> Command {
        let mut command = kubelet(&self.machine, &self.flags);
        command.args(flags);
        command
    }

    /// Kills the kubelet with SIGKILL and starts it again.
    pub(crate) fn restart(&mut self) {
        // A terminated kubelet has exited already.
        let _ = self.kubelet.0.kill();
        self.kubelet.0.wait().unwrap();
        (self.kubelet, self.ready) = self.machine.start(kubelet(&self.machine, &self.flags));
    }

    /// Deletes every pod and checks that nothing of them is left.
    pub(crate) async fn finish(self) {
        let list = self.client.list(&Target::within(&PODS, "default"), &client::ListOptions::default()).await.unwrap();
        for pod in list.items {
            self.delete(pod.str_at(&["metadata", "name"]).unwrap()).await;
        }
        // A terminated pod is deleted from the API server before it is removed from the node.
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let left = self.left();
            if left.is_empty() {
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "{left:?}\n{}", self.machine.log.lock().unwrap());
            tokio::task::yield_now().await;
        }
        let group = format!("{}/kubepods", self.machine.cgroup);
        assert_eq!(Cgroup::at(&group).pids().len(), 0);
    }

    /// Returns the remaining mounts, directories and cgroups of pods.
    fn left(&self) -> Vec<String> {
        let dirs = ["runtime/sandboxes", "runtime/containers", "kubelet/pods", "logs", "containers"];
        let entries = dirs.iter().flat_map(|dir| fs::read_dir(self.path(dir)).into_iter().flatten().flatten());
        let left = self.machine.mounts().into_iter().chain(entries.map(|entry| entry.path().display().to_string()));
        left.chain(self.groups()).collect()
    }

    /// Returns the cgroups of pods in all hierarchies.
    fn groups(&self) -> Vec<String> {
        let hierarchies = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
        let roots = hierarchies.chain([PathBuf::from("/sys/fs/cgroup")]);
        let kubepods = roots.map(|root| root.join(self.machine.cgroup.trim_start_matches('/')).join("kubepods"));
        let classes = kubepods.flat_map(|dir| [dir.clone(), dir.join("burstable"), dir.join("besteffort")]);
        let groups = classes.flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten());
        let of_pods = groups.filter(|group| group.file_name().to_string_lossy().starts_with("pod"));
        of_pods.map(|group| group.path().display().to_string()).collect()
    }
}
