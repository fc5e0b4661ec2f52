//! Routing, filters, balancing and streaming.

use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use ingress::routing::{
    Action, BackendProtocol, BackendTarget, Filter, HeaderChange, HostPattern, MirrorTarget, PathRewrite, Redirect,
    RouteOptions,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::*;

/// An address that refuses connections.
async fn refused() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn hosts_and_paths_select_the_backend() {
    let (a, b, c) = (echo("backend-a").await, echo("backend-b").await, echo("backend-c").await);
    let wildcard = HostPattern::Wildcard { suffix: "test".to_owned(), many_labels: false };
    let hosts = vec![
        (exact("a.test"), vec![forward("/api", endpoints("b", &[b])), forward("/", endpoints("a", &[a]))]),
        (wildcard, vec![forward("/only", endpoints("c", &[c]))]),
    ];
    let (_proxy, address) = start(settings(), table(listener(hosts))).await;
    for (host, path, expect) in [
        ("a.test", "/", "backend-a"),
        ("A.TEST:80", "/", "backend-a"),
        ("a.test", "/api/v1", "backend-b"),
        ("a.test", "/apis", "backend-a"),
        ("z.test", "/only", "backend-c"),
        ("z.test", "/", "404"),
        ("x.z.test", "/only", "404"),
        ("other", "/", "404"),
    ] {
        let response = get(address, host, path).await;
        assert!(response.contains(expect), "{host}{path}: {response}");
    }
}

#[tokio::test]
async fn headers_are_forwarded_without_hop_by_hop_ones() {
    let (_proxy, address) = serve(vec![forward("/", endpoints("a", &[echo("a").await]))]).await;
    let request = "GET /x?y=z HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: 1.2.3.4\r\nX-Private: 1\r\nX-Kept: 1\r\n\
                   Connection: close, X-Private\r\n\r\n";
    let response = exchange(address, request).await;
    for line in ["GET /x?y=z", "host: a.test", "x-kept: 1", "x-forwarded-for: 127.0.0.1", "x-forwarded-proto: http"] {
        assert!(response.lines().any(|have| have == line), "{line} is missing in {response}");
    }
    assert!(response.contains("x-request-id: "), "{response}");
    assert!(!response.contains("x-private") && !response.contains("keep-alive"), "{response}");
}

#[tokio::test]
async fn filters_change_headers_and_paths() {
    let pair = |name: &'static str| (HeaderName::from_static(name), HeaderValue::from_static("set"));
    let change = |name| HeaderChange { set: vec![pair(name)], ..HeaderChange::default() };
    let mut route = forward("/old", endpoints("a", &[echo("a").await]));
    route.filters = vec![
        Filter::ModifyRequestHeaders(change("x-request")),
        Filter::ModifyResponseHeaders(change("x-response")),
        Filter::RewriteUrl { hostname: Some("b.test".to_owned()), path: Some(PathRewrite::Prefix("/new".to_owned())) },
    ];
    let (_proxy, address) = serve(vec![route]).await;
    let response = get(address, "a.test", "/old/x?q=1").await;
    for part in ["GET /new/x?q=1", "host: b.test", "x-request: set", "x-response: set", "x-forwarded-host: a.test"] {
        assert!(response.contains(part), "{part} is missing in {response}");
    }
}

#[tokio::test]
async fn redirects_name_the_location() {
    let redirect = Redirect {
        scheme: Some("https".to_owned()),
        hostname: None,
        port: None,
        path: None,
        status: StatusCode::MOVED_PERMANENTLY,
    };
    let (_proxy, address) = serve(vec![route("/", Action::Redirect(redirect))]).await;
    let response = get(address, "a.test:8080", "/x?y=z").await;
    assert_eq!(status(&response), "301");
    assert!(response.contains("location: https://a.test/x?y=z\r\n"), "{response}");
}

#[tokio::test]
async fn weights_share_the_requests() {
    let mut heavy = endpoints("heavy", &[echo("heavy").await]);
    heavy.weight = 9;
    let action = Action::Forward(vec![heavy, endpoints("light", &[echo("light").await])]);
    let (_proxy, address) = serve(vec![route("/", action)]).await;
    let mut light = 0;
    for _ in 0..100 {
        light += usize::from(get(address, "a.test", "/").await.contains("x-backend: light"));
    }
    assert!((8..=12).contains(&light), "{light} of 100 requests");
}

#[tokio::test]
async fn mirrors_receive_a_copy_with_the_body() {
    let (sender, mut received) = tokio::sync::mpsc::channel(1);
    let copy = backend(move |request: Request<Incoming>| {
        let sender = sender.clone();
        async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let _ = sender.send(body).await;
            Response::new(full("ignored"))
        }
    })
    .await;
    let mut route = forward("/", endpoints("a", &[echo("a").await]));
    let BackendTarget::Endpoints(target) = endpoints("copy", &[copy]).target else { unreachable!() };
    let target = BackendTarget::Endpoints(target);
    route.filters = vec![Filter::Mirror(MirrorTarget { target, numerator: 1, denominator: 1 })];
    let (_proxy, address) = serve(vec![route]).await;
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    let response = exchange(address, post).await;
    assert!(response.contains("x-backend: a"), "{response}");
    let body = tokio::time::timeout(PATIENCE, received.recv()).await.unwrap().unwrap();
    assert_eq!(&body[..], b"hello");
}

#[tokio::test]
async fn refused_connections_are_retried_on_another_endpoint() {
    let (_proxy, address) = serve(vec![forward("/", endpoints("a", &[refused().await, echo("a").await]))]).await;
    for _ in 0..6 {
        assert_eq!(status(&get(address, "a.test", "/").await), "200");
    }
}

#[tokio::test]
async fn failures_of_backends_have_their_status() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut slow = forward("/slow", endpoints("slow", &[silent.local_addr().unwrap()]));
    slow.options = RouteOptions { backend_timeout: Some(Duration::from_millis(50)), ..RouteOptions::default() };
    let mut limited = forward("/limited", endpoints("a", &[echo("a").await]));
    limited.options = RouteOptions { body_bytes_max: Some(4), ..RouteOptions::default() };
    let none = forward("/none", endpoints("none", &[]));
    let down = forward("/down", endpoints("down", &[refused().await]));
    let (_proxy, address) = serve(vec![slow, limited, none, down]).await;
    assert_eq!(status(&get(address, "a.test", "/slow").await), "504");
    assert_eq!(status(&get(address, "a.test", "/none").await), "503");
    assert_eq!(status(&get(address, "a.test", "/down").await), "502");
    let post = |rest: &str| format!("POST /limited HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{rest}");
    assert_eq!(status(&exchange(address, post("Content-Length: 4\r\n\r\nabcd")).await), "200");
    assert_eq!(status(&exchange(address, post("Content-Length: 5\r\n\r\nabcde")).await), "413");
    let chunked = post("Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n");
    assert_eq!(status(&exchange(address, chunked).await), "413");
}

#[tokio::test]
async fn upgraded_connections_are_tunnelled() {
    let socket = backend(|mut request: Request<Incoming>| async move {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes).await.unwrap();
            stream.write_all(&bytes).await.unwrap();
        });
        let response = Response::builder().status(101).header("connection", "upgrade").header("upgrade", "websocket");
        response.header("sec-websocket-accept", "yes").body(full("")).unwrap()
    })
    .await;
    let (_proxy, address) = serve(vec![forward("/", endpoints("ws", &[socket]))]).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let head = read_until(&mut stream, "\r\n\r\n").await;
    assert!(status(&head) == "101" && head.contains("sec-websocket-accept: yes"), "{head}");
    stream.write_all(b"ping").await.unwrap();
    assert_eq!(read_until(&mut stream, "ping").await, "ping");
}

#[tokio::test]
async fn grpc_trailers_pass_over_http2() {
    let grpc = backend(|request: Request<Incoming>| async move {
        assert_eq!(request.version(), http::Version::HTTP_2);
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let trailers = HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
        let frames = [Ok(Frame::data(body)), Ok(Frame::trailers(trailers))];
        Response::new(BodyExt::boxed(StreamBody::new(futures_util::stream::iter(frames))))
    })
    .await;
    let (_proxy, address) = serve(vec![forward("/", speaking("grpc", &[grpc], BackendProtocol::Http2))]).await;
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post("http://a.test/service/method").header("content-type", "application/grpc");
    let response = sender.send_request(request.header("te", "trailers").body(full("message")).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    let collected = response.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(&collected.to_bytes()[..], b"message");
}
