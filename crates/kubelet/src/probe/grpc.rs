//! gRPC health checks (`grpc.health.v1`): request and response have one field each, encoded without generated code.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// `SERVING` of `grpc.health.v1.HealthCheckResponse`.
const SERVING: u8 = 1;

/// Checks the health of a service. The error is the probe's message.
pub(super) async fn check(host: &str, port: u16, service: &str, timeout: Duration) -> Result<(), String> {
    let result = tokio::time::timeout(timeout, health_check(host, port, service)).await;
    result.map_err(|_| format!("timeout: health rpc did not complete within {}s", timeout.as_secs()))?
}

async fn health_check(host: &str, port: u16, service: &str) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("error: health rpc probe failed: {error}");
    let tcp = TcpStream::connect((host, port)).await;
    let tcp = tcp.map_err(|error| format!("timeout: failed to connect service \"{host}:{port}\": {error}"))?;
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(tcp))
        .await
        .map_err(|error| failed(&error))?;
    let driving = tokio::spawn(connection);
    let request = Request::post(format!("http://{host}:{port}/grpc.health.v1.Health/Check"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .body(Full::new(frame(service)))
        .map_err(|error| failed(&error))?;
    let response = sender.send_request(request).await.map_err(|error| failed(&error))?;
    let status_of =
        |headers: &http::HeaderMap| headers.get("grpc-status").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let early = status_of(response.headers());
    let collected = response.into_body().collect().await.map_err(|error| failed(&error))?;
    let status = early.or_else(|| collected.trailers().and_then(status_of)).unwrap_or_default();
    driving.abort();
    if status != "0" {
        return Err(format!("error: health rpc failed: rpc error: code = {status}"));
    }
    let body = collected.to_bytes();
    match serving(&body) {
        Some(SERVING) => Ok(()),
        other => Err(format!("service unhealthy (responded with {:?})", name(other.unwrap_or(0)))),
    }
}

/// Returns the name of a serving status.
fn name(status: u8) -> &'static str {
    match status {
        1 => "SERVING",
        2 => "NOT_SERVING",
        3 => "SERVICE_UNKNOWN",
        _ => "UNKNOWN",
    }
}

/// Encodes a HealthCheckRequest as one gRPC message.
fn frame(service: &str) -> Bytes {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            message.push(length as u8 | 0x80);
            length >>= 7;
        }
        message.push(length as u8);
        message.extend_from_slice(service.as_bytes());
    }
    let mut framed = vec![0];
    framed.extend((message.len() as u32).to_be_bytes());
    framed.append(&mut message);
    framed.into()
}

/// Decodes the serving status of a HealthCheckResponse; zero if the field is absent.
fn serving(body: &[u8]) -> Option<u8> {
    let message = body.get(5..)?;
    match message {
        [] => Some(0),
        [0x08, status, ..] => Some(*status),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_check_messages_are_encoded_and_decoded() {
        assert_eq!(frame("").as_ref(), [0, 0, 0, 0, 0]);
        assert_eq!(frame("ab").as_ref(), [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        let long = frame(&"x".repeat(300));
        assert_eq!(long[..8], [0, 0, 0, 1, 47, 0x0a, 0xac, 2], "lengths above 127 take several bytes");
        assert_eq!(long.len(), 8 + 300);
        assert_eq!(serving(&[0, 0, 0, 0, 2, 8, 1]), Some(SERVING));
        assert_eq!(serving(&[0, 0, 0, 0, 0]), Some(0));
        assert_eq!(serving(&[]), None);
    }
}
