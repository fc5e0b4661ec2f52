//! The transport of all requests: prints warnings of the server and logs requests by verbosity.

pub mod log;

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use client::transport::{ResponseFuture, Switching};
use client::{Https, Transport, TransportError, UpgradeResponse};
use http::header::{HeaderMap, WARNING};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};

use crate::failure::Unreachable;

/// Sends requests over HTTPS.
pub struct Observed {
    inner: Https,
    /// `host:port` of the server.
    server: String,
    base: String,
    verbosity: i64,
    warnings: Mutex<BTreeSet<String>>,
}

impl Observed {
    pub fn new(config: client::Config, verbosity: i64) -> Result<Self, TransportError> {
        let server = config.server.authority().map(ToString::to_string).unwrap_or_default();
        let base = config.server.to_string().trim_end_matches('/').to_owned();
        Ok(Self { inner: Https::new(config)?, server, base, verbosity, warnings: Mutex::default() })
    }

    /// Returns the number of different warnings.
    pub fn warnings(&self) -> usize {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    async fn carry(&self, request: Request<Bytes>) -> Result<Response<client::Body>, TransportError> {
        let line = (self.verbosity >= log::LEVEL_URL).then(|| self.log_request(&request));
        let start = Instant::now();
        let answer = self.inner.send(request).await;
        let Some((method, url)) = line else {
            return self.answered(answer);
        };
        let status = answer.as_ref().map_or_else(|_| String::new(), |response| response.status().to_string());
        let head = answer.as_ref().ok().map(Response::headers);
        log::response(self.verbosity, &method, &url, &status, head, start.elapsed());
        let response = self.answered(answer)?;
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

    fn answered(
        &self,
        answer: Result<Response<client::Body>, TransportError>,
    ) -> Result<Response<client::Body>, TransportError> {
        let response = answer.map_err(|error| self.unreachable(error))?;
        self.warn(response.headers());
        Ok(response)
    }

    /// Hides a missing connection from the client, which would retry. kubectl fails at once.
    fn unreachable(&self, error: TransportError) -> TransportError {
        match error {
            TransportError::Connect { source, .. } => {
                TransportError::Broken(Box::new(Unreachable { server: self.server.clone(), source }))
            }
            other => other,
        }
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

impl Transport for Observed {
    fn send(&self, request: Request<Bytes>) -> ResponseFuture<'_> {
        Box::pin(self.carry(request))
    }

    fn switch(&self, request: Request<Bytes>) -> Switching<'_> {
        Box::pin(async move {
            let line = (self.verbosity >= log::LEVEL_URL).then(|| self.log_request(&request));
            let start = Instant::now();
            let answer = self.inner.switch(request).await;
            if let Some((method, url)) = line {
                let status = match &answer {
                    Ok(UpgradeResponse::Switched { head, .. }) => head.status().to_string(),
                    Ok(UpgradeResponse::NotSwitched(response)) => response.status().to_string(),
                    Err(_) => String::new(),
                };
                log::response(self.verbosity, &method, &url, &status, None, start.elapsed());
            }
            answer.map_err(|error| self.unreachable(error))
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
    use super::*;

    #[test]
    fn warning_headers_are_unquoted() {
        let check = |header: &str, expect: Option<&str>| assert_eq!(warning_text(header).as_deref(), expect);
        check("299 - \"a \\\"b\\\" \\\\c\"", Some("a \"b\" \\c"));
        check("299 kube \"x\" \"Wed, 21 Oct 2015 07:28:00 GMT\"", Some("x"));
        check("199 - \"x\"", None);
        check("299 - \"x", None);
    }
}
