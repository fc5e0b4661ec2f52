//! Endpoints that close connections or answer in unusual ways.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpListener;

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
