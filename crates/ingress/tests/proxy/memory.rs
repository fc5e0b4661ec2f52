//! Memory under attack: what clients and backends send without end is not collected.

use std::alloc::System;
use std::net::SocketAddr;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use ingress::proxy::Settings;
use ingress::routing::HostPattern;
use sys::Counting;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::*;

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting::new(System);

/// Bytes that an attack may send. The buffers of the sockets take a part of them, and the proxy must not take the rest.
const FLOOD: usize = 128 << 20;
/// Bytes in use by the proxy, the attacker and the backend together.
const LIMIT: usize = 12 << 20;
/// Time after which a peer that takes no bytes is considered to apply back pressure.
const STALL: Duration = Duration::from_millis(500);

/// Writes the bytes again and again until the flood is over, the other side stalls or closes. Fails if memory grows.
async fn flood(stream: &mut TcpStream, bytes: &[u8]) {
    let before = ALLOCATOR.in_use();
    for _ in 0..FLOOD / bytes.len() {
        let written = tokio::time::timeout(STALL, stream.write_all(bytes)).await;
        check(before);
        if !matches!(written, Ok(Ok(()))) {
            return;
        }
    }
}

fn check(before: usize) {
    let grown = ALLOCATOR.in_use().saturating_sub(before);
    assert!(grown < LIMIT, "{grown} bytes are in use");
}

/// A backend that accepts connections and never reads.
async fn deaf() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// An HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The headers of `GET http://a/` by the static table.
const GET: [u8; 6] = [0x82, 0x84, 0x86, 0x01, 1, b'a'];

/// Opens an HTTP/2 connection without a client library, which would prevent the attack.
async fn http2(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    stream.write_all(&frame(4, 0, 0, &[])).await.unwrap();
    stream
}

#[tokio::test]
async fn endless_headers_are_not_collected() {
    let (_proxy, address) = serve(vec![forward("/", endpoints("a", &[echo("a").await]))]).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n").await.unwrap();
    flood(&mut stream, "X-Flood: 0123456789\r\n".repeat(500).as_bytes()).await;
    assert!(!read_all(&mut stream).await.contains("200 OK"));
}

#[tokio::test]
async fn chunk_extension_without_end_is_not_collected() {
    let (_proxy, address) = serve(vec![forward("/", endpoints("a", &[echo("a").await]))]).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;").await.unwrap();
    flood(&mut stream, &[b'x'; 16 << 10]).await;
    assert!(!read_all(&mut stream).await.contains("200 OK"));
}

#[tokio::test]
async fn clients_with_half_a_head_use_little_memory() {
    const CLIENTS: usize = 300;
    let (proxy, address) = serve(vec![forward("/", endpoints("a", &[echo("a").await]))]).await;
    let (before, mut clients) = (ALLOCATOR.in_use(), Vec::new());
    for _ in 0..CLIENTS {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX-Half").await.unwrap();
        clients.push(stream);
    }
    let accepted = format!("connections{{state=\"active\"}} {CLIENTS}\n");
    let all_accepted = async {
        while !proxy.metrics().contains(&accepted) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, all_accepted).await.expect("the proxy accepts the connections");
    let each = ALLOCATOR.in_use().saturating_sub(before) / CLIENTS;
    assert!(each < 64 << 10, "{each} bytes per client");
}

#[tokio::test]
async fn idle_connections_have_no_buffers() {
    const CLIENTS: usize = 300;
    let (_proxy, address) = serve(vec![forward("/", endpoints("a", &[echo("a").await]))]).await;
    let connect = async || {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        // The last header of the request is the last line of the response.
        read_until(&mut stream, "x-request-id: ").await;
        stream
    };
    // The first one opens the connection to the endpoint.
    let mut clients = vec![connect().await];
    let before = ALLOCATOR.in_use();
    for _ in 0..CLIENTS {
        clients.push(connect().await);
    }
    let each = ALLOCATOR.in_use().saturating_sub(before) / CLIENTS;
    // hyper had 16 KiB of buffers alone.
    assert!(each < 14 << 10, "{each} bytes per client");
}

#[tokio::test]
async fn upload_waits_for_a_backend_that_does_not_read() {
    let (_listener, backend) = deaf().await;
    let (_proxy, address) = serve(vec![forward("/", endpoints("a", &[backend]))]).await;
    for framing in [format!("Content-Length: {FLOOD}\r\n\r\n"), "Transfer-Encoding: chunked\r\n\r\n".to_owned()] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}").as_bytes()).await.unwrap();
        let chunk = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
        flood(&mut stream, chunk.as_bytes()).await;
    }
}

#[tokio::test]
async fn response_waits_for_a_client_that_does_not_read() {
    let endless = backend(|_: Request<Incoming>| async {
        let data = bytes::Bytes::from(vec![b'x'; 64 << 10]);
        let frames = futures_util::stream::repeat_with(move || Ok(http_body::Frame::data(data.clone())));
        Response::new(StreamBody::new(frames).boxed())
    });
    let (_proxy, address) = serve(vec![forward("/", endpoints("a", &[endless.await]))]).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let before = ALLOCATOR.in_use();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    read_until(&mut stream, "\r\n\r\n").await;
    let end = tokio::time::Instant::now() + STALL;
    while tokio::time::Instant::now() < end {
        check(before);
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn head_without_end_from_a_backend_is_not_collected() {
    let (listener, backend) = deaf().await;
    let (_proxy, address) = serve(vec![forward("/", endpoints("a", &[backend]))]).await;
    let client = tokio::spawn(async move { get(address, "a.test", "/").await });
    let (mut stream, _) = listener.accept().await.unwrap();
    let _ = stream.read(&mut [0; 4096]).await.unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\n").await.unwrap();
    flood(&mut stream, "X-Flood: 0123456789\r\n".repeat(500).as_bytes()).await;
    assert_eq!(status(&client.await.unwrap()), "502");
}

#[tokio::test]
async fn continuation_frames_without_end_are_not_collected() {
    let (_proxy, address) = serve(vec![forward("/", endpoints("a", &[echo("a").await]))]).await;
    let mut stream = http2(address).await;
    // A literal header without indexing, again and again.
    let headers = [0, 1, b'x', 1, b'y'].repeat(3000);
    stream.write_all(&frame(1, 0, 1, &headers)).await.unwrap();
    flood(&mut stream, &frame(9, 0, 1, &headers)).await;
    read_all_bytes(&mut stream).await;
}

#[tokio::test]
async fn control_frames_whose_answers_are_not_read_are_not_collected() {
    let (_proxy, address) = serve(vec![forward("/", endpoints("a", &[echo("a").await]))]).await;
    for attack in [frame(6, 0, 0, &[0; 8]), frame(4, 0, 0, &[0, 3, 0, 0, 0, 1])] {
        let mut stream = http2(address).await;
        flood(&mut stream, &attack.repeat(500)).await;
    }
}

#[tokio::test]
async fn streams_that_are_reset_are_not_collected() {
    let (_listener, backend) = deaf().await;
    let (_proxy, address) = serve(vec![forward("/", endpoints("a", &[backend]))]).await;
    let mut stream = http2(address).await;
    let before = ALLOCATOR.in_use();
    for number in 0..200_000 {
        let id = 2 * number + 1;
        let attack = [frame(1, 5, id, &GET), frame(3, 0, id, &8_u32.to_be_bytes())].concat();
        let written = tokio::time::timeout(STALL, stream.write_all(&attack)).await;
        check(before);
        if !matches!(written, Ok(Ok(()))) {
            break;
        }
    }
    read_all_bytes(&mut stream).await;
}

#[tokio::test]
async fn streams_of_many_connections_are_bounded_together() {
    const CONNECTIONS: u32 = 20;
    const STREAMS: u32 = 100;
    const REQUESTS_MAX: usize = 100;
    let (_listener, backend) = deaf().await;
    let settings = Settings { requests_max: REQUESTS_MAX, ..settings() };
    let hosts = vec![(HostPattern::Any, vec![forward("/", endpoints("a", &[backend]))])];
    let (proxy, address) = start(settings, table(listener(hosts))).await;
    let (before, mut clients) = (ALLOCATOR.in_use(), Vec::new());
    for _ in 0..CONNECTIONS {
        let mut stream = http2(address).await;
        let requests = (0..STREAMS).flat_map(|number| frame(1, 5, 2 * number + 1, &GET));
        stream.write_all(&requests.collect::<Vec<u8>>()).await.unwrap();
        clients.push(stream);
    }
    let rejected = (CONNECTIONS * STREAMS) as usize - REQUESTS_MAX;
    let expected = [format!("requests_in_flight {REQUESTS_MAX}\n"), format!("requests_rejected_total {rejected}\n")];
    let answered = async {
        while !expected.iter().all(|line| proxy.metrics().contains(line)) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.unwrap_or_else(|_| panic!("{}", proxy.metrics()));
    check(before);
}

/// Reads until the proxy closes the connection.
async fn read_all_bytes(stream: &mut TcpStream) {
    let closed = async {
        let mut buffer = [0; 4096];
        while stream.read(&mut buffer).await.is_ok_and(|length| length > 0) {}
    };
    tokio::time::timeout(PATIENCE, closed).await.expect("the connection stays open");
}
