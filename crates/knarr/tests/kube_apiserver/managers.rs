//! Controller managers as separate processes, over a real etcd: leader election, failover, and no writes while idle.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::server::Server;
use crate::storage::{Etcd, eventually, real_etcd};

/// A controller manager that is killed on drop.
struct Manager(Child);

impl Manager {
    fn start(server: &Server, flags: &[&str]) -> Self {
        let dir = server.dir.path();
        let process = Command::new(env!("CARGO_BIN_EXE_knarr"))
            .args(["kube-controller-manager", "--secure-port=0", "--leader-elect-lease-duration=3s"])
            .args(["--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms"])
            .arg("--kubeconfig")
            .arg(dir.join("kubeconfig"))
            .args(flags)
            .stdout(Stdio::null())
            .stderr(fs::File::create(dir.join("manager.log")).unwrap())
            .spawn()
            .unwrap();
        Self(process)
    }
}

impl Drop for Manager {
    /// Sends SIGKILL, so that the lease is not released.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn leader(server: &Server) -> String {
    server.kubectl("-n kube-system get lease kube-controller-manager -o jsonpath={.spec.holderIdentity}")
}

/// Collects the UIDs of all pods that a watch ever reports.
fn pods_ever(server: &Server) -> Arc<Mutex<BTreeSet<String>>> {
    let ever: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let recorded = Arc::clone(&ever);
    let watch = server.stream("/api/v1/pods?watch=true&timeoutSeconds=300&resourceVersion=0");
    std::thread::spawn(move || {
        for line in watch {
            let uid = line.split_once("\"uid\":\"").and_then(|(_, rest)| rest.split('"').next()).map(str::to_owned);
            recorded.lock().unwrap().extend(uid);
        }
    });
    ever
}

const WEB: &str = r#"{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 60,
    "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
    "spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "none"}]}}}}"#;

#[test]
fn failover_after_leader_kill_creates_no_duplicate_pods() {
    let etcd = Etcd::cluster(1, real_etcd);
    let server = Server::start_with(&["--etcd-servers", &etcd[0].endpoint]);
    // Rate limited, so that it is killed in the middle of its work.
    let first = Manager::start(&server, &["--kube-api-qps=20", "--kube-api-burst=5"]);
    let leads = eventually(|| leader(&server), |holder| !holder.is_empty() && !holder.contains("rror"));
    let second = Manager::start(&server, &["--kube-api-qps=500", "--kube-api-burst=500"]);
    eventually(|| server.kubectl("get serviceaccount default -o name"), |text| text == "serviceaccount/default");
    let ever = pods_ever(&server);
    server.kubectl_with("create -f -", WEB);
    eventually(|| ever.lock().unwrap().len().to_string(), |count| count.parse::<usize>().unwrap() >= 10);
    drop(first);
    let made = "get deployment web -o jsonpath={.status.replicas}/{.status.updatedReplicas}";
    eventually(|| server.kubectl(made), |counts| counts == "60/60");
    let now_leads = leader(&server);
    assert_ne!(now_leads, leads, "another leads");
    assert_eq!(ever.lock().unwrap().len(), 60, "pods that existed");
    drop(second);
}

/// Returns the number of completed write requests, except those for leases.
fn writes(server: &Server) -> u64 {
    let metrics = String::from_utf8(server.curl(&[], "/metrics").stdout).unwrap();
    let is_write = |line: &&str| {
        let verb = |verb: &str| line.contains(&format!("verb=\"{verb}\""));
        line.starts_with("apiserver_request_total{")
            && ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"].into_iter().any(verb)
            && !line.contains("resource=\"leases\"")
    };
    let count = |line: &str| line.rsplit(' ').next().and_then(|count| count.parse::<f64>().ok()).unwrap();
    metrics.lines().filter(is_write).map(count).sum::<f64>() as u64
}

#[test]
fn idle_controller_manager_writes_only_its_lease() {
    let etcd = Etcd::cluster(1, real_etcd);
    let server = Server::start_with(&["--etcd-servers", &etcd[0].endpoint]);
    let _manager = Manager::start(&server, &["--kube-api-qps=500", "--kube-api-burst=500"]);
    eventually(|| server.kubectl("get serviceaccount default -o name"), |text| text == "serviceaccount/default");
    let template =
        r#"{"metadata": {"labels": {"app": "NAME"}}, "spec": {"containers": [{"name": "c", "image": "none"}]}}"#;
    for number in 0..10 {
        for (version, kind, more) in [
            ("apps/v1", "Deployment", ""),
            ("apps/v1", "StatefulSet", r#""serviceName": "x","#),
            ("apps/v1", "DaemonSet", ""),
            ("apps/v1", "ReplicaSet", ""),
        ] {
            let name = format!("{}-{number}", kind.to_lowercase());
            let object = format!(
                r#"{{"apiVersion": "{version}", "kind": "{kind}", "metadata": {{"name": "{name}"}}, "spec": {{{more}
                "selector": {{"matchLabels": {{"app": "{name}"}}}}, "template": {}}}}}"#,
                template.replace("NAME", &name)
            );
            server.kubectl_with("create -f -", &object);
        }
        server.kubectl(&format!("create service clusterip s-{number} --tcp=80"));
        server.kubectl(&format!("create job job-{number} --image=none"));
        let cron = format!(
            r#"{{"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {{"name": "cron-{number}"}}, "spec":
            {{"schedule": "0 0 1 1 *", "jobTemplate": {{"spec": {{"template": {{"spec": {{"restartPolicy": "Never",
            "containers": [{{"name": "c", "image": "none"}}]}}}}}}}}}}}}"#
        );
        server.kubectl_with("create -f -", &cron);
    }
    eventually(|| server.kubectl("get deployment deployment-9 -o jsonpath={.status.replicas}"), |count| count == "1");
    // Ten renewals of the lease take five seconds.
    let quiet = || {
        let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?watch=true&timeoutSeconds=30";
        let before = writes(&server);
        let renewals = server.stream(path).filter(|line| line.contains("kube-controller-manager")).take(11).count();
        assert_eq!(renewals, 11, "the leader renews its lease");
        writes(&server) - before
    };
    eventually(|| quiet().to_string(), |count| count == "0");
    assert_eq!(quiet(), 0, "and remains the leader");
}

/// Returns a CertificateSigningRequest and its key.
fn request(name: &str, signer: &str, subject: (&str, &str), names: &[&str], usages: &str) -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = rcgen::CertificateParams::new(names).unwrap();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, subject.0);
    params.distinguished_name.push(rcgen::DnType::CommonName, subject.1);
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    let object = format!(
        r#"{{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {{"name": "{name}"}},
        "spec": {{"request": "{}", "signerName": "kubernetes.io/{signer}", "usages": {usages}}}}}"#,
        STANDARD.encode(pem)
    );
    (object, key.serialize_pem())
}

#[test]
fn kubelet_csrs_are_signed_and_authenticate() {
    let dir = tempfile::tempdir().unwrap();
    let ca = pki::Pki::open(dir.path()).unwrap().ca_pair(pki::CertificateAuthority::Cluster);
    let (certificate, key) = (ca.certificate.display().to_string(), ca.key.display().to_string());
    let server = Server::start_with(&["--client-ca-file", &certificate]);
    let signing = [format!("--cluster-signing-cert-file={certificate}"), format!("--cluster-signing-key-file={key}")];
    let _manager = Manager::start(&server, &[&signing[0], &signing[1], "--leader-elect=false"]);
    let client = r#"["digital signature", "client auth"]"#;
    let serving = r#"["digital signature", "server auth"]"#;
    let node = ("system:nodes", "system:node:n");

    let (object, key) = request("client", "kube-apiserver-client-kubelet", node, &[], client);
    server.kubectl_with("create -f -", &object);
    let issued = |name: &'static str| {
        let path = format!("get csr {name} -o jsonpath={{.status.certificate}}");
        STANDARD.decode(eventually(|| server.kubectl(&path), |text| text.starts_with("LS0t"))).unwrap()
    };
    let file = dir.path().join("client.pem");
    fs::write(&file, [issued("client"), key.into_bytes()].concat()).unwrap();
    let review = r#"{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}"#;
    let arguments = [
        "-H",
        "Authorization:",
        "--cert",
        file.to_str().unwrap(),
        "-H",
        "Content-Type: application/json",
        "-d",
        review,
    ];
    let (code, body) = server.code(&arguments, "/apis/authentication.k8s.io/v1/selfsubjectreviews");
    assert!(code == "201" && body.contains(r#""username":"system:node:n""#), "{code} {body}");

    server.kubectl_with("create -f -", &request("serving", "kubelet-serving", node, &["n.example"], serving).0);
    server.kubectl_with("create -f -", &request("nameless", "kubelet-serving", node, &[], serving).0);
    server.kubectl("certificate approve serving nameless");
    assert!(issued("serving").starts_with(b"-----BEGIN CERTIFICATE-----"));
    let failed = "get csr nameless -o jsonpath={.status.conditions[?(@.type==\"Failed\")].message}";
    eventually(|| server.kubectl(failed), |text| text == "DNS or IP subjectAltName is required");
}
