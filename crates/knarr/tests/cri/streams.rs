//! Exec, attach and port-forward as a kubelet's clients use them.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use node_api::cri::v1;
use streaming::spdy::{Headers, Session, Side, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::machine::{Machine, TIMEOUT, machine, script, strings};

pub(crate) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

pub(crate) async fn websocket(url: &str, protocol: &str) -> Socket {
    let mut request = url.replace("http://", "ws://").into_client_request().unwrap();
    request.headers_mut().insert("Sec-WebSocket-Protocol", protocol.parse().unwrap());
    let (socket, response) = tokio_tungstenite::connect_async(request).await.unwrap();
    assert_eq!(response.headers()["sec-websocket-protocol"], protocol);
    socket
}

/// Reads until the connection closes. Returns the data of each channel.
pub(crate) async fn read_all(mut socket: Socket) -> BTreeMap<u8, String> {
    let mut channels: BTreeMap<u8, String> = BTreeMap::new();
    let read = async {
        while let Some(Ok(message)) = socket.next().await {
            if let Message::Binary(bytes) = message {
                channels.entry(bytes[0]).or_default().push_str(&String::from_utf8_lossy(&bytes[1..]));
            }
        }
    };
    tokio::time::timeout(TIMEOUT, read).await.expect("the stream is closed");
    channels
}

pub(crate) async fn exec_url(m: &mut Machine, id: &str, command: &[&str], tty: bool, stdin: bool) -> String {
    let request =
        v1::ExecRequest { container_id: id.into(), cmd: strings(command), tty, stdin, stdout: true, stderr: !tty };
    m.runtime.exec(request).await.unwrap().into_inner().url
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_over_websocket_carries_streams_and_the_exit_code() {
    let mut m = machine().await;
    let sandbox = m.sandbox("ws").await;
    let id = m.run(&sandbox, script("c", "sleep 1000")).await;
    let url = exec_url(&mut m, &id, &["sh", "-c", "echo out; echo err >&2; exit 4"], false, false).await;
    let channels = read_all(websocket(&url, "v5.channel.k8s.io").await).await;
    assert_eq!((channels[&1].as_str(), channels[&2].as_str()), ("out\n", "err\n"));
    assert!(channels[&3].contains(r#""reason":"ExitCode""#) && channels[&3].contains(r#""message":"4""#));
    let url = exec_url(&mut m, &id, &["cat"], false, true).await;
    let mut socket = websocket(&url, "v5.channel.k8s.io").await;
    socket.send(Message::Binary(b"\x00typed".to_vec().into())).await.unwrap();
    socket.send(Message::Binary(b"\xff\x00".to_vec().into())).await.unwrap();
    let channels = read_all(socket).await;
    assert_eq!(channels[&1], "typed");
    assert!(channels[&3].contains("Success"));
    let text = exec_url(&mut m, &id, &["cat"], false, true).await;
    let mut socket = websocket(&text, "v5.channel.k8s.io").await;
    socket.send(Message::Text("\0sent as text".into())).await.unwrap();
    socket.send(Message::Binary(b"\xff\x00".to_vec().into())).await.unwrap();
    assert_eq!(
        read_all(socket).await[&1],
        "sent as text",
        "the channel byte selects the stream, not the type of the message"
    );
    assert!(tokio_tungstenite::connect_async(url.replace("http", "ws")).await.is_err(), "a ticket is valid once");
    let url = exec_url(&mut m, &id, &["echo", "quiet"], false, false).await;
    let channels = read_all(websocket(&url, "channel.k8s.io").await).await;
    assert_eq!(channels, BTreeMap::from([(1, "quiet\n".to_owned())]), "the first protocol does not report success");
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_with_a_terminal_has_a_size() {
    let mut m = machine().await;
    let sandbox = m.sandbox("tty").await;
    let id = m.run(&sandbox, script("c", "sleep 1000")).await;
    let url = exec_url(&mut m, &id, &["sh", "-c", "read line; stty size; tty; echo got $line"], true, true).await;
    let mut socket = websocket(&url, "v4.channel.k8s.io").await;
    socket.send(Message::Binary(b"\x04{\"Width\":101,\"Height\":37}".to_vec().into())).await.unwrap();
    // The size and the input use different channels, so the input is sent only after the size is set.
    let check = "for i in $(seq 1000); do [ \"$(stty size -F /dev/pts/0 2>/dev/null || stty size </dev/pts/0)\" = '37 101' ] && exit 0; done; exit 1";
    assert_eq!(m.exec(&id, &["sh", "-c", check]).await.exit_code, 0);
    socket.send(Message::Binary(b"\x00hello\n".to_vec().into())).await.unwrap();
    let channels = read_all(socket).await;
    let text = channels[&1].replace('\r', "");
    assert!(text.contains("37 101\n/dev/pts/") && text.ends_with("got hello\n"), "{text:?}");
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attach_streams_output_and_input_and_writes_the_log() {
    let mut m = machine().await;
    let sandbox = m.sandbox("attach").await;
    let mut config = script("c", "while read line; do echo got $line; done; echo end");
    (config.stdin, config.stdin_once) = (true, true);
    let id = m.run(&sandbox, config).await;
    let request = v1::AttachRequest { container_id: id.clone(), stdin: true, stdout: true, stderr: true, tty: false };
    let url = m.runtime.attach(request).await.unwrap().into_inner().url;
    let mut socket = websocket(&url, "v5.channel.k8s.io").await;
    socket.send(Message::Binary(b"\x00one\ntwo\n".to_vec().into())).await.unwrap();
    socket.send(Message::Binary(b"\xff\x00".to_vec().into())).await.unwrap();
    let channels = read_all(socket).await;
    assert_eq!(channels[&1], "got one\ngot two\nend\n");
    let status = m.wait_for_exit(&id).await;
    assert_eq!(status.exit_code, 0);
    let log = crate::machine::text_of(&std::fs::read_to_string(status.log_path).unwrap());
    assert_eq!(log, "got one\ngot two\nend\n");
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attach_works_with_a_terminal() {
    let mut m = machine().await;
    let sandbox = m.sandbox("attach-tty").await;
    let mut config = script("c", "tty; read line; echo got $line");
    (config.stdin, config.tty) = (true, true);
    let id = m.run(&sandbox, config).await;
    let request = v1::AttachRequest { container_id: id.clone(), stdin: true, stdout: true, stderr: false, tty: true };
    let url = m.runtime.attach(request).await.unwrap().into_inner().url;
    let mut socket = websocket(&url, "v4.channel.k8s.io").await;
    socket.send(Message::Binary(b"\x00word\n".to_vec().into())).await.unwrap();
    let channels = read_all(socket).await;
    assert!(channels[&1].contains("got word"), "{channels:?}");
    let log = std::fs::read_to_string(m.wait_for_exit(&id).await.log_path).unwrap();
    assert!(log.contains("/dev/pts/0") && log.contains("got word"), "{log}");
    m.finish().await;
}

/// Upgrades a connection to SPDY by hand.
async fn spdy(url: &str, version: &str) -> Session {
    let rest = url.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let mut socket = TcpStream::connect(host).await.unwrap();
    let request = format!(
        "POST /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
         X-Stream-Protocol-Version: {version}\r\nContent-Length: 0\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\n") {
        response.push(socket.read_u8().await.unwrap());
    }
    let response = String::from_utf8(response).unwrap().to_lowercase();
    assert!(response.starts_with("http/1.1 101") && response.contains(version), "{response}");
    Session::new(socket, Side::Client)
}

async fn open(session: &Session, fields: &[(&str, &str)]) -> Stream {
    let headers: Headers = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    session.open(headers).await.unwrap()
}

async fn text(stream: &mut Stream) -> String {
    let mut text = Vec::new();
    let read = async {
        while let Some(piece) = stream.data.recv().await {
            text.extend_from_slice(&piece);
        }
    };
    tokio::time::timeout(Duration::from_secs(20), read).await.expect("the stream is closed");
    String::from_utf8(text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_over_spdy_carries_streams_and_the_exit_code() {
    let mut m = machine().await;
    let sandbox = m.sandbox("spdy").await;
    let id = m.run(&sandbox, script("c", "sleep 1000")).await;
    let url = exec_url(&mut m, &id, &["sh", "-c", "cat; echo err >&2; exit 6"], false, true).await;
    let session = spdy(&url, "v4.channel.k8s.io").await;
    let mut error = open(&session, &[("streamtype", "error")]).await;
    let stdin = open(&session, &[("streamtype", "stdin")]).await;
    let mut stdout = open(&session, &[("streamtype", "stdout")]).await;
    let mut stderr = open(&session, &[("streamtype", "stderr")]).await;
    stdin.sender.send(b"typed").await.unwrap();
    stdin.sender.finish().await.unwrap();
    assert_eq!(text(&mut stdout).await, "typed");
    assert_eq!(text(&mut stderr).await, "err\n");
    let status = text(&mut error).await;
    assert!(status.contains(r#""message":"6""#), "{status}");
    m.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_are_forwarded_over_spdy_and_websocket() {
    let mut m = machine().await;
    let sandbox = m.sandbox("ports").await;
    let id = m.run(&sandbox, script("c", "while :; do echo hello | nc -l -p 8080; done")).await;
    let listening = "until cat /proc/net/tcp /proc/net/tcp6 | grep -q ':1F90 .* 0A '; do :; done";
    let request = v1::PortForwardRequest { pod_sandbox_id: sandbox.clone(), port: vec![8080] };
    assert_eq!(m.exec(&id, &["sh", "-c", listening]).await.exit_code, 0);
    let url = m.runtime.port_forward(request.clone()).await.unwrap().into_inner().url;
    let session = spdy(&url, "portforward.k8s.io").await;
    let pair = |port: &'static str, request: &'static str| {
        let session = &session;
        async move {
            let error = open(session, &[("streamtype", "error"), ("port", port), ("requestid", request)]).await;
            let data = open(session, &[("streamtype", "data"), ("port", port), ("requestid", request)]).await;
            error.sender.finish().await.unwrap();
            data.sender.finish().await.unwrap();
            (error, data)
        }
    };
    let (mut error, mut data) = pair("8080", "0").await;
    assert_eq!((text(&mut data).await.as_str(), text(&mut error).await.as_str()), ("hello\n", ""));
    let (mut error, _data) = pair("9", "1").await;
    assert!(text(&mut error).await.contains("failed to connect to localhost:9 inside the sandbox"));
    assert_eq!(m.exec(&id, &["sh", "-c", listening]).await.exit_code, 0);
    let url = m.runtime.port_forward(request).await.unwrap().into_inner().url;
    let mut socket = websocket(&url, "v4.channel.k8s.io").await;
    let mut seen = Vec::new();
    while !seen.ends_with(b"hello\n") {
        if let Message::Binary(bytes) = socket.next().await.unwrap().unwrap() {
            seen = bytes.to_vec();
        }
    }
    assert_eq!(seen, b"\x00hello\n");
    m.finish().await;
}
