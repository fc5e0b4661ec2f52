//! Exchanges with a scripted endpoint.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;
use crate::proxy::body;

/// Keeps the connections that can be used again.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Stream>>>);

impl Recycle for Kept {
    fn put(&self, stream: Stream) {
        self.0.lock().unwrap().push(stream);
    }
}

fn connection() -> (Stream, DuplexStream) {
    let (near, far) = duplex(64 << 10);
    (Stream::new(near), far)
}

fn get() -> Request<Body> {
    Request::get("/").header("host", "a.test").body(body::empty()).unwrap()
}

/// Answers GET with bytes, where `|` is a line break, and closes the connection if the last byte is `$`. Returns the status
/// and the body, and whether the connection can be used again.
async fn exchange(response: &str) -> Result<(u16, String, bool), Http1Error> {
    let (stream, mut far) = connection();
    let kept = Kept::default();
    let text = response.replace('|', "\r\n");
    far.write_all(text.trim_end_matches('$').as_bytes()).await.unwrap();
    if text.ends_with('$') {
        far.shutdown().await.unwrap();
    }
    let answer = stream.send(get(), kept.clone()).await.map_err(|failed| failed.error)?;
    let Answer::Response(response) = answer else { panic!("the protocol was switched") };
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    let is_kept = !kept.0.lock().unwrap().is_empty();
    Ok((status, String::from_utf8_lossy(&body).into_owned(), is_kept))
}

#[tokio::test]
async fn connections_return_after_complete_responses_only() {
    for (response, expect) in [
        ("HTTP/1.1 200 OK|Content-Length: 5||hello", (200, "hello", true)),
        ("HTTP/1.1 204 No Content||", (204, "", true)),
        ("HTTP/1.1 200 OK|Transfer-Encoding: chunked||5|hello|0||", (200, "hello", true)),
        ("HTTP/1.1 103 Early Hints|Link: x||HTTP/1.1 200 OK|Content-Length: 2||ok", (200, "ok", true)),
        ("HTTP/1.1 200 OK|Content-Length: 5|Connection: close||hello", (200, "hello", false)),
        ("HTTP/1.1 200 OK|Content-Length: 2||ok and a second response", (200, "ok", false)),
        ("HTTP/1.1 200 OK|Transfer-Encoding: chunked||2|ok|0||HTTP/1.1 200 OK||", (200, "ok", false)),
        ("HTTP/1.1 200 OK||until the end$", (200, "until the end", false)),
    ] {
        let (status, body, is_kept) = exchange(response).await.unwrap();
        assert_eq!((status, body.as_str(), is_kept), expect, "{response}");
    }
}

#[tokio::test]
async fn responses_that_end_early_are_errors() {
    for response in [
        "$",
        "HTTP/1.1 200$",
        "HTTP/1.1 200 OK|Content-Length: 5||hel$",
        "HTTP/1.1 200 OK|Transfer-Encoding: chunked||5|hello$",
    ] {
        assert!(matches!(exchange(response).await, Err(Http1Error::Closed)), "{response}");
    }
}

#[tokio::test]
async fn informational_responses_are_limited() {
    let endless = "HTTP/1.1 102 Processing||".repeat(1000);
    assert!(matches!(exchange(&endless).await, Err(Http1Error::Head(_))));
}

#[tokio::test]
async fn request_whose_endpoint_is_gone_is_given_back() {
    let (stream, far) = connection();
    drop(far);
    let Err(failed) = stream.send(get(), Kept::default()).await else { panic!("an endpoint answered") };
    assert!(failed.request.is_some() && !failed.is_sent, "{:?}", failed.error);
}

#[tokio::test]
async fn body_is_framed_and_the_response_may_precede_its_end() {
    let (stream, mut far) = connection();
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let body = http_body_util::StreamBody::new(futures_util::stream::unfold(receiver, |mut receiver| async {
        let data: Bytes = receiver.recv().await?;
        Some((Ok(http_body::Frame::data(data)), receiver))
    }));
    let request = Request::post("/").body(BodyExt::boxed_unsync(body)).unwrap();
    let kept = Kept::default();
    let sending = tokio::spawn(stream.send(request, kept.clone()));
    sender.send(Bytes::from_static(b"first")).await.unwrap();
    let expect = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n";
    let mut received = vec![0; expect.len()];
    far.read_exact(&mut received).await.unwrap();
    assert_eq!(received, expect);
    far.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n").await.unwrap();
    let Ok(Answer::Response(response)) = sending.await.unwrap() else { panic!("there is no response") };
    let reading = tokio::spawn(response.into_body().collect());
    sender.send(Bytes::from_static(b"2nd")).await.unwrap();
    drop(sender);
    let mut rest = [0; 13];
    far.read_exact(&mut rest).await.unwrap();
    assert_eq!(&rest, b"3\r\n2nd\r\n0\r\n\r\n");
    far.write_all(b"ok").await.unwrap();
    assert_eq!(reading.await.unwrap().unwrap().to_bytes(), "ok");
    assert_eq!(kept.0.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn body_that_differs_from_its_length_is_cut_off() {
    struct Short;
    impl http_body::Body for Short {
        type Data = Bytes;
        type Error = BodyError;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<Bytes>, BodyError>>> {
            Poll::Ready(None)
        }

        fn size_hint(&self) -> http_body::SizeHint {
            http_body::SizeHint::with_exact(7)
        }
    }
    let (stream, _far) = connection();
    let request = Request::post("/").body(Short.boxed_unsync()).unwrap();
    let Err(failed) = stream.send(request, Kept::default()).await else { panic!("an endpoint answered") };
    assert!(matches!(failed.error, Http1Error::RequestLength), "{:?}", failed.error);
    assert!(failed.request.is_none());
}

#[tokio::test]
async fn idle_connections_have_no_buffers() {
    let (stream, mut far) = connection();
    let kept = Kept::default();
    let request = Request::post("/").body(body::text(vec![b'x'; 30 << 10])).unwrap();
    far.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n{}", "x".repeat(10_000)).as_bytes())
        .await
        .unwrap();
    let Ok(Answer::Response(response)) = stream.send(request, kept.clone()).await else {
        panic!("there is no response")
    };
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), 10_000);
    let kept = kept.0.lock().unwrap();
    assert_eq!((kept[0].read.capacity(), kept[0].write.capacity()), (0, 0));
}

#[tokio::test]
async fn idle_connections_are_checked_by_tasks_without_budget() {
    let (mut stream, far) = connection();
    drop(far);
    let is_idle = std::future::poll_fn(|context| {
        while let Poll::Ready(budget) = tokio::task::coop::poll_proceed(context) {
            budget.made_progress();
        }
        Poll::Ready(stream.is_idle())
    });
    assert!(!is_idle.await);
}

#[tokio::test]
async fn switch_of_protocols_before_the_end_of_the_request_is_rejected() {
    let (stream, mut far) = connection();
    far.write_all(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n").await.unwrap();
    let body = http_body_util::StreamBody::new(futures_util::stream::pending());
    let request = Request::post("/").header("upgrade", "x").body(BodyExt::boxed_unsync(body)).unwrap();
    let Err(failed) = stream.send(request, Kept::default()).await else { panic!("the protocol was switched") };
    assert!(matches!(failed.error, Http1Error::Switched), "{:?}", failed.error);
}

#[tokio::test]
async fn idle_connections_are_checked() {
    let (mut stream, mut far) = connection();
    assert!(stream.is_idle());
    far.write_all(b"x").await.unwrap();
    assert!(!stream.is_idle(), "an endpoint sends nothing without a request");
    let (mut stream, far) = connection();
    drop(far);
    assert!(!stream.is_idle());
}

#[tokio::test]
async fn switch_of_protocols_keeps_the_bytes_after_the_head() {
    let (stream, mut far) = connection();
    far.write_all(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\nfirst").await.unwrap();
    let Ok(Answer::Switched(response, mut upgraded)) = stream.send(get(), Kept::default()).await else {
        panic!("the protocol was not switched")
    };
    assert_eq!(response.headers()["upgrade"], "x");
    far.write_all(b" second").await.unwrap();
    let mut text = [0; 12];
    upgraded.read_exact(&mut text).await.unwrap();
    assert_eq!(&text, b"first second");
    upgraded.write_all(b"back").await.unwrap();
    far.shutdown().await.unwrap();
    assert_eq!(upgraded.read(&mut text).await.unwrap(), 0);
}
