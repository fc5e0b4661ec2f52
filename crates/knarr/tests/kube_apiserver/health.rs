//! Named health checks of the API server, the controller manager and the scheduler, and their results as metrics.

use std::fs;
use std::process::{Child, Command, Stdio};

use crate::server::Server;
use crate::storage::eventually;

/// Upstream's checks that have a counterpart here.
const READY: &[&str] = &[
    "ping",
    "log",
    "etcd",
    "etcd-readiness",
    "informer-sync",
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/storage-readiness",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
    "poststarthook/storage-object-count-tracker-hook",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
    "shutdown",
];
const ONLY_FOR_READINESS: &[&str] = &["etcd-readiness", "informer-sync", "shutdown"];

#[test]
fn api_server_lists_health_checks_and_counts_results() {
    let server = Server::start();
    let listed = |endpoint: &str, names: &mut dyn Iterator<Item = &&str>| {
        let lines: String = names.map(|name| format!("[+]{name} ok\n")).collect();
        ("200".to_owned(), format!("{lines}{endpoint} check passed\n"))
    };
    assert_eq!(server.code(&[], "/readyz?verbose"), listed("readyz", &mut READY.iter()));
    for endpoint in ["livez", "healthz"] {
        let names = &mut READY.iter().filter(|name| !ONLY_FOR_READINESS.contains(name));
        assert_eq!(server.code(&[], &format!("/{endpoint}?verbose")), listed(endpoint, names));
    }
    let ok = || ("200".to_owned(), "ok".to_owned());
    assert_eq!(server.code(&[], "/readyz/poststarthook/rbac/bootstrap-roles"), ok());
    assert_eq!(server.code(&[], "/readyz/shutdown"), ok());
    assert_eq!(server.code(&[], "/livez/shutdown").0, "404");
    assert_eq!(server.code(&["-I", "--http2"], "/readyz").0, "200", "HEAD over HTTP/2");
    let (code, metrics) = server.code(&[], "/metrics/slis");
    assert_eq!(code, "200");
    for sample in [
        "kubernetes_healthcheck{name=\"etcd\",type=\"livez\"} 1",
        "kubernetes_healthchecks_total{name=\"etcd\",status=\"success\",type=\"livez\"} 1",
    ] {
        assert!(metrics.lines().any(|line| line == sample), "no {sample} in\n{metrics}");
    }
    assert_eq!(server.code(&["-H", "Authorization: Bearer plain-token"], "/metrics/slis").0, "403");
}

/// A component with its secure port, killed on drop.
struct Component {
    process: Child,
    port: u16,
}

impl Component {
    fn start(server: &Server, name: &str) -> Self {
        let dir = server.dir.path();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Command::new(env!("CARGO_BIN_EXE_knarr"))
            .args([name, "--bind-address=127.0.0.1", &format!("--secure-port={port}"), "--kubeconfig"])
            .arg(dir.join("kubeconfig"))
            .stdout(Stdio::null())
            .stderr(fs::File::create(dir.join(format!("{name}.log"))).unwrap())
            .spawn()
            .unwrap();
        Self { process, port }
    }

    fn get(&self, arguments: &[&str], path: &str) -> String {
        let output = Command::new("curl")
            .args(["-sk", "--max-time", "20", "-H", "Authorization: Bearer a-token", "-w", "%{http_code}"])
            .args(arguments)
            .arg(format!("https://127.0.0.1:{}{path}", self.port))
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn controller_manager_and_scheduler_check_election_caches_and_controllers() {
    let server = Server::start();
    let manager = Component::start(&server, "kube-controller-manager");
    let listed = eventually(|| manager.get(&[], "/healthz?verbose"), |text| text.contains("deployment-controller"));
    for check in ["leaderElection", "deployment-controller", "garbage-collector-controller", "namespace-controller"] {
        assert!(listed.contains(&format!("[+]{check} ok\n")), "{listed}");
    }
    assert!(listed.ends_with("healthz check passed\n200"), "{listed}");
    eventually(|| manager.get(&[], "/readyz/informer-sync"), |text| text == "ok200");
    assert_eq!(manager.get(&[], "/healthz/absent"), "404 page not found\n404");
    let slis = manager.get(&[], "/metrics/slis");
    assert!(slis.contains("kubernetes_healthcheck{name=\"leaderElection\",type=\"healthz\"} 1\n"), "{slis}");
    let scheduler = Component::start(&server, "kube-scheduler");
    let expect = "[+]informer-sync ok\n[+]leaderElection ok\nreadyz check passed\n200";
    eventually(|| scheduler.get(&[], "/readyz?verbose"), |text| text == expect);
    assert_eq!(scheduler.get(&[], "/livez?verbose"), "[+]ping ok\nlivez check passed\n200");
    assert!(scheduler.get(&[], "/metrics/slis").contains("name=\"ping\",status=\"success\",type=\"livez\"} 1\n"));
    for component in [&manager, &scheduler] {
        let head = component.get(&["-I", "--http2"], "/healthz");
        assert!(head.starts_with("HTTP/2 200") && head.ends_with("200"), "HEAD over HTTP/2: {head}");
    }
}
