//! The transport of all requests: prints warnings of the server and logs requests by verbosity.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use client::transport::{Answer, Switching};
use client::{Https, Switch, Transport, TransportError};
use http::header::{HeaderMap, HeaderName, WARNING};
use http::{Request, Response};

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

/// Levels of `-v`, as kubectl's.
const LEVEL_URL: i64 = 6;
const LEVEL_HEADERS: i64 = 7;
const LEVEL_BODIES: i64 = 8;
/// Bodies are cut to this length below level 10.
const BODY_MAX: usize = 1024;

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
        let line = (self.verbosity >= LEVEL_URL).then(|| self.log_request(&request));
        let start = Instant::now();
        let answer = self.inner.send(request).await;
        if let Some((method, url)) = line {
            let status = answer.as_ref().map_or_else(|_| String::new(), |response| response.status().to_string());
            self.log_response(&method, &url, &status, start);
        }
        match answer {
            Ok(response) => {
                self.warn(response.headers());
                if self.verbosity >= LEVEL_BODIES {
                    log_headers("Response Headers", response.headers());
                }
                Ok(response)
            }
            Err(error) => Err(self.unreachable(error)),
        }
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

    fn log_response(&self, method: &str, url: &str, status: &str, start: Instant) {
        let milliseconds = start.elapsed().as_millis();
        log(format_args!(
            "\"Response\" verb=\"{method}\" url=\"{url}\" status=\"{status}\" milliseconds={milliseconds}"
        ));
    }

    fn log_request(&self, request: &Request<Bytes>) -> (String, String) {
        let url = format!("{}{}", self.base, request.uri());
        let method = request.method().to_string();
        if self.verbosity >= LEVEL_BODIES && !request.body().is_empty() {
            let body = String::from_utf8_lossy(request.body());
            let shown: String =
                if self.verbosity < 10 { body.chars().take(BODY_MAX).collect() } else { body.into_owned() };
            log(format_args!("\"Request Body\" body={shown:?}"));
        }
        if self.verbosity >= LEVEL_HEADERS {
            log(format_args!("\"Request\" verb=\"{method}\" url=\"{url}\""));
            log_headers("Request Headers", request.headers());
        }
        (method, url)
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
    fn send(&self, request: Request<Bytes>) -> Answer<'_> {
        Box::pin(self.carry(request))
    }

    fn switch(&self, request: Request<Bytes>) -> Switching<'_> {
        Box::pin(async move {
            let line = (self.verbosity >= LEVEL_URL).then(|| self.log_request(&request));
            let start = Instant::now();
            let answer = self.inner.switch(request).await;
            if let Some((method, url)) = line {
                let status = match &answer {
                    Ok(Switch::Switched { head, .. }) => head.status().to_string(),
                    Ok(Switch::Refused(response)) => response.status().to_string(),
                    Err(_) => String::new(),
                };
                self.log_response(&method, &url, &status, start);
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

fn log(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

fn log_headers(title: &str, headers: &HeaderMap) {
    log(format_args!("{title}:"));
    for (name, value) in headers {
        let text =
            if secret(name) { "<masked>".to_owned() } else { String::from_utf8_lossy(value.as_bytes()).into_owned() };
        log(format_args!("    {name}: {text}"));
    }
}

fn secret(name: &HeaderName) -> bool {
    matches!(name.as_str(), "authorization" | "cookie" | "set-cookie" | "proxy-authorization")
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
