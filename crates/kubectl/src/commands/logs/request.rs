//! Requests for logs, and the printing of their lines.

use std::io::Write;

use apimachinery::meta::Meta;
use apimachinery::status::{GroupName, Status};
use apimachinery::time::Time;
use apimachinery::{Value, json};
use bytes::Bytes;
use client::transport::LongLived;
use client::{Client, TransportError};
use http::Request;
use http_body_util::BodyExt;

use crate::stream::path::subresource_path;
use crate::{Failure, Invocation};

/// Lines that are longer are printed in pieces.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Maximum size of a rejection that is read.
const REJECTION_BYTES_MAX: usize = 64 << 10;
/// The lines of each log if a selector chooses them.
const SELECTOR_TAIL: i64 = 10;

/// The options of `PodLogOptions`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogOptions {
    /// Empty for the default container.
    pub container: String,
    pub follow: bool,
    pub previous: bool,
    pub timestamps: bool,
    pub skip_tls_verify_backend: bool,
    pub since_time: Option<Time>,
    pub since_seconds: Option<i64>,
    pub limit_bytes: Option<i64>,
    pub tail_lines: Option<i64>,
}

/// A log of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRequest {
    namespace: String,
    pod: String,
    container: String,
}

impl LogOptions {
    pub fn of(invocation: &Invocation, inline_container: Option<&str>) -> Result<Self, String> {
        let since = crate::flags::parse_duration(invocation.text("since")).unwrap_or(0);
        let since_time = match invocation.text("since-time") {
            "" => None,
            text => Some(Time::parse(text).map_err(|error| error.to_string())?),
        };
        let tail = invocation.int("tail");
        let selected = !invocation.text("selector").is_empty() && tail == -1 && !invocation.is_set("tail");
        Ok(Self {
            container: inline_container.unwrap_or(invocation.text("container")).to_owned(),
            follow: invocation.bool("follow"),
            previous: invocation.bool("previous"),
            timestamps: invocation.bool("timestamps"),
            skip_tls_verify_backend: invocation.bool("insecure-skip-tls-verify-backend"),
            since_time,
            since_seconds: Some(round_to_seconds(since)).filter(|_| since != 0),
            limit_bytes: Some(invocation.int("limit-bytes")).filter(|bytes| *bytes != 0),
            tail_lines: if selected { Some(SELECTOR_TAIL) } else { Some(tail).filter(|lines| *lines != -1) },
        })
    }

    /// Returns the query of a request for a container's log.
    fn query(&self, container: &str) -> Vec<(&'static str, String)> {
        let mut query = vec![("container", container.to_owned())];
        let switches = [
            ("follow", self.follow),
            ("insecureSkipTLSVerifyBackend", self.skip_tls_verify_backend),
            ("previous", self.previous),
            ("timestamps", self.timestamps),
        ];
        query.extend(switches.into_iter().filter(|(_, on)| *on).map(|(name, _)| (name, "true".to_owned())));
        let numbers =
            [("limitBytes", self.limit_bytes), ("sinceSeconds", self.since_seconds), ("tailLines", self.tail_lines)];
        query.extend(numbers.into_iter().filter_map(|(name, number)| Some((name, number?.to_string()))));
        query.extend(self.since_time.map(|time| ("sinceTime", time.to_string())));
        query.sort_unstable();
        query
    }
}

/// Rounds nanoseconds to seconds, halves away from zero.
fn round_to_seconds(nanos: i64) -> i64 {
    const SECOND: i64 = 1_000_000_000;
    nanos.saturating_add(nanos.signum() * (SECOND / 2)) / SECOND
}

impl LogRequest {
    pub fn new(pod: &Value, container: &str) -> Self {
        let meta = Meta::of(pod);
        let (namespace, pod) = (meta.namespace().to_owned(), meta.name().to_owned());
        Self { namespace, pod, container: container.to_owned() }
    }

    /// Returns the prefix of each line with `--prefix`.
    pub fn prefix(&self) -> String {
        format!("[pod/{}/{}] ", self.pod, self.container)
    }
}

/// Prints the lines of a log as they arrive, each in one piece so that concurrent logs do not mix within a line.
pub(super) async fn print(
    client: &Client,
    request: &LogRequest,
    options: &LogOptions,
    prefix: &str,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let query = options.query(&request.container);
    let query: Vec<(&str, &str)> = query.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let path = subresource_path(&request.namespace, &request.pod, "log", &query)?;
    let mut http = Request::get(path).body(Bytes::new()).map_err(client::Error::from)?;
    http.extensions_mut().insert(LongLived);
    let response = client.raw(http).await?;
    let status = response.status();
    let mut body = response.into_body();
    if !status.is_success() {
        let mut bytes = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            bytes.extend_from_slice(&frame.into_data().unwrap_or_default());
            if bytes.len() > REJECTION_BYTES_MAX {
                break;
            }
        }
        return Err(rejection(status.as_u16(), &bytes, request));
    }
    let mut lines = Lines::new(prefix);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(TransportError::Broken)?;
        if let Ok(bytes) = frame.into_data() {
            lines.write(&bytes, out)?;
            out.flush()?;
        }
    }
    lines.finish(out)?;
    out.flush()?;
    Ok(())
}

fn rejection(code: u16, bytes: &[u8], request: &LogRequest) -> Failure {
    let status = json::parse(bytes).ok().and_then(|value| Status::from_value(&value));
    Failure::from_status(status.unwrap_or_else(|| {
        let pods = GroupName { group: "", name: "pods" };
        Status::generic(code, "GET", pods, &request.pod, String::from_utf8_lossy(bytes).trim())
    }))
}

/// Splits bytes into lines with a prefix.
struct Lines<'a> {
    prefix: &'a str,
    rest: Vec<u8>,
    /// Whether the start of the current line was already written.
    started: bool,
}

impl<'a> Lines<'a> {
    const fn new(prefix: &'a str) -> Self {
        Self { prefix, rest: Vec::new(), started: false }
    }

    fn write(&mut self, bytes: &[u8], out: &mut impl Write) -> std::io::Result<()> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.rest.len() > LINE_BYTES_MAX {
                self.finish(out)?;
                self.started = !piece.ends_with(b"\n");
            }
        }
        Ok(())
    }

    /// Writes the rest of the current line.
    fn finish(&mut self, out: &mut impl Write) -> std::io::Result<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        if !self.started {
            out.write_all(self.prefix.as_bytes())?;
        }
        self.started = true;
        out.write_all(&self.rest)?;
        self.rest.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_lines_are_written_with_a_prefix() {
        let check = |pieces: &[&str], expect: &str| {
            let mut lines = Lines::new("> ");
            let mut out = Vec::new();
            for piece in pieces {
                lines.write(piece.as_bytes(), &mut out).unwrap();
            }
            lines.finish(&mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expect, "{pieces:?}");
        };
        check(&["a\nb\n"], "> a\n> b\n");
        check(&["a", "b\nc", "\n"], "> ab\n> c\n");
        check(&["a\n\nb"], "> a\n> \n> b");
        check(&[], "");
        let mut lines = Lines::new("> ");
        let mut out = Vec::new();
        lines.write(b"half", &mut out).unwrap();
        assert!(out.is_empty(), "an incomplete line is buffered");
        lines.write(&vec![b'x'; LINE_BYTES_MAX + 1], &mut out).unwrap();
        lines.write(b"end\nnext\n", &mut out).unwrap();
        assert!(out.starts_with(b"> halfxx") && out.ends_with(b"xxend\n> next\n"));
    }

    #[test]
    fn options_become_query_parameters() {
        let options = LogOptions {
            follow: true,
            tail_lines: Some(3),
            since_time: Some(Time::parse("2026-11-18T10:00:00+01:00").unwrap()),
            ..LogOptions::default()
        };
        let query: Vec<String> =
            options.query("c").into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(query.join("&"), "container=c&follow=true&sinceTime=2026-11-18T09:00:00Z&tailLines=3");
    }

    #[test]
    fn durations_are_rounded_to_seconds() {
        for (nanos, expect) in [(1_400_000_000, 1), (1_500_000_000, 2), (-1_500_000_000, -2), (499_999_999, 0)] {
            assert_eq!(round_to_seconds(nanos), expect, "{nanos}");
        }
    }
}
