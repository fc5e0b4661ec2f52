//! The HTTP client for the ACME server. The server is trusted to issue certificates and with nothing else: its responses
//! are bounded, and the URLs that it names have to be `https`.

use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Limited};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use reqwest::Url;

use super::Settings;

const TIMEOUT: Duration = Duration::from_secs(30);
/// Largest body of a response: a certificate chain.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error("the HTTP client cannot be configured: {0}")]
    Reqwest(#[from] reqwest::Error),
    #[error("the URL of the ACME directory, {0:?}, cannot be parsed")]
    Parse(String),
    #[error(transparent)]
    Url(#[from] UrlError),
}

/// A URL that is not requested.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the ACME server named a URL that is not https: {0}")]
pub(super) struct UrlError(String);

struct Http {
    client: reqwest::Client,
    scope: Scope,
}

/// The URLs that may be requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Https,
    /// Also `http` at a loopback address, because the operator named such a directory.
    Loopback,
}

/// Returns a client that trusts the CAs of the system, or those of the settings instead.
pub(super) fn client(settings: &Settings) -> Result<Box<dyn HttpClient>, ClientError> {
    let directory = Url::parse(&settings.directory).map_err(|_| ClientError::Parse(settings.directory.clone()))?;
    let scope = if is_loopback(&directory) { Scope::Loopback } else { Scope::Https };
    scope.check(&directory)?;
    let mut builder = reqwest::Client::builder().timeout(TIMEOUT).redirect(reqwest::redirect::Policy::none());
    if let Some(pem) = &settings.ca_pem {
        builder = builder.tls_certs_only(reqwest::Certificate::from_pem_bundle(pem)?);
    }
    Ok(Box::new(Http { client: builder.build()?, scope }))
}

impl Scope {
    fn check(self, url: &Url) -> Result<(), UrlError> {
        let is_allowed = url.scheme() == "https" || self == Scope::Loopback && is_loopback(url);
        if is_allowed { Ok(()) } else { Err(UrlError(url.to_string())) }
    }
}

/// Whether a URL is `http` at a loopback address. Names may resolve to any address.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    url.scheme() == "http" && address.is_ok_and(|address| address.is_loopback())
}

impl HttpClient for Http {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let (client, scope) = (self.client.clone(), self.scope);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_or_else(|never| match never {}, http_body_util::Collected::to_bytes);
            let failed = |error: reqwest::Error| Error::Other(Box::new(error));
            let request = reqwest::Request::try_from(Request::from_parts(parts, body)).map_err(failed)?;
            scope.check(request.url()).map_err(|error| Error::Other(Box::new(error)))?;
            let response: http::Response<reqwest::Body> = client.execute(request).await.map_err(failed)?.into();
            Ok(BytesResponse::from(response.map(|body| Limited::new(body, RESPONSE_BYTES_MAX))))
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn to(directory: &str) -> Result<Box<dyn HttpClient>, ClientError> {
        client(&Settings { directory: directory.to_owned(), email: None, ca_pem: None })
    }

    #[test]
    fn only_https_urls_are_requested() {
        let check = |scope: Scope, url: &str, expect: bool| {
            assert_eq!(scope.check(&Url::parse(url).unwrap()).is_ok(), expect, "{scope:?} {url}");
        };
        check(Scope::Https, "https://acme.test/order", true);
        check(Scope::Https, "HTTPS://acme.test/order", true);
        check(Scope::Https, "http://acme.test/order", false);
        check(Scope::Https, "http://127.0.0.1/order", false);
        check(Scope::Https, "file:///etc/passwd", false);
        check(Scope::Loopback, "https://acme.test/order", true);
        check(Scope::Loopback, "http://127.0.0.1:14000/order", true);
        check(Scope::Loopback, "http://[::1]:14000/order", true);
        check(Scope::Loopback, "http://localhost/order", false);
        check(Scope::Loopback, "http://127.0.0.1.test/order", false);
        check(Scope::Loopback, "http://127.0.0.1@192.0.2.1/order", false);
        check(Scope::Loopback, "http://192.0.2.1/order", false);
        check(Scope::Loopback, "ftp://127.0.0.1/order", false);
    }

    #[test]
    fn directory_without_tls_is_refused() {
        let error = |directory: &str| to(directory).err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(error("https://acme.test/directory"), "");
        assert_eq!(error("http://127.0.0.1:1/directory"), "");
        assert!(error("http://acme.test/directory").contains("not https: http://acme.test/directory"));
        assert!(error("acme.test").contains("\"acme.test\", cannot be parsed"));
    }

    #[tokio::test]
    async fn urls_that_the_server_names_are_refused_before_they_are_requested() {
        let client = to("https://acme.test/directory").unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}/order", listener.local_addr().unwrap());
        let request = Request::builder().uri(url).body(BodyWrapper::default()).unwrap();
        let error = client.request(request).await.err().unwrap().to_string();
        assert!(error.contains("a URL that is not https"), "{error}");
        let accepted = listener.accept().map_err(|error| error.kind());
        assert_eq!(accepted.err(), Some(std::io::ErrorKind::WouldBlock), "the URL was requested");
    }

    #[tokio::test]
    async fn response_without_end_is_not_collected() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/directory", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            let mut sent = 0;
            while stream.write_all(&[b'x'; 64 << 10]).await.is_ok() {
                sent += 64 << 10;
            }
            sent
        });
        let client = to(&url).unwrap();
        let mut response =
            client.request(Request::builder().uri(url).body(BodyWrapper::default()).unwrap()).await.unwrap();
        let error = response.body.into_bytes().await.unwrap_err().to_string();
        assert_eq!(error, "length limit exceeded");
        drop((response, client));
        // The buffers of the sockets take some more.
        let sent = server.await.unwrap();
        assert!(sent < 64 * RESPONSE_BYTES_MAX, "{sent} bytes");
    }
}
