//! A scripted server at the other end of a connection in memory.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use streaming::spdy::Side;
use tokio::io::DuplexStream;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;

/// A writer into memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Memory {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl AsyncWrite for Memory {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

struct Local {
    streams: Streams,
    stdout: Memory,
    stderr: Memory,
    stdin: mpsc::Sender<Bytes>,
    sizes: mpsc::Sender<Size>,
}

fn local(tty: bool) -> Local {
    let (stdout, stderr) = (Memory::default(), Memory::default());
    let ((stdin, input), (sizes, resize)) = (mpsc::channel(4), mpsc::channel(4));
    let streams = Streams {
        stdin: Some(input),
        stdout: Some(Box::new(stdout.clone())),
        stderr: (!tty).then(|| Box::new(stderr.clone()) as Writer),
        tty,
        sizes: tty.then_some(resize),
    };
    Local { streams, stdout, stderr, stdin, sizes }
}

async fn sockets() -> (WebSocketStream<DuplexStream>, WebSocketStream<DuplexStream>) {
    let (near, far) = tokio::io::duplex(1 << 16);
    let client = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
    (client, WebSocketStream::from_raw_socket(far, Role::Server, None).await)
}

async fn received(server: &mut WebSocketStream<DuplexStream>) -> Vec<u8> {
    match server.next().await.unwrap().unwrap() {
        Message::Binary(bytes) => bytes.to_vec(),
        other => panic!("{other}"),
    }
}

const EXITED: &[u8] =
    br#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}"#;

#[tokio::test]
async fn command_over_websocket_has_input_output_and_an_exit_code() {
    let (client, mut server) = sockets().await;
    let Local { streams, stdout, stderr, stdin, .. } = local(false);
    let script = async {
        stdin.send(Bytes::from_static(b"typed")).await.unwrap();
        assert_eq!(received(&mut server).await, b"\x00typed");
        drop(stdin);
        assert_eq!(received(&mut server).await, [255, 0], "the end of the input is sent");
        for (channel, bytes) in [(1, &b"out"[..]), (2, b"err"), (1, b""), (9, b"unknown"), (1, b"put"), (3, EXITED)] {
            server.send(message(channel, bytes)).await.unwrap();
        }
        server.close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() })).await.unwrap();
    };
    let (outcome, ()) = tokio::join!(over_websocket(client, streams), script);
    assert_eq!(outcome.unwrap_err().to_string(), "command terminated with exit code 7");
    assert_eq!((stdout.text(), stderr.text()), ("output".to_owned(), "err".to_owned()));
}

#[tokio::test]
async fn sizes_of_the_terminal_are_sent_in_order() {
    let (client, mut server) = sockets().await;
    let Local { streams, sizes, stdin, .. } = local(true);
    let script = async {
        sizes.send(Size { width: 80, height: 24 }).await.unwrap();
        sizes.send(Size { width: 100, height: 30 }).await.unwrap();
        assert_eq!(received(&mut server).await, b"\x04{\"Width\":80,\"Height\":24}\n");
        assert_eq!(received(&mut server).await, b"\x04{\"Width\":100,\"Height\":30}\n");
        server.close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() })).await.unwrap();
    };
    let (outcome, ()) = tokio::join!(over_websocket(client, streams), script);
    outcome.unwrap();
    drop(stdin);
}

#[tokio::test]
async fn lost_connection_is_an_error() {
    let (client, server) = sockets().await;
    let local = local(false);
    drop(server);
    let outcome = over_websocket(client, local.streams).await.unwrap_err().to_string();
    assert_eq!(
        outcome,
        "error reading from error stream: next reader: websocket: close 1006 (abnormal closure): unexpected EOF"
    );
}

#[tokio::test(start_paused = true)]
async fn silent_connection_is_pinged_and_then_given_up() {
    let (client, mut server) = sockets().await;
    let local = local(false);
    let watch = async {
        assert!(matches!(server.next().await, Some(Ok(Message::Ping(_)))));
        // The server no longer reads, so it does not answer pings.
        server
    };
    let (outcome, _server) = tokio::join!(over_websocket(client, local.streams), watch);
    assert_eq!(outcome.unwrap_err().to_string(), "error reading from error stream: next reader: i/o timeout");
}

#[tokio::test]
async fn command_over_spdy_has_input_output_and_an_exit_code() {
    for (protocol, last, expect) in [
        ("v4.channel.k8s.io", EXITED, "command terminated with exit code 7"),
        ("v2.channel.k8s.io", b"no such command", "error executing remote command: no such command"),
    ] {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (client, mut server) = (Session::new(near, Side::Client), Session::new(far, Side::Server));
        let Local { streams, stdout, stderr, stdin, .. } = local(false);
        let script = async {
            let mut remote = Vec::new();
            for kind in ["error", "stdin", "stdout", "stderr"] {
                let stream = server.accept().await.unwrap();
                assert_eq!(stream.headers["streamtype"], kind);
                remote.push(stream);
            }
            stdin.send(Bytes::from_static(b"typed")).await.unwrap();
            drop(stdin);
            assert_eq!(remote[1].data.recv().await.unwrap(), "typed");
            assert!(remote[1].data.recv().await.is_none());
            for (stream, bytes) in [(2, &b"output"[..]), (3, b"err"), (0, last)] {
                remote[stream].sender.send(bytes).await.unwrap();
                remote[stream].sender.finish().await.unwrap();
            }
            remote
        };
        let (outcome, _remote) = tokio::join!(over_spdy(client, protocol, streams), script);
        assert_eq!(outcome.unwrap_err().to_string(), expect);
        assert_eq!((stdout.text(), stderr.text()), ("output".to_owned(), "err".to_owned()));
    }
}

/// Answers each request with the next response, and returns the heads of the requests.
async fn serve(listener: tokio::net::TcpListener, answers: Vec<&'static str>) -> Vec<String> {
    let mut heads = Vec::new();
    for answer in answers {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(tokio::io::AsyncReadExt::read_u8(&mut connection).await.unwrap());
        }
        heads.push(String::from_utf8(head).unwrap().to_lowercase());
        connection.write_all(answer.as_bytes()).await.unwrap();
    }
    heads
}

#[tokio::test]
async fn spdy_is_tried_if_the_server_rejects_websocket_and_its_rejection_is_reported() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let client = Client::connect(&client::Config::new(server), client::Settings::default()).unwrap();
    let answers = vec![
        "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nnot today",
    ];
    let path = "/api/v1/namespaces/n/pods/p/exec?command=ls";
    let (outcome, heads) = tokio::join!(run(&client, path, Streams::default()), serve(listener, answers));
    assert_eq!(outcome.unwrap_err().to_string(), "unable to upgrade connection: not today");
    assert!(heads[0].starts_with("get /api/v1/namespaces/n/pods/p/exec?command=ls http/1.1\r\n"), "{}", heads[0]);
    assert!(heads[0].contains("sec-websocket-protocol: v5.channel.k8s.io\r\n"), "{}", heads[0]);
    assert!(heads[1].starts_with("post ") && heads[1].contains("upgrade: spdy/3.1\r\n"), "{}", heads[1]);
    assert!(heads[1].contains("x-stream-protocol-version: v4.channel.k8s.io\r\n"), "{}", heads[1]);
}
