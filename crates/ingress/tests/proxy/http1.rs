//! HTTP/1.1 towards clients: persistent connections and the framing of messages.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use ingress::routing::{Action, Redirect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::*;

fn redirect(prefix: &str) -> ingress::routing::Route {
    let status = StatusCode::PERMANENT_REDIRECT;
    let redirect = Redirect { scheme: Some("https".to_owned()), hostname: None, port: None, path: None, status };
    route(prefix, Action::Redirect(redirect))
}

/// A backend whose responses are streams without a length, with a trailer.
async fn stream() -> std::net::SocketAddr {
    backend(|_: Request<Incoming>| async {
        let trailers = HeaderMap::from_iter([(HeaderName::from_static("x-sum"), HeaderValue::from_static("7"))]);
        let frames = ["one", "two"].map(|text| Ok::<_, Infallible>(Frame::data(Bytes::from(text))));
        let frames = frames.into_iter().chain([Ok(Frame::trailers(trailers))]);
        let body = BodyExt::boxed(StreamBody::new(futures_util::stream::iter(frames)));
        Response::builder().header("trailer", "x-sum").body(body).unwrap()
    })
    .await
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let (_proxy, address) = serve(vec![forward("/", endpoints("a", &[echo("a").await]))]).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let requests = "GET /first HTTP/1.1\r\nHost: a\r\n\r\n\
                    POST /second HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\
                    POST /third HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nwor\r\n2\r\nld\r\n0\r\n\r\n\
                    GET /fourth HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(requests.as_bytes()).await.unwrap();
    let responses = read_all(&mut stream).await;
    let mut rest = responses.as_str();
    for part in ["GET /first", "POST /second", "\n\nhello", "POST /third", "\n\nworld", "GET /fourth"] {
        rest = rest.split_once(part).unwrap_or_else(|| panic!("{part:?} is missing in order in {responses}")).1;
    }
    assert_eq!(responses.matches("HTTP/1.1 200 OK\r\n").count(), 4, "{responses}");
}

#[tokio::test]
async fn http10_connections_close_unless_they_are_kept() {
    let (_proxy, address) = serve(vec![
        forward("/stream", endpoints("s", &[stream().await])),
        forward("/", endpoints("a", &[echo("a").await])),
    ])
    .await;
    let closed = exchange(address, "GET / HTTP/1.0\r\nHost: a\r\n\r\n").await;
    assert!(closed.starts_with("HTTP/1.0 200 OK\r\n") && closed.contains("connection: close\r\n"), "{closed}");
    let mut stream = TcpStream::connect(address).await.unwrap();
    for _ in 0..2 {
        stream.write_all(b"GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n").await.unwrap();
        let head = read_until(&mut stream, "x-request-id").await;
        assert!(head.contains("connection: keep-alive\r\n"), "{head}");
    }
    // Its end is the end of the connection.
    let streamed = exchange(address, "GET /stream HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n").await;
    assert!(streamed.ends_with("\r\n\r\nonetwo") && streamed.contains("connection: close\r\n"), "{streamed}");
}

#[tokio::test]
async fn client_that_waits_is_told_to_continue() {
    let mut limited = forward("/limited", endpoints("a", &[echo("a").await]));
    limited.options.body_bytes_max = Some(4);
    let (_proxy, address) = serve(vec![limited, forward("/", endpoints("a", &[echo("a").await]))]).await;
    let head = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
        )
    };
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head("/").as_bytes()).await.unwrap();
    assert_eq!(read_until(&mut stream, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"hello").await.unwrap();
    let response = read_all(&mut stream).await;
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("\n\nhello"), "{response}");
    assert_eq!(status(&exchange(address, head("/limited")).await), "413");
}

#[tokio::test]
async fn responses_to_head_have_a_length_and_no_body() {
    let (_proxy, address) = serve(vec![forward("/", endpoints("a", &[echo("a").await]))]).await;
    let request = |method: &str, rest: &str| format!("{method} / HTTP/1.1\r\nHost: a\r\n{rest}\r\n");
    let both = request("HEAD", "") + &request("GET", "Connection: close\r\n");
    let responses = exchange(address, both).await;
    let (head, get) = responses.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-length: ") && get.starts_with("HTTP/1.1 200 OK\r\n"), "{responses}");
}

#[tokio::test]
async fn connection_is_kept_only_if_the_whole_request_was_read() {
    let (_proxy, address) = serve(vec![redirect("/")]).await;
    let post = |framing: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}");
    let twice = post("Content-Length: 5\r\n\r\nhello") + &post("Connection: close\r\n\r\n");
    assert_eq!(exchange(address, twice).await.matches("HTTP/1.1 308 ").count(), 2);
    for framing in ["Content-Length: 9\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(post(framing).as_bytes()).await.unwrap();
        let head = read_until(&mut stream, "\r\n\r\n").await;
        assert!(head.contains("connection: close\r\n"), "{framing:?}: {head}");
        // What follows belongs to the body, and not to a request.
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(!read_all(&mut stream).await.contains("HTTP/1.1 "), "{framing:?}");
    }
}

#[tokio::test]
async fn streams_are_chunked_and_trailers_are_sent_on_request() {
    let (_proxy, address) = serve(vec![forward("/", endpoints("s", &[stream().await]))]).await;
    let get = |headers: &str| format!("GET / HTTP/1.1\r\nHost: a\r\n{headers}Connection: close\r\n\r\n");
    let plain = exchange(address, get("")).await;
    assert!(plain.contains("transfer-encoding: chunked\r\n"), "{plain}");
    assert!(plain.ends_with("3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"), "{plain}");
    let trailers = exchange(address, get("TE: trailers\r\n")).await;
    assert!(trailers.ends_with("3\r\ntwo\r\n0\r\nx-sum: 7\r\n\r\n"), "{trailers}");
}

#[tokio::test]
async fn large_bodies_pass_in_both_directions() {
    const BYTES: usize = 3 << 20;
    let (_proxy, address) = serve(vec![forward("/", endpoints("a", &[echo("a").await]))]).await;
    for is_chunked in [false, true] {
        let (mut read, mut write) = TcpStream::connect(address).await.unwrap().into_split();
        let framing =
            if is_chunked { "Transfer-Encoding: chunked".to_owned() } else { format!("Content-Length: {BYTES}") };
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{framing}\r\n\r\n");
        let body = "x".repeat(BYTES);
        let body = if is_chunked { format!("{BYTES:x}\r\n{body}\r\n0\r\n\r\n") } else { body };
        let writing = tokio::spawn(async move { write.write_all((head + &body).as_bytes()).await.map(|()| write) });
        let mut response = String::new();
        tokio::time::timeout(PATIENCE, read.read_to_string(&mut response)).await.unwrap().unwrap();
        assert_eq!(status(&response), "200");
        assert!(response.ends_with(&format!("\n\n{}", "x".repeat(BYTES))), "{} bytes", response.len());
        writing.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn client_that_disconnects_ends_the_request_to_the_endpoint() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (_proxy, address) = serve(vec![forward("/", endpoints("a", &[listener.local_addr().unwrap()]))]).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let (mut endpoint, _) = listener.accept().await.unwrap();
    read_until(&mut endpoint, "\r\n\r\n").await;
    drop(client);
    assert_eq!(read_all(&mut endpoint).await, "");
}
