//! Replaced tables, removed listeners and shutdown.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use ingress::proxy::Settings;
use ingress::routing::{HostPattern, RoutingTable};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::support::*;

fn to(name: &str, addresses: &[std::net::SocketAddr]) -> RoutingTable {
    table(listener(vec![(HostPattern::Any, vec![forward("/", endpoints(name, addresses))])]))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_change_under_load_without_failed_requests() {
    let (a, b) = (echo("a").await, echo("b").await);
    let (proxy, address) = start(settings(), to("web", &[a, b])).await;
    let done = Arc::new(AtomicBool::new(false));
    let swapping = {
        let (proxy, done) = (Arc::clone(&proxy), Arc::clone(&done));
        tokio::spawn(async move {
            let mut swaps = 0;
            while !done.load(Ordering::SeqCst) {
                let endpoints = [vec![a], vec![b], vec![a, b]];
                assert!(proxy.replace(to("web", &endpoints[swaps % 3])).await.is_empty());
                swaps += 1;
                tokio::task::yield_now().await;
            }
            swaps
        })
    };
    let client = |count: usize| async move {
        let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        for _ in 0..count {
            sender.ready().await.unwrap();
            let request = Request::get("/").header("host", "a.test").body(full("")).unwrap();
            let response = sender.send_request(request).await.unwrap();
            assert_eq!(response.status(), 200);
            let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
            assert!(body.to_bytes().len() > 10);
        }
    };
    let clients: Vec<_> = (0..4).map(|_| tokio::spawn(client(500))).collect();
    for client in clients {
        client.await.unwrap();
    }
    done.store(true, Ordering::SeqCst);
    assert!(swapping.await.unwrap() > 10);
    assert!(proxy.metrics().contains("method=\"GET\",status=\"200\"} 2000"), "{}", proxy.metrics());
}

/// A table whose backend answers after it was notified, and reports the arrival of a request.
async fn waiting() -> (RoutingTable, Arc<Notify>, Arc<Notify>) {
    let (arrived, answer) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (on_arrival, on_answer) = (Arc::clone(&arrived), Arc::clone(&answer));
    let address = backend(move |_: Request<Incoming>| {
        let (arrived, answer) = (Arc::clone(&on_arrival), Arc::clone(&on_answer));
        async move {
            arrived.notify_one();
            answer.notified().await;
            Response::new(full("answered"))
        }
    })
    .await;
    (to("web", &[address]), arrived, answer)
}

#[tokio::test]
async fn shutdown_finishes_requests_in_flight_and_accepts_no_more() {
    let (table, arrived, answer) = waiting().await;
    let (proxy, address) = start(settings(), table).await;
    let request = tokio::spawn(async move { get(address, "a.test", "/").await });
    arrived.notified().await;
    let stopping = tokio::spawn({
        let proxy = Arc::clone(&proxy);
        async move { proxy.shutdown(PATIENCE).await }
    });
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!stopping.is_finished());
    answer.notify_one();
    assert!(request.await.unwrap().contains("answered"));
    tokio::time::timeout(PATIENCE, stopping).await.unwrap().unwrap();
    assert!(proxy.addresses().is_empty());
}

#[tokio::test]
async fn requests_above_the_limit_are_rejected_until_others_end() {
    let (table, arrived, answer) = waiting().await;
    let (proxy, address) = start(Settings { requests_max: 1, ..settings() }, table).await;
    for round in 1..=2 {
        let first = tokio::spawn(async move { get(address, "a.test", "/").await });
        arrived.notified().await;
        let second = get(address, "a.test", "/").await;
        assert_eq!(status(&second), "503", "{second}");
        assert!(second.contains("\r\nretry-after: 1\r\n"), "{second}");
        let metrics = proxy.metrics();
        assert!(metrics.contains("nginx_ingress_controller_requests_in_flight 1\n"), "{metrics}");
        assert!(metrics.contains(&format!("nginx_ingress_controller_requests_rejected_total {round}\n")), "{metrics}");
        answer.notify_one();
        assert_eq!(status(&first.await.unwrap()), "200");
        let ended = async {
            while !proxy.metrics().contains("nginx_ingress_controller_requests_in_flight 0\n") {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.expect("the requests end");
    }
}

#[tokio::test]
async fn client_that_has_just_connected_is_served_before_its_listener_closes() {
    let (proxy, address) = start(settings(), to("web", &[echo("a").await])).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let accepted = async {
        while !proxy.metrics().contains("connections{state=\"active\"} 1") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, accepted).await.expect("the proxy accepts the connection");
    let stopping = tokio::spawn({
        let proxy = Arc::clone(&proxy);
        async move { proxy.shutdown(PATIENCE).await }
    });
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert_eq!(status(&read_all(&mut stream).await), "200");
    tokio::time::timeout(PATIENCE, stopping).await.unwrap().unwrap();
}

#[tokio::test]
async fn shutdown_closes_connections_after_the_deadline() {
    let (table, arrived, _answer) = waiting().await;
    let (proxy, address) = start(settings(), table).await;
    let request = tokio::spawn(async move { get(address, "a.test", "/").await });
    arrived.notified().await;
    proxy.shutdown(Duration::from_millis(50)).await;
    assert_eq!(request.await.unwrap(), "");
}

#[tokio::test]
async fn removed_listeners_close_and_others_keep_their_connections() {
    let a = echo("a").await;
    let (proxy, address) = start(settings(), to("web", &[a])).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    stream.write_all(request).await.unwrap();
    read_until(&mut stream, "x-request-id").await;
    assert!(proxy.replace(to("web", &[a])).await.is_empty());
    stream.write_all(request).await.unwrap();
    read_until(&mut stream, "x-request-id").await;
    proxy.replace(RoutingTable::default()).await;
    read_all(&mut stream).await;
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn port_in_use_is_reported_and_the_others_are_served() {
    let a = echo("a").await;
    let occupied = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = occupied.local_addr().unwrap().port();
    let proxy = ingress::proxy::Proxy::new(settings());
    let one = to("web", &[a]).listeners.remove(&0.into()).unwrap();
    let both = RoutingTable { listeners: BTreeMap::from([(0.into(), one.clone()), (port.into(), one)]) };
    let errors = proxy.replace(both.clone()).await;
    assert_eq!(errors.iter().map(|error| error.address.port).collect::<Vec<_>>(), [port]);
    let served = proxy.addresses();
    assert_eq!(served.len(), 1);
    assert_eq!(status(&get(served[0].1, "a.test", "/").await), "200");
    drop(occupied);
    assert!(proxy.replace(both).await.is_empty());
    assert_eq!(proxy.addresses().len(), 2);
}
