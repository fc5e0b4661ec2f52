//! Proxy subresource tests of pods, services and nodes.

use std::net::{IpAddr, UdpSocket};

use apimachinery::value;
use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::cluster::{Cluster, TOKEN};
use crate::kubelet;
use crate::server::{Backend, ReceivedRequest, never};

/// Returns a non-loopback address of this host. No packet is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback()).then_some(ip)
}

fn serve(seen: &ReceivedRequest) -> Response<Full<Bytes>> {
    if seen.path == "/go" {
        return Response::builder().status(302).header("location", "/there").body(Full::default()).unwrap();
    }
    if seen.path == "/page" {
        let page = Full::new(Bytes::from("<a href=\"/rewriteme\">test</a>"));
        return Response::builder().header("content-type", "text/html; charset=utf-8").body(page).unwrap();
    }
    let uri = seen.headers.get("x-forwarded-uri").map_or("", |value| value.to_str().unwrap());
    let body = format!("{} {} {uri} {}", seen.method, seen.path, String::from_utf8_lossy(&seen.body));
    let response = Response::builder().header("access-control-allow-origin", "*").header("x-own", "yes");
    response.body(Full::new(body.into())).unwrap()
}

async fn send(cluster: &Cluster, method: &str, path: &str, body: &'static str) -> Response<Bytes> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(cluster.connect().await)).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost")
        .header("accept", "text/html")
        .header("authorization", format!("Bearer {TOKEN}"))
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    let (head, body) = sender.send_request(request).await.unwrap().into_parts();
    Response::from_parts(head, body.collect().await.unwrap().to_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_and_service_proxy_forward_requests_and_rewrite_responses() {
    let ip = own_address().expect("the host has an address other than loopback");
    let backend = Backend::start(ip, &[], never(), serve).await;
    let port = backend.address.port();
    let cluster = Cluster::start().await;
    cluster.add_pod("p", "").await;
    let status = value!({"podIP": (ip.to_string()), "podIPs": [{"ip": (ip.to_string())}], "phase": "Running"});
    cluster.set_status("/api/v1/namespaces/default/pods/p", status).await;
    let base = format!("/api/v1/namespaces/default/pods/p:{port}/proxy");
    let response = send(&cluster, "POST", &format!("{base}/a%2Fb/?x=y"), "said").await;
    assert_eq!(response.body(), &format!("POST /a%2Fb/?x=y {base}/a%2Fb/ said"));
    assert!(
        response.headers().contains_key("x-own") && !response.headers().contains_key("access-control-allow-origin")
    );
    assert!(!backend.seen()[0].headers.contains_key("authorization"));
    let moved = send(&cluster, "GET", &format!("{base}?x=y"), "").await;
    assert_eq!(
        (moved.status().as_u16(), moved.headers()["location"].to_str().unwrap()),
        (301, format!("{base}/?x=y").as_str())
    );
    let led = send(&cluster, "GET", &format!("{base}/go"), "").await;
    assert_eq!(
        (led.status().as_u16(), led.headers()["location"].to_str().unwrap()),
        (302, format!("{base}/there").as_str())
    );

    let page = send(&cluster, "GET", &format!("{base}/page"), "").await;
    assert_eq!(page.body(), &format!("<a href=\"{base}/rewriteme\">test</a>"));

    let service = value!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"ports": [{"name": "web", "port": 80}]},
    });
    cluster.create("/api/v1/namespaces/default/services", service).await;
    let none = send(&cluster, "GET", "/api/v1/namespaces/default/services/s:80/proxy/", "").await;
    assert_eq!(none.status().as_u16(), 503);
    let slice = value!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}},
        "endpoints": [{"addresses": [(ip.to_string())], "targetRef": {"kind": "Pod", "namespace": "default", "name": "p"}}],
        "ports": [{"name": "web", "port": (i64::from(port))}],
    });
    cluster.create("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice).await;
    for name in ["s:80", "s:web", "http:s:web"] {
        let response = send(&cluster, "GET", &format!("/api/v1/namespaces/default/services/{name}/proxy/x"), "").await;
        assert!(response.body().starts_with(b"GET /x "), "{name}: {response:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn node_proxy_reaches_the_kubelet_and_loopback_addresses_are_rejected() {
    let kubelet = kubelet::start().await;
    let cluster = Cluster::start().await;
    cluster.add_node("one", kubelet.address.port(), &[]).await;
    let (code, response) = cluster.raw("GET", "/api/v1/nodes/one/proxy/metrics?a=b", None).await;
    assert_eq!((code, response), (200, Bytes::from("GET /metrics?a=b")));
    let (code, response) = cluster.call("GET", "/api/v1/nodes/one:1/proxy/", None).await;
    assert_eq!((code, response.str_at(&["message"])), (400, Some("address not allowed")));
    cluster.add_pod("p", "").await;
    let status = value!({"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]});
    cluster.set_status("/api/v1/namespaces/default/pods/p", status).await;
    let (code, response) = cluster.call("GET", "/api/v1/namespaces/default/pods/p:1/proxy/", None).await;
    assert_eq!((code, response.str_at(&["message"])), (400, Some("address not allowed")));
}
