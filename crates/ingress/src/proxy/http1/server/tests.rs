//! Connections of scripted clients.

use component_base::Idle;
use http_body_util::{BodyExt, StreamBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::*;
use crate::proxy::body;

const LIMITS: ServerLimits = ServerLimits {
    head: HeadLimits { headers_max: 10, bytes_max: 1 << 10 },
    head_timeout: Duration::from_secs(60),
    idle_timeout: Duration::from_secs(600),
    last_request_timeout: Duration::from_secs(1),
};
/// Virtual time, longer than all limits.
const HOUR: Duration = Duration::from_secs(3600);

type Serving = JoinHandle<Result<(), ServerError>>;

/// Serves a client until it is notified.
fn start<F, R>(service: F) -> (DuplexStream, Arc<Notify>, Serving)
where
    F: Fn(Request<RequestStream>) -> R + Send + Sync + 'static,
    R: Future<Output = Response<Body>> + Send + 'static,
{
    let (near, far) = duplex(1 << 20);
    let notify = Arc::new(Notify::new());
    let ended = Arc::clone(&notify);
    let ending = async move { ended.notified().await };
    let socket = Idle::new(near, LIMITS.idle_timeout);
    (far, notify, tokio::spawn(serve(socket, BytesMut::new(), LIMITS, ending, service)))
}

async fn hello(_: Request<RequestStream>) -> Response<Body> {
    Response::new(body::text("hello"))
}

/// A body of these frames, which then ends as given.
fn frames(texts: &'static [&'static str], end: Option<BodyError>) -> Body {
    let texts = texts.iter().map(|text| Ok(Frame::data(Bytes::from_static(text.as_bytes()))));
    let ends_early = end.is_some();
    let start = futures_util::stream::iter(texts.chain(end.map(Err)).collect::<Vec<_>>());
    let rest = futures_util::stream::poll_fn(move |_| if ends_early { Poll::Ready(None) } else { Poll::Pending });
    BodyExt::boxed_unsync(StreamBody::new(futures_util::StreamExt::chain(start, rest)))
}

async fn read_to(client: &mut DuplexStream, end: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        let length = client.read_buf(&mut text).await.unwrap();
        assert!(length > 0, "the connection closed after {}", String::from_utf8_lossy(&text));
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn requests_whose_client_cannot_be_read_end_when_they_make_no_progress() {
    let ahead = format!("GET / HTTP/1.1\r\n\r\n{}", "x".repeat(100 << 10));
    let upload = format!("POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n{}", "x".repeat(100 << 10));
    for (request, has_response) in [(&ahead, false), (&ahead, true), (&upload, false), (&upload, true)] {
        let (mut client, _, serving) = start(move |request| async move {
            if !has_response {
                std::future::pending::<()>().await;
            }
            // The body of the request is not read.
            Response::new(frames(&["event"], None)).map(|body| {
                let kept = request.into_body();
                body.map_err(move |error| {
                    let _ = &kept;
                    error
                })
                .boxed_unsync()
            })
        });
        // The client does not close its side: it may have lost its network.
        client.write_all(request.as_bytes()).await.unwrap();
        let served = tokio::time::timeout(HOUR, serving).await.expect("the request is served forever").unwrap();
        assert!(matches!(served, Err(ServerError::Read(_))), "{served:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn client_may_send_a_last_request_while_its_connection_ends() {
    let (mut client, ending, serving) = start(hello);
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(!read_to(&mut client, "\r\n\r\nhello").await.contains("connection: close"));
    ending.notify_one();
    tokio::time::sleep(LIMITS.last_request_timeout / 2).await;
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(read_to(&mut client, "\r\n\r\nhello").await.contains("connection: close"));
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    drop(client);
    serving.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn idle_connection_that_ends_closes_in_time() {
    let (mut client, ending, serving) = start(hello);
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    read_to(&mut client, "\r\n\r\nhello").await;
    ending.notify_one();
    let start = Instant::now();
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    assert!(start.elapsed() < 2 * LIMITS.last_request_timeout, "{:?}", start.elapsed());
    // The client does not close its side.
    serving.await.unwrap().unwrap();
    assert!(start.elapsed() < LIMITS.last_request_timeout + 2 * LINGER, "{:?}", start.elapsed());
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn closed_connection_takes_what_the_client_still_sends() {
    let (mut client, _, serving) = start(hello);
    client.write_all(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).await.unwrap();
    assert!(response.ends_with("hello"), "{response}");
    // A connection that is gone resets the client, which may lose the response.
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    drop(client);
    serving.await.unwrap().unwrap();
    // No client keeps it open.
    let (mut client, _, serving) = start(hello);
    client.write_all(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").await.unwrap();
    let start = Instant::now();
    while client.write_all(b"more").await.is_ok() {
        tokio::time::sleep(LINGER / 2).await;
        assert!(start.elapsed() < 2 * LINGER_MAX);
    }
    serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn part_of_a_response_that_precedes_a_failure_is_sent() {
    let (mut client, _, serving) =
        start(|_| async { Response::new(frames(&["first", "second"], Some(BodyError::Deadline))) });
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).await.unwrap();
    assert!(response.ends_with("5\r\nfirst\r\n6\r\nsecond\r\n"), "{response}");
    assert!(matches!(serving.await.unwrap(), Err(ServerError::Response(_))));
}

#[tokio::test]
async fn empty_lines_before_a_request_are_ignored() {
    let (mut client, _, _serving) =
        start(|request| async move { Response::new(body::text(request.uri().path().to_owned())) });
    for _ in 0..2 {
        for byte in b"\r\n\nGET /path HTTP/1.1\r\n\r\n" {
            client.write_all(&[*byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        read_to(&mut client, "\r\n\r\n/path").await;
    }
}
