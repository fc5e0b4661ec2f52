//! Watch: a stream of events, parsed from the body of an unbounded response.

use apimachinery::meta::Meta;
use apimachinery::status::Status;
use apimachinery::{Key, Value, json};
use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use memchr::{memchr2, memchr3};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::error::{Error, ResponseError};
use crate::shared_objects::{SharedEvent, SharedObject};
use crate::transport::{Body, TransportError};

/// The annotation of the bookmark after the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// An event of a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The object was created, or now matches the selectors.
    Added(Value),
    Modified(Value),
    /// The object was deleted, or no longer matches the selectors. The value is its last state, at the version of the
    /// deletion.
    Deleted(Value),
    /// All events up to this version were sent.
    Bookmark {
        resource_version: String,
        /// All initial events were sent.
        initial_events_end: bool,
    },
}

/// A running watch, cancelled on drop.
pub struct Watch {
    body: Body,
    frames: Frames,
    /// Local timeout after the server's own: a vanished peer does not close the stream.
    deadline: Option<Instant>,
    closed: bool,
    /// The channel of shared objects; the body then contains only errors.
    objects: Option<mpsc::Receiver<SharedEvent>>,
}

impl Watch {
    pub(crate) fn new(body: Body, event_bytes_max: usize, deadline: Option<Instant>) -> Self {
        Self { body, frames: Frames::new(event_bytes_max), deadline, closed: false, objects: None }
    }

    pub(crate) fn with_objects(self, objects: Option<mpsc::Receiver<SharedEvent>>) -> Self {
        Self { objects, ..self }
    }

    /// Like [`Watch::next`], for a cache: shared objects are passed through, parsed ones are converted by `make`.
    pub(crate) async fn next_shared(
        &mut self,
        make: impl FnOnce(Value) -> SharedObject,
    ) -> Option<Result<SharedEvent, Error>> {
        if let Some(objects) = &mut self.objects {
            let shared_event = match self.deadline {
                Some(deadline) => timeout_at(deadline, objects.recv()).await.ok().flatten(),
                None => objects.recv().await,
            };
            if let Some(shared_event) = shared_event {
                return Some(Ok(shared_event));
            }
            // The channel is closed. The body contains the error, if any.
            self.objects = None;
        }
        self.next().await.map(|event| event.map(|event| shared(event, make)))
    }

    /// Returns the next event; `None` after the server closed the watch. No events follow an error.
    ///
    /// Cancel safe: no event is lost.
    pub async fn next(&mut self) -> Option<Result<Event, Error>> {
        while !self.closed {
            match self.frames.next() {
                Ok(Some(frame)) => return Some(read(&frame).inspect_err(|_| self.closed = true)),
                Ok(None) => {}
                Err(error) => return self.fail(error),
            }
            match self.more().await {
                Ok(Some(bytes)) => self.frames.push(&bytes),
                Ok(None) if self.frames.is_between() => self.closed = true,
                Ok(None) => return self.fail(ResponseError::Truncated),
                Err(error) => return self.fail(TransportError::Broken(error)),
            }
        }
        None
    }

    async fn more(&mut self) -> Result<Option<Bytes>, crate::transport::BoxError> {
        loop {
            let frame = match self.deadline {
                Some(deadline) => match timeout_at(deadline, self.body.frame()).await {
                    Ok(frame) => frame,
                    Err(_) => return Ok(None),
                },
                None => self.body.frame().await,
            };
            match frame.transpose()?.map(http_body::Frame::into_data) {
                None => return Ok(None),
                Some(Ok(bytes)) => return Ok(Some(bytes)),
                // Trailers are ignored.
                Some(Err(_)) => {}
            }
        }
    }

    fn fail(&mut self, error: impl Into<Error>) -> Option<Result<Event, Error>> {
        self.closed = true;
        Some(Err(error.into()))
    }
}

fn read(frame: &[u8]) -> Result<Event, Error> {
    let mut event = json::parse(frame).map_err(ResponseError::from)?;
    let object = event.get_mut("object").map(Value::take).unwrap_or_default();
    let kind = event.get("type").and_then(Value::as_str).unwrap_or_default();
    let event = match kind {
        "ADDED" => Event::Added(object),
        "MODIFIED" => Event::Modified(object),
        "DELETED" => Event::Deleted(object),
        "BOOKMARK" => {
            let meta = Meta::of(&object);
            Event::Bookmark {
                resource_version: meta.resource_version().to_owned(),
                initial_events_end: meta.annotation(INITIAL_EVENTS_END) == Some("true"),
            }
        }
        "ERROR" => {
            let unreadable = || ResponseError::Unexpected("the error event of a watch is not a Status".to_owned());
            return Err(Status::from_value(&object).ok_or_else(unreadable)?.into());
        }
        other => return Err(ResponseError::Unexpected(format!("unexpected watch event type {other:?}")).into()),
    };
    Ok(event)
}

/// Splits a stream of JSON objects, independent of separators and chunk boundaries.
struct Frames {
    bytes: BytesMut,
    bytes_max: usize,
    /// The number of scanned bytes, followed by the state of the scanner.
    seen: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Frames {
    fn new(bytes_max: usize) -> Self {
        Self { bytes: BytesMut::new(), bytes_max, seen: 0, depth: 0, in_string: false, escaped: false }
    }

    fn push(&mut self, more: &[u8]) {
        self.bytes.extend_from_slice(more);
    }

    /// Whether the scanner is between two objects.
    fn is_between(&self) -> bool {
        self.depth == 0
    }

    fn next(&mut self) -> Result<Option<Bytes>, ResponseError> {
        if self.is_between() {
            let blank = self.bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')).count();
            self.bytes.advance(blank);
            if self.bytes.first().is_some_and(|byte| *byte != b'{') {
                return Err(ResponseError::Unexpected("unexpected data between watch events".to_owned()));
            }
        }
        while let Some(ahead) = self.marked() {
            self.seen += ahead + 1;
            match self.bytes[self.seen - 1] {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                b'{' => self.depth += 1,
                _ => self.depth -= 1,
            }
            if self.depth == 0 {
                let frame = self.bytes.split_to(self.seen).freeze();
                self.seen = 0;
                return Ok(Some(frame));
            }
        }
        self.seen = self.bytes.len();
        if self.bytes.len() > self.bytes_max {
            return Err(ResponseError::TooLarge(self.bytes_max));
        }
        Ok(None)
    }

    /// Returns the distance to the next significant byte in the current state.
    fn marked(&self) -> Option<usize> {
        let ahead = &self.bytes[self.seen..];
        if self.escaped {
            return (!ahead.is_empty()).then_some(0);
        }
        if self.in_string { memchr2(b'"', b'\\', ahead) } else { memchr3(b'"', b'{', b'}', ahead) }
    }
}

/// Converts a parsed event to one of shared objects, which `make` returns.
fn shared(event: Event, make: impl FnOnce(Value) -> SharedObject) -> SharedEvent {
    match event {
        Event::Added(object) | Event::Modified(object) => SharedEvent::Applied(make(object)),
        Event::Deleted(object) => {
            let revision = Meta::of(&object).resource_version().parse().unwrap_or(0);
            SharedEvent::Deleted { key: Key::of(&object), revision }
        }
        Event::Bookmark { resource_version, initial_events_end } => {
            SharedEvent::Bookmark { resource_version, initial_events_end }
        }
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;
    use proptest::prelude::*;

    use super::*;

    fn frames(chunks: &[&[u8]]) -> Result<Vec<String>, ResponseError> {
        let mut frames = Frames::new(64);
        let mut out = Vec::new();
        for chunk in chunks {
            frames.push(chunk);
            while let Some(frame) = frames.next()? {
                out.push(String::from_utf8(frame.to_vec()).unwrap());
            }
        }
        Ok(out)
    }

    proptest! {
        #[test]
        fn events_do_not_depend_on_chunk_boundaries(cuts in prop::collection::vec(0usize..60, 0..6)) {
            let text = br#"{"a":"}\"{"} {"b":{"c":"\\"}}{"d":[{}]}"#;
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            let expect = [r#"{"a":"}\"{"}"#, r#"{"b":{"c":"\\"}}"#, r#"{"d":[{}]}"#];
            prop_assert_eq!(frames(&chunks).unwrap(), expect);
        }
    }

    #[test]
    fn garbage_between_events_and_oversized_events_are_errors() {
        assert!(matches!(frames(&[b"<html>"]), Err(ResponseError::Unexpected(_))));
        assert!(matches!(frames(&[b"{\"a\":\"", &[b'x'; 100]]), Err(ResponseError::TooLarge(64))));
    }

    #[test]
    fn events_are_parsed_by_type() {
        let event = read(br#"{"type":"MODIFIED","object":{"a":1}}"#).unwrap();
        assert_eq!(event, Event::Modified(value!({"a": 1})));
        let bookmark = br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7",
            "annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
        let expect = Event::Bookmark { resource_version: "7".into(), initial_events_end: true };
        assert_eq!(read(bookmark).unwrap(), expect);
        let error =
            read(br#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410}}"#);
        assert!(error.unwrap_err().is_expired());
        assert!(read(br#"{"type":"NEWS","object":{}}"#).is_err());
    }
}
