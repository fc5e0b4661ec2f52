//! HTTP client of `knarr hello --ask`, for tests from inside a pod.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Uri;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Timeout of the entire request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a response in bytes. The rest is not read.
const RESPONSE_BYTES_MAX: u64 = 1 << 20;

/// Returns the body of a GET. Fails unless the status is 200.
pub(super) async fn get(url: &str) -> Result<String> {
    let uri: Uri = url.parse().with_context(|| format!("{url:?} is not a URL"))?;
    ensure!(uri.scheme_str().unwrap_or("http") == "http", "only http:// URLs are supported");
    let host = uri.host().with_context(|| format!("{url:?} has no host"))?.to_owned();
    let port = uri.port_u16().unwrap_or(80);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n");
    let talk = async {
        let mut stream = TcpStream::connect((host.as_str(), port)).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut response = Vec::new();
        stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut response).await?;
        std::io::Result::Ok(response)
    };
    let response = tokio::time::timeout(TIMEOUT, talk).await.with_context(|| format!("{host} does not respond"))?;
    let response = response.with_context(|| format!("the request to {host} failed"))?;
    body(&String::from_utf8_lossy(&response)).with_context(|| format!("unexpected response from {host}"))
}

/// Returns the body of a response with status 200.
fn body(response: &str) -> Result<String> {
    let (head, body) = response.split_once("\r\n\r\n").context("not an HTTP response")?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    ensure!(status == "200", "its status is {status}");
    Ok(body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_must_have_status_200() {
        assert_eq!(body("HTTP/1.0 200 OK\r\nx: y\r\n\r\nhello\n").unwrap(), "hello\n");
        assert_eq!(body("HTTP/1.0 503 No\r\n\r\nhello\n").unwrap_err().to_string(), "its status is 503");
        assert!(body("nonsense").is_err());
    }
}
