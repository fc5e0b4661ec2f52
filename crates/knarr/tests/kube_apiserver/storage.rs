//! Storage of the API server: a real etcd, several servers on one store, encryption at rest, expiring objects.

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::server::Server;

/// Time limit for an asynchronous change.
const DEADLINE: Duration = Duration::from_secs(60);

/// A real etcd, or `knarr etcd`, killed on drop.
pub(crate) struct Etcd {
    process: Child,
    pub endpoint: String,
    _dir: tempfile::TempDir,
}

impl Etcd {
    /// Starts the members of one store.
    pub(crate) fn cluster(members: usize, program: fn() -> Command) -> Vec<Self> {
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        // Port 0 cannot be used: the other members must know the port before a member starts.
        let addresses: Vec<_> = (0..members).map(|_| (free(), free())).collect();
        let names = addresses.iter().enumerate().map(|(number, (peer, _))| format!("m{number}=http://{peer}"));
        let all = names.collect::<Vec<_>>().join(",");
        let start = |(number, (peer, client)): (usize, &(SocketAddr, SocketAddr))| {
            let dir = tempfile::tempdir().unwrap();
            let (peer, endpoint) = (format!("http://{peer}"), format!("http://{client}"));
            let process = program()
                .args(["--data-dir", &dir.path().to_string_lossy(), "--name", &format!("m{number}")])
                .args(["--listen-client-urls", &endpoint, "--advertise-client-urls", &endpoint])
                .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
                .args(["--initial-cluster", &all])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            Self { process, endpoint, _dir: dir }
        };
        let members: Vec<Self> = addresses.iter().enumerate().map(start).collect();
        for member in &members {
            eventually(|| member.etcdctl("endpoint health"), |text| text.contains("is healthy"));
        }
        members
    }

    fn etcdctl(&self, arguments: &str) -> String {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.endpoint])
            .args(arguments.split(' '))
            .output()
            .expect("etcdctl of the Debian package etcd-client");
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn real_etcd() -> Command {
    let mut command = Command::new("etcd");
    command.args(["--logger", "zap", "--log-level", "error"]);
    command
}

fn own_etcd() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_knarr"));
    command.arg("etcd");
    command
}

/// Polls until the output is as expected. Each attempt is a process or a request, so nothing can be waited for.
pub(crate) fn eventually(mut read: impl FnMut() -> String, is_good: impl Fn(&str) -> bool) -> String {
    let start = Instant::now();
    loop {
        let seen = read();
        if is_good(&seen) {
            return seen;
        }
        assert!(start.elapsed() < DEADLINE, "still {seen}");
    }
}

fn servers_see_each_other(members: &[Etcd]) {
    let endpoints: Vec<&str> = members.iter().map(|member| member.endpoint.as_str()).collect();
    let endpoints = endpoints.join(",");
    let first = Server::start_with(&["--etcd-servers", &endpoints, "--advertise-address", "192.0.2.1"]);
    let second = Server::start_with(&["--etcd-servers", &endpoints, "--advertise-address", "192.0.2.2"]);
    let addresses = || second.kubectl("get endpointslice kubernetes -o jsonpath={.endpoints[*].addresses[0]}");
    eventually(addresses, |seen| seen == "192.0.2.1 192.0.2.2");
    let path = "/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=20&resourceVersion=0";
    let mut watch = second.stream(path);
    assert_eq!(first.kubectl("create configmap told --from-literal=a=b"), "configmap/told created");
    assert!(watch.any(|line| line.contains("\"ADDED\"") && line.contains("\"told\"")), "the other server watches");
    drop(first);
    assert_eq!(second.kubectl("get configmap told -o jsonpath={.data.a}"), "b");
    assert_eq!(second.kubectl("label configmap told a=b"), "configmap/told labeled");
    let stored = members[0].etcdctl("get /registry/configmaps/default/told");
    assert!(stored.contains(r#""data":{"a":"b"}"#), "{stored}");
    eventually(addresses, |seen| seen == "192.0.2.2");
}

#[test]
fn stopping_server_finishes_requests_and_leaves_the_endpoints() {
    let etcd = Etcd::cluster(1, real_etcd).remove(0);
    let dir = tempfile::tempdir().unwrap();
    let (policy, log) = (dir.path().join("policy.yaml"), dir.path().join("audit.log"));
    let rules = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}"#;
    std::fs::write(&policy, rules).unwrap();
    let stays = Server::start_with(&["--etcd-servers", &etcd.endpoint, "--advertise-address", "192.0.2.1"]);
    let mut goes = Server::start_with(&[
        "--etcd-servers",
        &etcd.endpoint,
        "--advertise-address",
        "192.0.2.2",
        "--audit-policy-file",
        &policy.to_string_lossy(),
        "--audit-log-path",
        &log.to_string_lossy(),
        "--audit-log-mode",
        "batch",
        "--audit-log-batch-max-wait",
        "1h",
    ]);
    let slice = || stays.kubectl("get endpointslice kubernetes -o jsonpath={.endpoints[*].addresses[0]}");
    eventually(slice, |seen| seen == "192.0.2.1 192.0.2.2");
    let mut watch = goes.stream("/api/v1/namespaces?watch=true");
    assert!(watch.next().is_some(), "the watch has begun");
    assert_eq!(goes.kubectl("create configmap last"), "configmap/last created");
    goes.terminate();
    assert!(watch.all(|line| line.contains("\"ADDED\"")), "the watch ends and is not cut off in a line");
    assert_eq!(slice(), "192.0.2.1");
    let written = std::fs::read_to_string(&log).unwrap();
    assert!(written.lines().any(|line| line.contains("configmaps") && line.contains("ResponseComplete")), "{written}");
}

#[test]
fn servers_on_one_etcd_see_each_others_writes_and_either_can_be_killed() {
    servers_see_each_other(&Etcd::cluster(1, real_etcd));
}

#[test]
fn servers_on_three_store_members_survive_a_killed_member() {
    let mut members = Etcd::cluster(3, own_etcd);
    servers_see_each_other(&members);
    let endpoints: Vec<String> = members.iter().map(|member| member.endpoint.clone()).collect();
    let server = Server::start_with(&["--etcd-servers", &endpoints.join(",")]);
    members.remove(0);
    let created = eventually(
        || server.kubectl("create configmap after"),
        |output| output == "configmap/after created" || output.contains("already exists"),
    );
    assert!(!created.is_empty());
    assert_eq!(server.kubectl("get configmap told after -o name"), "configmap/told\nconfigmap/after");
}

/// Writes an EncryptionConfiguration with these providers for Secrets. The first key encrypts.
fn encryption(server_dir: &std::path::Path, providers: &str) -> String {
    let file = server_dir.join("encryption.yaml");
    let text = format!(
        r#"{{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
        "resources": [{{"resources": ["secrets"], "providers": [{providers}]}}]}}"#
    );
    std::fs::write(&file, text).unwrap();
    file.to_string_lossy().into_owned()
}

#[test]
fn secrets_are_encrypted_at_rest_and_rewritten_after_key_rotation() {
    const OLD: &str =
        r#"{"aescbc": {"keys": [{"name": "old", "secret": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}]}}"#;
    const NEW: &str =
        r#"{"secretbox": {"keys": [{"name": "new", "secret": "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="}]}}"#;
    let etcd = Etcd::cluster(1, real_etcd).remove(0);
    let dir = tempfile::tempdir().unwrap();
    let stored = || etcd.etcdctl("get /registry/secrets/default/s --print-value-only");
    let file = encryption(dir.path(), &format!(r#"{OLD}, {{"identity": {{}}}}"#));
    let flags = ["--etcd-servers", &etcd.endpoint, "--encryption-provider-config", &file];
    let server = Server::start_with(&["--etcd-servers", &etcd.endpoint]);
    assert_eq!(server.kubectl("create secret generic s --from-literal=a=hidden"), "secret/s created");
    assert!(stored().starts_with(r#"{"kind":"Secret","apiVersion":"v1""#), "{}", stored());

    let server = server.again(&flags);
    let read = |server: &Server| server.kubectl("get secret s -o jsonpath={.data.a}");
    assert_eq!(read(&server), "aGlkZGVu", "objects written before are readable");
    let rewrite = |server: &Server| {
        let object = server.kubectl("get secret s -o json");
        assert_eq!(server.kubectl_with("replace -f -", &object), "secret/s replaced");
    };
    rewrite(&server);
    assert!(stored().starts_with("k8s:enc:aescbc:v1:old:"), "{}", stored());
    assert_eq!(server.kubectl("create configmap c --from-literal=a=b"), "configmap/c created");
    assert!(etcd.etcdctl("get /registry/configmaps/default/c --print-value-only").starts_with('{'));

    encryption(dir.path(), &format!("{NEW}, {OLD}"));
    let server = server.again(&flags);
    assert_eq!(read(&server), "aGlkZGVu", "the old key still reads");
    rewrite(&server);
    assert!(stored().starts_with("k8s:enc:secretbox:v1:new:"), "{}", stored());

    encryption(dir.path(), OLD);
    let server = server.again(&flags);
    let output = server.kubectl("get secret s");
    assert!(output.contains("unable to transform key"), "{output}");
    assert_eq!(server.kubectl("get configmap c -o name"), "configmap/c", "nothing else is lost");
}

#[test]
fn invalid_encryption_configuration_fails_the_start_with_a_message() {
    let dir = tempfile::tempdir().unwrap();
    let file = encryption(dir.path(), r#"{"aescbc": {"keys": [{"name": "k", "secret": "c2hvcnQ="}]}}"#);
    let output = Command::new(env!("CARGO_BIN_EXE_knarr"))
        .args(["kube-apiserver", "--bind-address", "127.0.0.1", "--secure-port", "0"])
        .args(["--data-dir", &dir.path().to_string_lossy(), "--cert-dir", &dir.path().to_string_lossy()])
        .args(["--encryption-provider-config", &file])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && stderr.contains("secret is not of the expected length"), "{stderr}");
    assert!(!stderr.contains("c2hvcnQ="), "a key must not be in a log: {stderr}");
}

#[test]
fn events_expire() {
    let etcd = Etcd::cluster(1, real_etcd).remove(0);
    let server = Server::start_with(&["--etcd-servers", &etcd.endpoint, "--event-ttl", "2s"]);
    let event = r#"{"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "reason": "Tried", "type": "Normal"}"#;
    assert_eq!(server.kubectl_with("create -f -", event), "event/e created");
    assert_eq!(server.kubectl("annotate event e more=more"), "event/e annotated");
    eventually(|| server.kubectl("get event e"), |output| output.contains("NotFound"));
    drop(etcd);
    let readiness = || server.code(&[], "/readyz?verbose").1;
    eventually(readiness, |output| output.contains("[-]etcd failed") && output.contains("readyz check failed"));
}
