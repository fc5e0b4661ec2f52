//! Schedulers as separate processes with a configuration file: profiles, and failover.

use std::fs;
use std::process::{Child, Command, Stdio};

use crate::server::Server;
use crate::storage::eventually;

/// A scheduler that is killed on drop.
struct Scheduler(Child);

impl Scheduler {
    fn start(server: &Server, name: &str) -> Self {
        let dir = server.dir.path();
        let kubeconfig = dir.join("kubeconfig").display().to_string();
        let file = dir.join(format!("{name}.yaml"));
        fs::write(&file, CONFIGURATION.replace("KUBECONFIG", &kubeconfig)).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_knarr"))
            .args(["kube-scheduler", "--secure-port=0", "--config"])
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(fs::File::create(dir.join(format!("{name}.log"))).unwrap())
            .spawn()
            .unwrap();
        Self(process)
    }
}

impl Drop for Scheduler {
    /// Sends SIGKILL, so that the lease is not released.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const CONFIGURATION: &str = r#"
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: "KUBECONFIG"}
leaderElection: {leaderElect: true, leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 500ms}
profiles:
- schedulerName: default-scheduler
- schedulerName: packer
  plugins: {score: {disabled: [{name: "*"}], enabled: [{name: NodeResourcesFit}]}}
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
"#;

fn node(name: &str) -> String {
    format!(
        r#"{{"apiVersion": "v1", "kind": "Node", "metadata": {{"name": "{name}"}},
        "status": {{"capacity": {{"cpu": "4", "memory": "8Gi", "pods": "110"}},
        "allocatable": {{"cpu": "4", "memory": "8Gi", "pods": "110"}}}}}}"#
    )
}

fn pod(name: &str, scheduler: &str) -> String {
    format!(
        r#"{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "{name}"}}, "spec": {{"schedulerName": "{scheduler}",
        "containers": [{{"name": "c", "image": "i", "resources": {{"requests": {{"cpu": "1"}}}}}}]}}}}"#
    )
}

fn leader(server: &Server) -> String {
    server.kubectl("-n kube-system get lease kube-scheduler -o jsonpath={.spec.holderIdentity}")
}

#[test]
fn profiles_schedule_their_pods_and_another_scheduler_takes_over() {
    let server = Server::start_with(&["--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"]);
    for name in ["n1", "n2"] {
        server.kubectl_with("create -f -", &node(name));
    }
    let first = Scheduler::start(&server, "first");
    let leads = eventually(|| leader(&server), |holder| !holder.is_empty() && !holder.contains("rror"));
    let _second = Scheduler::start(&server, "second");
    let node_of = |name: &str| server.kubectl(&format!("get pod {name} -o jsonpath={{.spec.nodeName}}"));
    let placed = |name: &str, scheduler: &str| {
        server.kubectl_with("create -f -", &pod(name, scheduler));
        eventually(|| node_of(name), |node| node.starts_with('n'))
    };
    let seed = placed("seed", "default-scheduler");
    assert_ne!(placed("apart", "default-scheduler"), seed, "pods are spread");
    let more = placed("more", "default-scheduler");
    assert_eq!(placed("packed", "packer"), more, "pods are packed on the most used node");
    server.kubectl_with("create -f -", &pod("nobodys", "unknown"));
    drop(first);
    placed("late", "default-scheduler");
    assert_ne!(leader(&server), leads, "another leads");
    assert_eq!(node_of("nobodys"), "", "no profile has that name");
}

#[test]
fn metrics_requests_are_reviewed_with_the_configured_kubeconfigs() {
    let server = Server::start();
    let dir = server.dir.path();
    let admin = dir.join("kubeconfig");
    // A user who may not create reviews.
    let own = dir.join("own.kubeconfig");
    fs::write(&own, fs::read_to_string(&admin).unwrap().replace("a-token", "plain-token")).unwrap();
    let metrics = |reviewers: &[&str]| {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Command::new(env!("CARGO_BIN_EXE_knarr"))
            .args(["kube-scheduler", "--leader-elect=false", "--bind-address=127.0.0.1"])
            .arg(format!("--secure-port={port}"))
            .arg("--kubeconfig")
            .arg(&own)
            .args(reviewers.iter().map(|flag| format!("{flag}={}", admin.display())))
            .stdout(Stdio::null())
            .stderr(fs::File::create(dir.join("scheduler.log")).unwrap())
            .spawn()
            .unwrap();
        let _scheduler = Scheduler(process);
        ["a-token", "plain-token"].map(|token| {
            let output = Command::new("curl")
                .args(["-sk", "--max-time", "20", "--retry", "100", "--retry-delay", "0", "--retry-connrefused"])
                .args(["-o", "/dev/null", "-w", "%{http_code}", "-H", &format!("Authorization: Bearer {token}")])
                .arg(format!("https://127.0.0.1:{port}/metrics"))
                .output()
                .unwrap();
            String::from_utf8(output.stdout).unwrap()
        })
    };
    assert_eq!(metrics(&[]), ["401", "401"]);
    assert_eq!(metrics(&["--authentication-kubeconfig"]), ["401", "401"], "authentication alone is not sufficient");
    assert_eq!(metrics(&["--authentication-kubeconfig", "--authorization-kubeconfig"]), ["200", "403"]);
}
