//! TLS bootstrap: a kubelet joins with a token, rotates its certificates, and bootstraps again after they expired.

use std::fs;
use std::process::Command;

use apimachinery::{Resource, Value, json, value};
use client::{Client, Event, Patch, Target, WatchOptions, WriteOptions};

use crate::cluster::*;

static BINDINGS: Resource =
    Resource::cluster("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding");
static REQUESTS: Resource =
    Resource::cluster("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest");

const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING: &str = "kubernetes.io/kubelet-serving";

/// Allows bootstrap tokens to request client certificates, and nodes to renew theirs.
async fn let_join(client: &Client) {
    for (role, group) in [
        ("system:node-bootstrapper", "system:bootstrappers"),
        ("system:certificates.k8s.io:certificatesigningrequests:nodeclient", "system:bootstrappers"),
        ("system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"),
    ] {
        let binding = value!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": (format!("test:{role}"))},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}]});
        client.create(&Target::all(&BINDINGS), &binding, &WriteOptions::default()).await.unwrap();
    }
}

/// Approves serving certificates of kubelets, as an administrator would.
async fn approve(client: Client) {
    let options = WatchOptions { send_initial_events: true, ..WatchOptions::default() };
    let mut watch = client.watch(&Target::all(&REQUESTS), &options).await.unwrap();
    while let Some(Ok(event)) = watch.next().await {
        let Event::Added(request) = event else { continue };
        if request["spec"]["signerName"] != Value::from(SERVING) {
            continue;
        }
        let name = request.str_at(&["metadata", "name"]).unwrap();
        let patch = value!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "Tested"}]}});
        let target = Target::named(&REQUESTS, "", name).subresource("approval");
        client.patch(&target, &Patch::Strategic(patch), &WriteOptions::default()).await.unwrap();
    }
}

/// Waits for a signed CertificateSigningRequest of this user.
async fn signed(cluster: &Cluster, signer: &str, user: &str) {
    let options = WatchOptions { send_initial_events: true, ..WatchOptions::default() };
    let waiting = async {
        let mut watch = cluster.client.watch(&Target::all(&REQUESTS), &options).await.unwrap();
        loop {
            let (Event::Added(request) | Event::Modified(request)) = watch.next().await.unwrap().unwrap() else {
                continue;
            };
            let is = |field: &str, value: &str| request.str_at(&["spec", field]) == Some(value);
            let has = request.str_at(&["status", "certificate"]).is_some_and(|text| !text.is_empty());
            if is("signerName", signer) && is("username", user) && has {
                return;
            }
        }
    };
    if tokio::time::timeout(TIMEOUT, waiting).await.is_err() {
        let log = fs::read_to_string(cluster.path("kube-controller-manager.log")).unwrap_or_default();
        panic!("nothing was signed for {user} by {signer}\n{}\n{log}", cluster.machine.log.lock().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelet_bootstraps_with_a_token_and_rotates_its_certificates() {
    let start = cluster_without_kubelet().await;
    let_join(&start.client).await;
    let file = |name: &str| start.machine.path(name).display().to_string();
    let certificate = format!("--cluster-signing-cert-file={}", file("ca.pem"));
    let key = format!("--cluster-signing-key-file={}", file("ca.key"));
    // Certificates are backdated by five minutes, so most of their lifetime is over when they are issued, and they are
    // renewed immediately.
    let flags = [
        "--leader-elect=false",
        "--secure-port=0",
        "--cluster-signing-duration=60s",
        "--controllers=certificatesigningrequest-approving-controller,certificatesigningrequest-signing-controller",
        &certificate,
        &key,
    ];
    let _manager = component(&start.machine, "kube-controller-manager", &flags);
    let approving = tokio::spawn(approve(start.client.clone()));
    let joining = file("join.kubeconfig");
    fs::write(&joining, kubeconfig(&start.address, "b-token")).unwrap();
    let config = "rotateCertificates: true\nserverTLSBootstrap: true\n";
    let mut cluster = start.stranger(&["--bootstrap-kubeconfig", &joining], config);

    let (node, joins) = (format!("system:node:{NODE}"), "system:bootstrap:aaaaaa");
    signed(&cluster, CLIENT, joins).await;
    let made = json::parse(&fs::read(cluster.path("node.kubeconfig")).unwrap()).unwrap();
    let current = cluster.path("kubelet/pki/kubelet-client-current.pem");
    let expect =
        value!({"client-certificate": (current.display().to_string()), "client-key": (current.display().to_string())});
    assert_eq!(made["users"][0]["user"], expect);
    signed(&cluster, CLIENT, &node).await;
    signed(&cluster, SERVING, &node).await;
    let url = format!("https://{}/healthz", cluster.kubelet_address());
    let trusted = || {
        let arguments = ["-s", "--max-time", "30", "-H", "Authorization: Bearer a-token", "--cacert"];
        Command::new("curl").args(arguments).arg(cluster.path("ca.pem")).arg(&url).output().unwrap().stdout
    };
    let deadline = std::time::Instant::now() + TIMEOUT;
    while trusted() != b"ok" {
        assert!(std::time::Instant::now() < deadline, "the kubelet presents no certificate of the cluster's CA");
    }
    cluster.run(&pod("runs", "sleep 1000"), "ready", is_ready).await;

    // A kubelet whose certificate expired while it was stopped bootstraps again.
    cluster.terminate();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2020, 1, 2);
    let over = format!("{}{}", params.self_signed(&key).unwrap().pem(), key.serialize_pem());
    fs::write(&current, over).unwrap();
    for request in cluster.client.list(&Target::all(&REQUESTS), &client::ListOptions::default()).await.unwrap().items {
        let target = Target::named(&REQUESTS, "", request.str_at(&["metadata", "name"]).unwrap());
        cluster.client.delete(&target, &client::DeleteOptions::default()).await.unwrap();
    }
    cluster.restart();
    signed(&cluster, CLIENT, joins).await;
    assert_eq!(phase(&cluster.get(&PODS, "runs").await), "Running");
    approving.abort();
    cluster.finish().await;
}
