//! Slow, half-closed and hostile clients: each connection ends in bounded time, and other clients are served meanwhile.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};

use crate::filters::{TIMEOUT, until};
use crate::server::Server;

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// Opens a TLS connection on which a test writes raw HTTP/1.1.
pub(crate) fn connect(server: &Server) -> Stream {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody)).with_no_client_auth();
    let socket = TcpStream::connect(&server.address).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), socket)
}

/// Reads until the server closes the connection.
fn rest(mut stream: Stream) -> String {
    let mut response = Vec::new();
    // A server may close the connection without close_notify.
    let _ = stream.read_to_end(&mut response);
    String::from_utf8_lossy(&response).into_owned()
}

#[test]
fn soft_limit_of_open_files_does_not_limit_connections() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let hard = getrlimit(Resource::Nofile).maximum;
    // As in most shells. The server inherits it.
    setrlimit(Resource::Nofile, Rlimit { current: Some(1024), maximum: hard }).unwrap();
    let server = Server::start();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.process.id())).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let (soft, maximum) = line.trim().split_once(' ').unwrap();
    assert_eq!(soft, maximum.split_whitespace().next().unwrap(), "{line}");
}

#[test]
fn slow_headers_and_silent_connections_time_out() {
    let server = Server::start_with(&["--request-timeout", "2s"]);
    let start = Instant::now();
    let mut slow = connect(&server);
    slow.write_all(b"GET /api/v1/namespaces HTTP/1.1\r\nHost: a\r\nX-Slow: ").unwrap();
    rest(slow);
    let mut silent = connect(&server);
    // Only the TLS handshake.
    silent.flush().unwrap();
    rest(silent);
    assert!(start.elapsed() < TIMEOUT, "both connections were closed");
    assert_eq!(server.code(&[], "/readyz").0, "200");
}

#[test]
fn half_closed_connection_ends_its_watch() {
    let server = Server::start();
    let mut half = connect(&server);
    let head = "GET /api/v1/namespaces?watch=true HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer a-token\r\n\r\n";
    half.write_all(head.as_bytes()).unwrap();
    half.conn.send_close_notify();
    half.flush().unwrap();
    half.sock.shutdown(Shutdown::Write).unwrap();
    let start = Instant::now();
    rest(half);
    assert!(start.elapsed() < TIMEOUT, "its watch has ended");
    let open = || server.code(&[], "/metrics").1;
    let is_none = |text: &String| {
        let watches = |line: &&str| line.starts_with("apiserver_longrunning_requests{") && line.contains("namespaces");
        text.lines().filter(watches).all(|line| line.ends_with(" 0"))
    };
    until(open, is_none);
}

#[test]
fn truncated_body_ends_the_request() {
    let server = Server::start();
    let mut half = connect(&server);
    let head = "POST /api/v1/namespaces HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer a-token\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{";
    half.write_all(head.as_bytes()).unwrap();
    half.conn.send_close_notify();
    half.flush().unwrap();
    half.sock.shutdown(Shutdown::Write).unwrap();
    let start = Instant::now();
    let response = rest(half);
    assert!(!response.contains(" 201") && start.elapsed() < TIMEOUT, "{response}");
    assert_eq!(server.code(&[], "/readyz").0, "200");
}

#[test]
fn too_many_headers_are_rejected() {
    let server = Server::start();
    let mut flood = connect(&server);
    flood.write_all(b"GET /readyz HTTP/1.1\r\nHost: a\r\n").unwrap();
    let many: String = (0..50_000).map(|number| format!("X-{number}: y\r\n")).collect();
    // The server may close the connection before all headers are sent.
    let _ = flood.write_all(many.as_bytes()).and_then(|()| flood.write_all(b"\r\n"));
    let response = rest(flood);
    assert!(response.is_empty() || response.starts_with("HTTP/1.1 431"), "{response}");
    assert_eq!(server.code(&[], "/readyz").0, "200");
}

#[test]
fn non_http_input_is_rejected() {
    let server = Server::start();
    for nonsense in [&b"\x16\x03\x01\x00\xff nonsense\r\n\r\n"[..], b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"] {
        let mut stream = connect(&server);
        stream.write_all(nonsense).unwrap();
        let response = rest(stream);
        assert!(
            response.is_empty() || response.starts_with("HTTP/1.1 400") || response.starts_with("HTTP/1.1 505"),
            "{response}"
        );
    }
    // A connection without TLS.
    let mut plain = TcpStream::connect(&server.address).unwrap();
    plain.set_read_timeout(Some(TIMEOUT)).unwrap();
    plain.write_all(b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut response = Vec::new();
    let _ = plain.read_to_end(&mut response);
    assert!(!String::from_utf8_lossy(&response).contains("200 OK"));
    assert_eq!(server.code(&[], "/readyz").0, "200");
}

#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// CVE-2023-44487 (rapid reset): requests that are cancelled immediately cost the client nothing and load the server.
#[test]
fn rapid_stream_resets_do_not_block_other_clients() {
    let server = Server::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    println!("{} streams until the server had enough", runtime.block_on(reset_streams(&server.address)));
    assert_eq!(server.code(&[], "/readyz").0, "200");
    let open = || {
        let metrics = server.code(&[], "/metrics").1;
        let lines = metrics.lines().filter(|line| line.starts_with("apiserver_longrunning_requests{"));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
    };
    until(open, |open| *open == 0.0);
}

/// Opens watches and resets each immediately, until the server closes the connection. Returns their number.
async fn reset_streams(address: &str) -> usize {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody)).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = connector.connect(ServerName::try_from("localhost").unwrap(), socket).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    for sent in 0..20_000 {
        let Ok(ready) = client.ready().await else { return sent };
        client = ready;
        let uri = "https://localhost/api/v1/namespaces?watch=true";
        let request = http::Request::get(uri).header("authorization", "Bearer a-token").body(()).unwrap();
        let Ok((_, mut stream)) = client.send_request(request, true) else { return sent };
        stream.send_reset(h2::Reason::CANCEL);
    }
    20_000
}
