//! The transport of all requests: prints warnings of the server and logs requests by verbosity.

pub mod log;

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use apimachinery::json;
use bytes::Bytes;
use client::transport::{ResponseFuture, Switching};
use client::{Https, Transport, TransportError, UpgradeResponse};
use http::header::{HeaderMap, WARNING};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tokio::sync::OnceCell;

use crate::failure::{Unreachable, VersionMismatch};

/// Sends requests over HTTPS, logs them and prints warnings.
pub struct LoggingTransport {
    inner: Https,
    /// `host:port` of the server.
    server: String,
    base: String,
    verbosity: i64,
    warnings: Mutex<BTreeSet<String>>,
    /// Whether the server has the version of this kubectl; set from the start if any version is accepted.
    matched: OnceCell<()>,
}

impl LoggingTransport {
    /// Creates a transport. With `match_version`, all requests fail if the server has another version.
    pub fn new(config: client::Config, verbosity: i64, match_version: bool) -> Result<Self, TransportError> {
        let server = config.server.authority().map(ToString::to_string).unwrap_or_default();
        let base = config.server.to_string().trim_end_matches('/').to_owned();
        let matched = OnceCell::new_with(if match_version { None } else { Some(()) });
        Ok(Self { inner: Https::new(config)?, server, base, verbosity, warnings: Mutex::default(), matched })
    }

    /// Fails if the server must have the version of this kubectl, and has another one.
    async fn check_version(&self) -> Result<(), TransportError> {
        let check = async {
            let request = Request::get("/version").body(Bytes::new()).expect("the path is valid");
            let name = self.request_name(&request);
            let answer = self.inner.send(request).await.map_err(|error| self.unreachable(error, name))?;
            let bytes = answer.into_body().collect().await.map_err(TransportError::Broken)?.to_bytes();
            let version = json::parse(&bytes).ok();
            let version = version.as_ref().and_then(|version| version.str_at(&["gitVersion"])).unwrap_or_default();
            if version == crate::VERSION {
                return Ok(());
            }
            Err(TransportError::Broken(Box::new(VersionMismatch { server: version.to_owned() })))
        };
        self.matched.get_or_try_init(|| check).await.copied()
    }

    /// Returns the number of different warnings.
    pub fn warnings(&self) -> usize {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    async fn carry(&self, request: Request<Bytes>) -> Result<Response<client::Body>, TransportError> {
        self.check_version().await?;
        let line = (self.verbosity >= log::LEVEL_URL).then(|| self.log_request(&request));
        let start = Instant::now();
        let name = self.request_name(&request);
        let answer = self.inner.send(request).await;
        let Some((method, url)) = line else {
            return self.check_response(answer, name);
        };
        let status = answer.as_ref().map_or_else(|_| String::new(), |response| response.status().to_string());
        let head = answer.as_ref().ok().map(Response::headers);
        log::response(self.verbosity, &method, &url, &status, head, start.elapsed());
        let response = self.check_response(answer, name)?;
        // The bodies of watches and logs are unbounded.
        let unbounded = url.contains("watch=true") || url.contains("follow=true");
        if self.verbosity < log::LEVEL_BODIES || unbounded {
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.map_err(TransportError::Broken)?.to_bytes();
        log::body(self.verbosity, "Response Body", &url, &bytes);
        Ok(Response::from_parts(parts, client::transport::body(Full::new(bytes))))
    }

    fn check_response(
        &self,
        result: Result<Response<client::Body>, TransportError>,
        request: String,
    ) -> Result<Response<client::Body>, TransportError> {
        let response = result.map_err(|error| self.unreachable(error, request))?;
        self.warn(response.headers());
        Ok(response)
    }

    /// Wraps a connection error, so that the client does not retry. kubectl fails immediately.
    fn unreachable(&self, error: TransportError, request: String) -> TransportError {
        match error {
            TransportError::Connect { source, .. } => {
                TransportError::Broken(Box::new(Unreachable { server: self.server.clone(), request, source }))
            }
            other => other,
        }
    }

    /// Returns the method and the URL of a request as Go's errors print them: `Get "https://127.0.0.1:6443/api"`.
    fn request_name(&self, request: &Request<Bytes>) -> String {
        let method = request.method().as_str();
        let (first, rest) = method.split_at(method.len().min(1));
        format!("{first}{} \"{}{}\"", rest.to_lowercase(), self.base, request.uri())
    }

    fn log_request(&self, request: &Request<Bytes>) -> (String, String) {
        let url = format!("{}{}", self.base, request.uri());
        log::request(self.verbosity, &url, request);
        (request.method().to_string(), url)
    }

    /// Prints each warning of the server once.
    fn warn(&self, headers: &HeaderMap) {
        for header in headers.get_all(WARNING) {
            let Some(text) = header.to_str().ok().and_then(warning_text) else { continue };
            let mut known = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
            if known.insert(text.clone()) {
                print_warning(&text);
            }
        }
    }
}

impl Transport for LoggingTransport {
    fn send(&self, request: Request<Bytes>) -> ResponseFuture<'_> {
        Box::pin(self.carry(request))
    }

    fn switch(&self, request: Request<Bytes>) -> Switching<'_> {
        Box::pin(async move {
            self.check_version().await?;
            let line = (self.verbosity >= log::LEVEL_URL).then(|| self.log_request(&request));
            let start = Instant::now();
            let name = self.request_name(&request);
            let answer = self.inner.switch(request).await;
            if let Some((method, url)) = line {
                let status = match &answer {
                    Ok(UpgradeResponse::Switched { head, .. }) => head.status().to_string(),
                    Ok(UpgradeResponse::NotSwitched(response)) => response.status().to_string(),
                    Err(_) => String::new(),
                };
                log::response(self.verbosity, &method, &url, &status, None, start.elapsed());
            }
            answer.map_err(|error| self.unreachable(error, name))
        })
    }
}

/// Prints a warning to standard error, in yellow on a terminal.
pub fn print_warning(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let color = stderr.is_terminal()
        && std::env::var("TERM").is_ok_and(|term| term != "dumb")
        && std::env::var_os("NO_COLOR").is_none();
    let _ = if color {
        writeln!(stderr, "\u{1b}[33;1mWarning:\u{1b}[0m {text}")
    } else {
        writeln!(stderr, "Warning: {text}")
    };
}

/// Returns the text of a header `299 - "text"`, without its escapes.
fn warning_text(header: &str) -> Option<String> {
    let rest = header.strip_prefix("299 ")?;
    let quoted = &rest[rest.find('"')? + 1..];
    let mut text = String::new();
    let mut chars = quoted.chars();
    loop {
        match chars.next()? {
            '\\' => text.push(chars.next()?),
            '"' => return Some(text),
            c => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Responds to each connection with a version.
    async fn serve_version(listener: TcpListener, version: &str) {
        let body = format!(r#"{{"gitVersion":"{version}"}}"#);
        let answer = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn requests_fail_if_the_server_must_have_the_same_version_and_has_another_one() {
        for (version, match_version, expect) in [
            (crate::VERSION, true, None),
            ("v1.35.0", false, None),
            ("v1.35.0", true, Some("server version (v1.35.0) differs from client version (v1.36.4)")),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let server = format!("http://{}", listener.local_addr().unwrap());
            let task = tokio::spawn(serve_version(listener, version));
            let transport =
                LoggingTransport::new(client::Config::new(server.parse().unwrap()), 0, match_version).unwrap();
            let answer = transport.send(Request::get("/api").body(Bytes::new()).unwrap()).await;
            let problem = answer.err().map(|error| crate::Failure::from(error).message);
            assert_eq!(problem.as_deref(), expect);
            task.abort();
        }
    }

    #[test]
    fn warning_headers_are_unquoted() {
        let check = |header: &str, expect: Option<&str>| assert_eq!(warning_text(header).as_deref(), expect);
        check("299 - \"a \\\"b\\\" \\\\c\"", Some("a \"b\" \\c"));
        check("299 kube \"x\" \"Wed, 21 Oct 2015 07:28:00 GMT\"", Some("x"));
        check("199 - \"x\"", None);
        check("299 - \"x", None);
    }
}
