//! Requests with other representations than plain objects: tables, raw paths and streams.

use std::fmt::Display;
use std::time::Duration;

use apimachinery::status::{GroupName, Status};
use apimachinery::{Value, json};
use bytes::{Buf, Bytes, BytesMut};
use client::{Body, Client, ResponseError, TransportError};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::Instant;

use crate::Failure;

/// The representation of objects as tables, or plain if the server has no tables.
pub const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,\
    application/json";
pub const JSON: &str = "application/json";

/// Characters that are not escaped in a query: the unreserved ones, as in Go.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A path with query parameters.
#[derive(Clone, Debug)]
pub struct Path(String);

impl Path {
    pub fn new(path: impl Into<String>) -> Self {
        Self(path.into())
    }

    /// Adds a parameter.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Display) -> Self {
        self.0.push(if self.0.contains('?') { '&' } else { '?' });
        self.0.push_str(name);
        self.0.push('=');
        self.0.extend(utf8_percent_encode(&value.to_string(), QUERY));
        self
    }

    /// Adds a parameter, unless it is empty.
    #[must_use]
    pub fn with_text(self, name: &str, value: &str) -> Self {
        if value.is_empty() { self } else { self.with(name, value) }
    }
}

/// Reads JSON.
pub async fn get(client: &Client, path: Path, accept: &'static str) -> Result<Value, Failure> {
    let response = send(client, Method::GET, path, accept, Bytes::new()).await?;
    let bytes = collect(response.into_body()).await?;
    Ok(json::parse(&bytes).map_err(ResponseError::from)?)
}

/// Sends a request, and fails if the server rejects it.
pub async fn send(
    client: &Client,
    method: Method,
    path: Path,
    accept: &'static str,
    body: Bytes,
) -> Result<Response<Body>, Failure> {
    let has_body = !body.is_empty();
    let request = Request::builder().method(&method).uri(path.0).body(body);
    let mut request = request.map_err(client::Error::from)?;
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static(accept));
    if has_body {
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    }
    let response = client.raw(request).await?;
    if response.status().is_success() {
        return Ok(response);
    }
    let code = response.status().as_u16();
    let bytes = collect(response.into_body()).await?;
    let status = json::parse(&bytes).ok().and_then(|value| Status::from_value(&value)).filter(|status| !status.success);
    Err(Failure::from_status(status.unwrap_or_else(|| {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(2048)]);
        Status::generic(code, method.as_str(), GroupName { group: "", name: "" }, "", text.trim())
    })))
}

pub async fn collect(body: Body) -> Result<Bytes, Failure> {
    Ok(body.collect().await.map_err(TransportError::Broken)?.to_bytes())
}

/// The events of a watch: one JSON document per line.
pub struct Events {
    body: Body,
    buffer: BytesMut,
    /// The end of the watch; `None` for no limit.
    deadline: Option<Instant>,
}

impl Events {
    /// Starts a watch. `path` has the parameters of the watch.
    pub async fn open(client: &Client, path: Path, accept: &'static str) -> Result<Self, Failure> {
        let response = send(client, Method::GET, path.with("watch", true), accept, Bytes::new()).await?;
        Ok(Self { body: response.into_body(), buffer: BytesMut::new(), deadline: None })
    }

    /// Ends the watch after a time; `--request-timeout` also limits watches.
    #[must_use]
    pub fn ending_after(mut self, timeout: Option<Duration>) -> Self {
        self.deadline = timeout.map(|timeout| Instant::now() + timeout);
        self
    }

    /// Whether the watch ended because of its timeout.
    pub fn timed_out(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Returns the type and the object of the next event; `None` after the server closed the watch.
    pub async fn next(&mut self) -> Result<Option<(String, Value)>, Failure> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end);
                self.buffer.advance(1);
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return event(&line).map(Some);
            }
            let frame = match self.deadline {
                None => self.body.frame().await,
                Some(deadline) => match tokio::time::timeout_at(deadline, self.body.frame()).await {
                    Ok(frame) => frame,
                    Err(_) => return Ok(None),
                },
            };
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(TransportError::Broken(error).into()),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

fn event(line: &[u8]) -> Result<(String, Value), Failure> {
    let mut event = json::parse(line).map_err(ResponseError::from)?;
    let kind = event.str_at(&["type"]).unwrap_or_default().to_owned();
    let object = event.get_mut("object").map(Value::take).unwrap_or_default();
    if kind == "ERROR" {
        let status = Status::from_value(&object);
        return Err(status.map_or_else(|| Failure::new("the watch failed without a reason"), Failure::from_status));
    }
    Ok((kind, object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_escaped() {
        let path = Path::new("/a").with("x", "b c&d").with_text("y", "").with("z", 1);
        assert_eq!(path.0, "/a?x=b%20c%26d&z=1");
        assert_eq!(Path::new("/a?b=c").with("d", "e").0, "/a?b=c&d=e");
    }
}
