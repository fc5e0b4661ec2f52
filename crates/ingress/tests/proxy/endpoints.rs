//! Endpoints that close connections or answer in unusual ways.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::*;

/// An endpoint that reads a request from each connection, then closes it, like a process that terminates. Also returns the
/// number of requests.
async fn terminating() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            read_until(&mut stream, "\r\n\r\n").await;
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    (address, count)
}

#[tokio::test]
async fn safe_requests_that_an_endpoint_does_not_answer_are_sent_to_another_one() {
    let (terminating, count) = terminating().await;
    let (_proxy, address) = serve(vec![forward("/", endpoints("a", &[terminating, echo("a").await]))]).await;
    for _ in 0..6 {
        assert_eq!(status(&get(address, "a.test", "/").await), "200");
    }
    assert!(count.load(Ordering::SeqCst) > 0, "the endpoint got no request");
}

#[tokio::test]
async fn other_requests_that_an_endpoint_does_not_answer_are_sent_once() {
    let endpoints_of = [terminating().await, terminating().await];
    let addresses = endpoints_of.each_ref().map(|(address, _)| *address);
    let (_proxy, address) = serve(vec![forward("/", endpoints("a", &addresses))]).await;
    let head = |method: &str| format!("{method} / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n");
    for request in [head("POST") + "\r\n", head("GET") + "Content-Length: 2\r\n\r\nhi"] {
        let before: usize = endpoints_of.iter().map(|(_, count)| count.load(Ordering::SeqCst)).sum();
        assert_eq!(status(&exchange(address, &request).await), "502", "{request}");
        let after: usize = endpoints_of.iter().map(|(_, count)| count.load(Ordering::SeqCst)).sum();
        assert_eq!(after - before, 1, "{request}");
    }
}

/// Sends a request through the proxy, and returns what the endpoint receives and the client's connection.
async fn received(request: &str, end: &str) -> (String, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (_proxy, address) = serve(vec![forward("/", endpoints("a", &[listener.local_addr().unwrap()]))]).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    let (mut endpoint, _) = listener.accept().await.unwrap();
    let text = read_until(&mut endpoint, end).await;
    // The proxy stays for as long as its connections.
    tokio::spawn(async move {
        let _ = listener.accept().await;
        drop(_proxy);
    });
    (text, client, endpoint)
}

#[tokio::test]
async fn endpoints_receive_the_origin_form_and_a_host() {
    let (text, ..) = received("GET http://a.test?b HTTP/1.1\r\nHost: a.test\r\n\r\n", "\r\n\r\n").await;
    assert!(text.starts_with("GET /?b HTTP/1.1\r\nhost: a.test\r\n"), "{text}");
    let (text, _, endpoint) = received("GET / HTTP/1.0\r\n\r\n", "\r\n\r\n").await;
    let host = format!("\r\nhost: {}\r\n", endpoint.local_addr().unwrap());
    assert!(text.contains(&host) && !text.contains("x-forwarded-host"), "{text}");
}

#[tokio::test]
async fn early_response_reaches_a_client_that_still_sends() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n";
    let (_, mut client, mut endpoint) = received(head, "\r\n\r\n").await;
    endpoint.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig").await.unwrap();
    drop(endpoint);
    // More than the buffers of the sockets: the proxy takes it after the response.
    let body = vec![b'x'; 16 << 20];
    client.write_all(&body).await.unwrap();
    let response = read_all(&mut client).await;
    assert!(response.starts_with("HTTP/1.1 413 ") && response.ends_with("\r\n\r\nbig"), "{response}");
}

#[tokio::test]
async fn event_that_precedes_a_failure_of_the_endpoint_reaches_the_client() {
    let (_, mut client, mut endpoint) = received("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "\r\n\r\n").await;
    endpoint
        .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nevent\r\nno chunk\r\n")
        .await
        .unwrap();
    let mut response = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, client.read_to_end(&mut response)).await.unwrap();
    assert!(response.ends_with(b"\r\n\r\n5\r\nevent\r\n"), "{}", String::from_utf8_lossy(&response));
}
