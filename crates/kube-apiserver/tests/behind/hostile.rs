//! Hostile kubelets that reject or redirect upgrade requests: no client reaches a connection it is not authorized for.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use kube_apiserver::proxy::Kubelets;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::cluster::{Cluster, TOKEN};
use crate::server::{Backend, UpgradeHandler, never};

const EXEC: &str = "/api/v1/namespaces/default/pods/p/exec?command=cat&stdin=true&stdout=true";
const TIMEOUT: Duration = Duration::from_secs(30);

/// Starts a cluster with one pod whose kubelet responds to upgrade requests with `switch`.
async fn cluster(switch: UpgradeHandler) -> (Cluster, Backend) {
    let plain = |_: &_| Response::new(Full::new(Bytes::from("response of the kubelet")));
    let kubelet = Backend::start(IpAddr::V4(Ipv4Addr::LOCALHOST), &["127.0.0.1"], switch, plain).await;
    let cluster = Cluster::with(|directory| {
        let ca = directory.path().join("kubelet-ca.crt");
        std::fs::write(&ca, &kubelet.certificate).unwrap();
        Kubelets { ca: Some(ca), ..Kubelets::default() }
    })
    .await;
    cluster.add_node("one", kubelet.address.port(), &[]).await;
    cluster.add_pod("p", "one").await;
    (cluster, kubelet)
}

/// Sends requests on one connection and returns the responses.
async fn exchange(cluster: &Cluster, requests: &str) -> String {
    let mut wire = cluster.connect().await;
    wire.write_all(requests.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    // The second request contains `Connection: close`, so a server that keeps the connection open closes it after both
    // responses.
    let read = tokio::time::timeout(TIMEOUT, wire.read_to_end(&mut received)).await;
    assert!(read.is_ok(), "the connection did not end: {}", String::from_utf8_lossy(&received));
    String::from_utf8_lossy(&received).into_owned()
}

fn exec() -> String {
    format!(
        "POST {EXEC} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
         X-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n"
    )
}

/// CVE-2018-1002105: the proxy kept the connection to the backend open after a failed upgrade, with its own
/// credentials.
#[tokio::test(flavor = "multi_thread")]
async fn rejected_upgrade_leaves_no_connection_to_the_kubelet() {
    let (cluster, kubelet) = cluster(never()).await;
    let second = "GET /runningpods/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let response = exchange(&cluster, &format!("{}{second}", exec())).await;
    assert!(response.starts_with("HTTP/1.1 4") || response.starts_with("HTTP/1.1 5"), "{response}");
    assert!(!response.contains("response of the kubelet"), "{response}");
    let seen: Vec<String> = kubelet.seen().iter().map(|seen| seen.path.clone()).collect();
    assert!(!seen.is_empty() && seen.iter().all(|path| path.starts_with("/exec/default/p/")), "{seen:?}");
}

/// CVE-2020-8559: the proxy followed a redirect of one kubelet to another, with its own credentials.
#[tokio::test(flavor = "multi_thread")]
async fn redirect_from_a_kubelet_on_upgrade_is_not_followed() {
    let other = Backend::start(IpAddr::V4(Ipv4Addr::LOCALHOST), &["127.0.0.1"], never(), |_| {
        Response::new(Full::new(Bytes::from("response of another kubelet")))
    })
    .await;
    let to = format!("https://{}/exec/default/victim/c?command=id", other.address);
    let redirect: UpgradeHandler =
        Arc::new(move |_| Response::builder().status(302).header("location", to.as_str()).body(Full::default()).ok());
    let (cluster, kubelet) = cluster(redirect).await;
    let second = "GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let response = exchange(&cluster, &format!("{}{second}", exec())).await;
    assert!(!response.contains("101 Switching Protocols"), "{response}");
    assert!(!response.to_lowercase().contains("\r\nlocation:"), "the client is not sent there either: {response}");
    assert_eq!(other.seen().len(), 0);
    assert_eq!(kubelet.seen().len(), 1);
}
