//! Log, exec and port-forward tests over every protocol of clients and kubelets.

use apimachinery::{Value, value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kube_apiserver::proxy::Kubelets;
use streaming::spdy::{Headers, Session, Side};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::cluster::{Cluster, TOKEN};
use crate::kubelet::{self, SUCCESS};
use crate::server::Backend;

const POD: &str = "/api/v1/namespaces/default/pods/p";
const EXEC: &str = "/api/v1/namespaces/default/pods/p/exec?command=cat&stdin=true&stdout=true";
const WEBSOCKETS: &str = "ExtendWebSocketsToKubelet";

/// Starts a cluster with one pod whose kubelet declares the given features.
async fn cluster(features: &[&str]) -> (Cluster, Backend) {
    let kubelet = kubelet::start().await;
    let cluster = Cluster::with(|directory| {
        let ca = directory.path().join("kubelet-ca.crt");
        std::fs::write(&ca, &kubelet.certificate).unwrap();
        Kubelets { ca: Some(ca), ..Kubelets::default() }
    })
    .await;
    cluster.add_node("one", kubelet.address.port(), features).await;
    cluster.add_pod("p", "one").await;
    (cluster, kubelet)
}

type Socket = WebSocketStream<client::transport::Wire>;

async fn websocket(cluster: &Cluster, path: &str, protocols: &str, token: &str) -> Result<(Socket, String), u16> {
    let mut request = format!("wss://{}{path}", cluster.address()).into_client_request().unwrap();
    request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request.headers_mut().insert("sec-websocket-protocol", protocols.parse().unwrap());
    match tokio_tungstenite::client_async(request, cluster.connect().await).await {
        Ok((socket, response)) => {
            let chosen = response.headers()["sec-websocket-protocol"].to_str().unwrap().to_owned();
            Ok((socket, chosen))
        }
        Err(tokio_tungstenite::tungstenite::Error::Http(response)) => Err(response.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

async fn spdy(cluster: &Cluster, path: &str, protocol: &str) -> Session {
    let (mut sender, connection) = http1::handshake(TokioIo::new(cluster.connect().await)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    let request = Request::post(path)
        .header("host", "localhost")
        .header("authorization", format!("Bearer {TOKEN}"))
        .header("connection", "Upgrade")
        .header("upgrade", "SPDY/3.1")
        .header("x-stream-protocol-version", protocol)
        .body(Empty::<Bytes>::new())
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status().as_u16(), 101);
    assert_eq!(response.headers()["x-stream-protocol-version"], protocol);
    Session::new(TokioIo::new(hyper::upgrade::on(response).await.unwrap()), Side::Client)
}

fn named(kind: &str) -> Headers {
    Headers::from([("streamtype".to_owned(), kind.to_owned())])
}

/// Writes to a command's stdin, and reads its output, the end of the stream and its exit Status.
async fn talk(mut socket: Socket) {
    // Text and binary messages are both bytes of a channel, as the Python client relies on.
    socket.send(Message::Text("\0hel".into())).await.unwrap();
    socket.send(Message::Binary([&[0], "lo".as_bytes()].concat().into())).await.unwrap();
    let mut heard = Vec::new();
    while heard.len() < 6 {
        let message = socket.next().await.unwrap().unwrap();
        let Message::Binary(bytes) = message else { panic!("{message}") };
        assert_eq!(bytes[0], 1);
        heard.extend_from_slice(if heard.is_empty() { &bytes } else { &bytes[1..] });
    }
    assert_eq!(heard, b"\x01hello");
    socket.send(Message::Binary(vec![255, 0].into())).await.unwrap();
    let mut status = None;
    while let Some(Ok(message)) = socket.next().await {
        match message {
            Message::Binary(bytes) if bytes[0] == 3 => status = Some(bytes[1..].to_vec()),
            Message::Binary(bytes) => assert_eq!(bytes.len(), 1, "{bytes:?}"),
            _ => {}
        }
    }
    assert_eq!(status.as_deref(), Some(SUCCESS.as_bytes()));
}

#[tokio::test(flavor = "multi_thread")]
async fn log_is_sent_as_websocket_messages() {
    let (cluster, kubelet) = cluster(&[]).await;
    let log = format!("{POD}/log");
    let whole = "log by /containerLogs/default/p/c\n";
    for protocol in ["binary.k8s.io", "base64.binary.k8s.io"] {
        let (mut socket, chosen) = websocket(&cluster, &log, protocol, TOKEN).await.unwrap();
        assert_eq!(chosen, protocol);
        let mut heard = Vec::new();
        let mut closed = false;
        while let Some(Ok(message)) = socket.next().await {
            match message {
                Message::Binary(bytes) if protocol == "binary.k8s.io" => heard.extend_from_slice(&bytes),
                Message::Text(text) if protocol != "binary.k8s.io" => heard.extend(BASE64.decode(text).unwrap()),
                Message::Close(_) => closed = true,
                other => panic!("{other}"),
            }
        }
        assert!(closed, "the end is reported");
        assert_eq!(String::from_utf8(heard).unwrap(), whole);
    }
    assert!(!kubelet.seen()[0].headers.contains_key("upgrade"), "a kubelet forwards the body unchanged");
    assert_eq!(websocket(&cluster, &log, "channel.k8s.io", TOKEN).await.err(), Some(400));
}

#[tokio::test(flavor = "multi_thread")]
async fn websocket_is_forwarded_to_a_kubelet_that_supports_it() {
    let (cluster, kubelet) = cluster(&[WEBSOCKETS]).await;
    let (socket, chosen) = websocket(&cluster, EXEC, "v5.channel.k8s.io", TOKEN).await.unwrap();
    assert_eq!(chosen, "v5.channel.k8s.io");
    talk(socket).await;
    let seen = &kubelet.seen()[0];
    assert_eq!(seen.path, "/exec/default/p/c?command=cat&input=1&output=1");
    assert_eq!(seen.headers["upgrade"], "websocket");
    assert!(!seen.headers.contains_key("authorization"), "a client's token is not forwarded");
}

#[tokio::test(flavor = "multi_thread")]
async fn websocket_is_translated_to_spdy_for_older_kubelets() {
    let (cluster, kubelet) = cluster(&[]).await;
    let (socket, chosen) = websocket(&cluster, EXEC, "v5.channel.k8s.io", TOKEN).await.unwrap();
    assert_eq!(chosen, "v5.channel.k8s.io");
    talk(socket).await;
    let seen = &kubelet.seen()[0];
    assert_eq!((seen.method.as_str(), seen.headers["upgrade"].to_str().unwrap()), ("POST", "SPDY/3.1"));
    assert!(!seen.headers.contains_key("sec-websocket-key"));
    // Older subprotocols cannot close a single stream, so every kubelet supports them.
    let (_socket, chosen) = websocket(&cluster, EXEC, "v4.channel.k8s.io", TOKEN).await.unwrap();
    assert_eq!(chosen, "v4.channel.k8s.io");
    assert_eq!(kubelet.seen()[1].headers["upgrade"], "websocket");
}

#[tokio::test(flavor = "multi_thread")]
async fn spdy_is_forwarded_unchanged() {
    let (cluster, _kubelet) = cluster(&[]).await;
    let session = spdy(&cluster, EXEC, "v4.channel.k8s.io").await;
    let mut error = session.open(named("error")).await.unwrap();
    let stdin = session.open(named("stdin")).await.unwrap();
    let mut stdout = session.open(named("stdout")).await.unwrap();
    let large: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let sent = large.clone();
    let writer = tokio::spawn(async move {
        stdin.sender.send(&sent).await.unwrap();
        stdin.sender.finish().await.unwrap();
    });
    let mut heard = Vec::new();
    while let Some(piece) = stdout.data.recv().await {
        heard.extend_from_slice(&piece);
    }
    assert!(heard == large);
    writer.await.unwrap();
    assert_eq!(error.data.recv().await.unwrap(), SUCCESS);
}

#[tokio::test(flavor = "multi_thread")]
async fn port_forward_works_over_spdy_and_over_spdy_tunnelled_in_websocket() {
    let (cluster, kubelet) = cluster(&[]).await;
    let path = format!("{POD}/portforward?ports=80");
    let port = |kind: &str| {
        let mut headers = named(kind);
        headers.insert("port".into(), "80".into());
        headers.insert("requestid".into(), "0".into());
        headers
    };
    let echo = async |session: Session| {
        let _error = session.open(port("error")).await.unwrap();
        let mut data = session.open(port("data")).await.unwrap();
        data.sender.send(b"ping").await.unwrap();
        assert_eq!(data.data.recv().await.unwrap(), "ping");
        data.sender.finish().await.unwrap();
        assert!(data.data.recv().await.is_none());
    };
    echo(spdy(&cluster, &path, "portforward.k8s.io").await).await;
    let (socket, chosen) = websocket(&cluster, &path, "SPDY/3.1+portforward.k8s.io", TOKEN).await.unwrap();
    assert_eq!(chosen, "SPDY/3.1+portforward.k8s.io");
    let (near, far) = tokio::io::duplex(1 << 16);
    tokio::spawn(carry(socket, far));
    echo(Session::new(near, Side::Client)).await;
    assert!(kubelet.seen().iter().all(|seen| seen.path == "/portForward/default/p?port=80"));
}

/// Acts as a client that tunnels SPDY in WebSocket.
async fn carry(socket: Socket, far: tokio::io::DuplexStream) {
    let (mut to, mut from) = socket.split();
    let (mut reader, mut writer) = tokio::io::split(far);
    let outward = async {
        let mut buffer = vec![0; 4096];
        while let Ok(count @ 1..) = reader.read(&mut buffer).await {
            to.send(Message::Binary(Bytes::copy_from_slice(&buffer[..count]))).await.unwrap();
        }
    };
    let inward = async {
        while let Some(Ok(Message::Binary(bytes))) = from.next().await {
            writer.write_all(&bytes).await.unwrap();
        }
    };
    tokio::join!(outward, inward);
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_proxied_and_kubelet_errors_become_statuses() {
    let (cluster, kubelet) = cluster(&[]).await;
    let (code, log) = cluster.raw("GET", &format!("{POD}/log?tailLines=3&timestamps=true"), None).await;
    assert_eq!((code, log), (200, Bytes::from("log by /containerLogs/default/p/c?tailLines=3&timestamps=true\n")));
    let check = async |path: &str, expect: (u16, &str)| {
        let (code, response) = cluster.call("GET", path, None).await;
        assert_eq!((code, response.str_at(&["message"]).unwrap_or_default()), expect, "{path}");
    };
    check(&format!("{POD}/log?container=x"), (400, "container x is not valid for pod p")).await;
    check(&format!("{POD}/exec?command=x"), (400, "Upgrade request required")).await;
    check(
        &format!("{POD}/log?limitBytes=0"),
        (422, "PodLogOptions \"p\" is invalid: limitBytes: Invalid value: 0: must be greater than 0"),
    )
    .await;
    check("/api/v1/namespaces/default/pods/none/log", (404, "pods \"none\" not found")).await;
    cluster.add_pod("absent", "one").await;
    let not_found = cluster.call("GET", "/api/v1/namespaces/default/pods/absent/log", None).await;
    assert_eq!(not_found.0, 404, "{}", not_found.1);
    cluster.add_pod("waiting", "").await;
    assert_eq!(cluster.raw("GET", "/api/v1/namespaces/default/pods/waiting/log", None).await.0, 204);
    check("/api/v1/namespaces/default/pods/waiting/exec?command=x", (400, "pod waiting does not have a host assigned"))
        .await;
    cluster.add_node("gone", free_port(), &[]).await;
    cluster.add_pod("lost", "gone").await;
    let (code, lost) = cluster.call("GET", "/api/v1/namespaces/default/pods/lost/log", None).await;
    assert_eq!(code, 500);
    assert!(lost.str_at(&["message"]).unwrap().ends_with("connect: connection refused"), "{lost}");
    assert!(!kubelet.seen().is_empty());
}

/// Returns a port on which no process listens.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_by_websocket_get_requires_the_create_permission() {
    let (cluster, _kubelet) = cluster(&[]).await;
    let role = |verbs: Vec<Value>| {
        value!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "look"},
            "rules": [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": verbs}],
        })
    };
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    cluster.create(roles, role(vec!["get".into()])).await;
    let binding = value!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "look"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "look"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "viewer"}],
    });
    cluster.create("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", binding).await;
    let open = || websocket(&cluster, EXEC, "v5.channel.k8s.io", "of-viewer");
    assert_eq!(open().await.err(), Some(403));
    let (code, response) =
        cluster.call("PUT", &format!("{roles}/look"), Some(role(vec!["get".into(), "create".into()]))).await;
    assert_eq!(code, 200, "{response}");
    // The cache then contains the role that was written.
    cluster.until(&format!("{roles}/look"), |_| true).await;
    talk(open().await.unwrap().0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn untrusted_kubelet_certificate_is_rejected_unless_the_client_skips_verification() {
    let (cluster, _kubelet) = cluster(&[]).await;
    let stranger = kubelet::start().await;
    cluster.add_node("stranger", stranger.address.port(), &[]).await;
    cluster.add_pod("q", "stranger").await;
    let (code, response) = cluster.call("GET", "/api/v1/namespaces/default/pods/q/log", None).await;
    assert_eq!(code, 500, "{response}");
    assert!(response.str_at(&["message"]).unwrap().contains("certificate signed by unknown authority"), "{response}");
    let path = "/api/v1/namespaces/default/pods/q/log?insecureSkipTLSVerifyBackend=true";
    assert_eq!(cluster.raw("GET", path, None).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn followed_log_is_streamed() {
    // The response is a stream: reading it completes because the kubelet closes it.
    let (cluster, kubelet) = cluster(&[]).await;
    let (mut sender, connection) = http1::handshake(TokioIo::new(cluster.connect().await)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get(format!("{POD}/log?follow=true"))
        .header("host", "localhost")
        .header("authorization", format!("Bearer {TOKEN}"))
        .body(Empty::<Bytes>::new())
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/plain");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "log by /containerLogs/default/p/c?follow=true\n");
    assert_eq!(kubelet.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_exec_and_logs_work() {
    const SPDY: (&str, &str) = ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false");
    const WEBSOCKET: (&str, &str) = ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "true");
    for (features, environment, expect) in
        [(&[][..], SPDY, "SPDY/3.1"), (&[], WEBSOCKET, "SPDY/3.1"), (&[WEBSOCKETS], WEBSOCKET, "websocket")]
    {
        let (cluster, kubelet) = cluster(features).await;
        let output = cluster.kubectl(environment, &["exec", "-i", "p", "--", "cat"], "hello").await;
        assert_eq!(String::from_utf8_lossy(&output.stdout), "hello", "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{output:?}");
        let request = kubelet.seen().into_iter().find(|seen| seen.path.starts_with("/exec/")).unwrap();
        assert_eq!(request.headers["upgrade"], expect, "{environment:?}");
        let log = cluster.kubectl(environment, &["logs", "p", "--tail=2"], "").await;
        assert_eq!(String::from_utf8_lossy(&log.stdout), "log by /containerLogs/default/p/c?tailLines=2\n");
    }
}
