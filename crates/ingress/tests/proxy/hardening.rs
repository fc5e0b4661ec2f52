//! Malformed and abusive clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use ingress::proxy::{Proxy, Settings};
use ingress::routing::HostPattern;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::*;

/// Starts a proxy whose backend counts requests.
async fn counting(settings: Settings) -> (Arc<Proxy>, SocketAddr, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let address = backend(move |request: Request<Incoming>| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            let _ = http_body_util::BodyExt::collect(request.into_body()).await;
            Response::new(full("ok"))
        }
    })
    .await;
    let hosts = vec![(HostPattern::Any, vec![forward("/", endpoints("a", &[address]))])];
    let (proxy, address) = start(settings, table(listener(hosts))).await;
    (proxy, address, count)
}

#[tokio::test]
async fn malformed_requests_are_rejected_and_close_the_connection() {
    let (_proxy, address, count) = counting(settings()).await;
    for request in [
        "nonsense\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a@b\r\nConnection: close\r\n\r\n",
        "GET a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET ftp://a/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET /a/../b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX : 1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\nx",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ] {
        // A client without `Connection: close` only sees the end of the response if the proxy closes.
        let closes = request.replace("GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
        let response = exchange(address, closes).await;
        assert_eq!(status(&response), "400", "{request:?}: {response}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn body_with_both_lengths_smuggles_no_second_request() {
    let (_proxy, address, count) = counting(settings()).await;
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    for headers in [
        format!("Content-Length: {}\r\nTransfer-Encoding: chunked", smuggled.len() + 5),
        "Transfer-Encoding: chunked\r\nContent-Length: 5".to_owned(),
    ] {
        count.store(0, Ordering::SeqCst);
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n\r\n0\r\n\r\n{smuggled}");
        let response = exchange(address, request).await;
        assert_eq!(response.matches("HTTP/1.1 ").count(), 1, "{headers:?}: {response}");
        assert_eq!(count.load(Ordering::SeqCst), 1, "{headers:?}");
    }
}

#[tokio::test]
async fn malformed_chunks_are_rejected() {
    let (_proxy, address, _) = counting(settings()).await;
    for chunks in ["x\r\n", "5;\n\r\nhello\r\n", "-1\r\n", "fffffffffffffffff\r\n"] {
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
        let response = exchange(address, request).await;
        assert_eq!(status(&response), "400", "{chunks:?}: {response}");
    }
}

#[tokio::test]
async fn headers_are_bounded_in_size_and_number() {
    let (_proxy, address, count) = counting(settings()).await;
    let large = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(80 << 10));
    assert_eq!(status(&exchange(address, large).await), "431");
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: 1\r\n".repeat(200));
    assert_eq!(status(&exchange(address, many).await), "431");
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn header_floods_over_http2_are_rejected_and_the_connection_stays() {
    let (_proxy, address, count) = counting(settings()).await;
    let (mut client, connection) = h2::client::handshake(TcpStream::connect(address).await.unwrap()).await.unwrap();
    tokio::spawn(connection);
    let get = |headers: usize, bytes: usize| {
        let request = Request::get("http://a.test/");
        let values = (0..headers).map(|number| (format!("x-{number}"), "x".repeat(bytes)));
        values.fold(request, |request, (name, value)| request.header(name, value)).body(()).unwrap()
    };
    for (headers, bytes) in [(200, 1), (1, 80 << 10)] {
        client = client.ready().await.unwrap();
        let (response, _) = client.send_request(get(headers, bytes), true).unwrap();
        assert_eq!(response.await.unwrap().status(), 431, "{headers} headers of {bytes} bytes");
    }
    client = client.ready().await.unwrap();
    let (response, _) = client.send_request(get(1, 1), true).unwrap();
    assert_eq!(response.await.unwrap().status(), 200);
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn oversized_bodies_are_rejected_and_never_reach_the_backend_as_a_whole() {
    let received = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&received);
    let address = backend(move |request: Request<Incoming>| {
        let received = Arc::clone(&counted);
        async move {
            let mut body = request.into_body();
            while let Some(Ok(frame)) = http_body_util::BodyExt::frame(&mut body).await {
                received.fetch_add(frame.data_ref().map_or(0, bytes::Bytes::len), Ordering::SeqCst);
            }
            Response::new(full("ok"))
        }
    })
    .await;
    let mut limited = forward("/", endpoints("a", &[address]));
    limited.options.body_bytes_max = Some(1000);
    let (_proxy, address) = serve(vec![limited]).await;
    let body = "x".repeat(2000);
    let length = format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2000\r\n\r\n{body}");
    assert_eq!(status(&exchange(address, length).await), "413");
    assert_eq!(received.load(Ordering::SeqCst), 0, "the length was known before the first byte");
    let chunk = format!("1f4\r\n{}\r\n", "x".repeat(500));
    let chunks = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n",
        chunk.repeat(4)
    );
    assert_eq!(status(&exchange(address, chunks).await), "413");
    assert!(received.load(Ordering::SeqCst) <= 1000);
}

#[tokio::test]
async fn slow_clients_are_disconnected() {
    let limit = Duration::from_millis(100);
    let (_proxy, address, count) = counting(Settings { header_timeout: limit, ..settings() }).await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    assert_eq!(read_all(&mut silent).await, "");
    let mut slow = TcpStream::connect(address).await.unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX-Never").await.unwrap();
    assert!(!read_all(&mut slow).await.contains("200 OK"));
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn stalled_bodies_time_out() {
    let limit = Duration::from_millis(100);
    let (_proxy, address, _) = counting(Settings { body_timeout: limit, ..settings() }).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf").await.unwrap();
    assert_eq!(status(&read_until(&mut stream, "\r\n\r\n").await), "408");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_reset_streams_rapidly_are_disconnected() {
    let (_proxy, address, _) = counting(settings()).await;
    let (client, connection) = h2::client::handshake(TcpStream::connect(address).await.unwrap()).await.unwrap();
    let connection = tokio::spawn(connection);
    let flood = async move {
        let mut client = client;
        loop {
            let Ok(mut ready) = client.ready().await else { return };
            let request = Request::get("http://a.test/").body(()).unwrap();
            let Ok((_, mut stream)) = ready.send_request(request, true) else { return };
            stream.send_reset(h2::Reason::CANCEL);
            client = ready;
            tokio::task::yield_now().await;
        }
    };
    let flooding = tokio::spawn(flood);
    let closed = tokio::time::timeout(PATIENCE, connection).await.expect("the proxy serves the flood").unwrap();
    let error = closed.unwrap_err();
    // The proxy closes with unread frames of the flood, and the TCP reset may overtake its GOAWAY.
    let is_expected = error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM) || error.is_io();
    assert!(is_expected, "{error:?}");
    flooding.abort();
}

#[tokio::test]
async fn proxy_protocol_gives_the_client_address() {
    let hosts = vec![(HostPattern::Any, vec![forward("/", endpoints("a", &[echo("a").await]))])];
    let mut listener = listener(hosts);
    listener.proxy_protocol = true;
    let (_proxy, address) = start(settings(), table(listener)).await;
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let response = exchange(address, format!("PROXY TCP4 192.0.2.7 10.0.0.1 5000 80\r\n{request}")).await;
    assert!(response.contains("x-forwarded-for: 192.0.2.7\n"), "{response}");
    assert_eq!(exchange(address, request).await, "", "a connection without the header was served");
}
