//! A watch as a stream of events, cut out of the bytes of an answer that does not end.

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use machinery::meta::Meta;
use machinery::status::Status;
use machinery::{Value, json};
use memchr::{memchr2, memchr3};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::error::{AnswerError, Error};
use crate::held::{Held, News};
use crate::transport::{Body, TransportError};

/// The annotation of the bookmark after which a watch tells changes, not what was there before.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// What a watch tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The object is new, or newly within what is watched.
    Added(Value),
    /// The object changed.
    Modified(Value),
    /// The object is gone, or no longer within what is watched. This is its last state, at the version of its end.
    Deleted(Value),
    /// Everything up to this version was told.
    Bookmark {
        /// The version.
        resource_version: String,
        /// All that was there at the beginning has been told.
        initial_events_end: bool,
    },
}

/// A running watch. It ends when it is dropped.
pub struct Watch {
    body: Body,
    frames: Frames,
    /// A peer that vanished without a word ends no stream: we do, some time after the server should have.
    deadline: Option<Instant>,
    ended: bool,
    /// Where objects come as they are; the body then only tells what failed.
    objects: Option<mpsc::Receiver<News>>,
}

impl Watch {
    pub(crate) fn new(body: Body, event_bytes_max: usize, deadline: Option<Instant>) -> Self {
        Self { body, frames: Frames::new(event_bytes_max), deadline, ended: false, objects: None }
    }

    pub(crate) fn with_objects(self, objects: Option<mpsc::Receiver<News>>) -> Self {
        Self { objects, ..self }
    }

    /// The next event for a cache, its object made by `make` unless it came as it is; otherwise as [`Watch::next`].
    pub(crate) async fn news(&mut self, make: impl FnOnce(Value) -> Held) -> Option<Result<News, Error>> {
        if let Some(objects) = &mut self.objects {
            let news = match self.deadline {
                Some(deadline) => timeout_at(deadline, objects.recv()).await.ok().flatten(),
                None => objects.recv().await,
            };
            if let Some(news) = news {
                return Some(Ok(news));
            }
            // What is left is why there are no more.
            self.objects = None;
        }
        self.next().await.map(|event| event.map(|event| News::of(event, make)))
    }

    /// The next event; `None` when the server has ended the watch. After an error there is nothing more.
    ///
    /// May be dropped and called again without losing an event.
    pub async fn next(&mut self) -> Option<Result<Event, Error>> {
        while !self.ended {
            match self.frames.next() {
                Ok(Some(frame)) => return Some(read(&frame).inspect_err(|_| self.ended = true)),
                Ok(None) => {}
                Err(error) => return self.fail(error),
            }
            match self.more().await {
                Ok(Some(bytes)) => self.frames.push(&bytes),
                Ok(None) if self.frames.is_between() => self.ended = true,
                Ok(None) => return self.fail(AnswerError::Truncated),
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
                // Trailers say nothing that we want to know.
                Some(Err(_)) => {}
            }
        }
    }

    fn fail(&mut self, error: impl Into<Error>) -> Option<Result<Event, Error>> {
        self.ended = true;
        Some(Err(error.into()))
    }
}

fn read(frame: &[u8]) -> Result<Event, Error> {
    let mut event = json::parse(frame).map_err(AnswerError::from)?;
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
            let unreadable = || AnswerError::Unexpected("a watch ended with an error that is no Status".to_owned());
            return Err(Status::from_value(&object).ok_or_else(unreadable)?.into());
        }
        other => return Err(AnswerError::Unexpected(format!("a watch told an event of type {other:?}")).into()),
    };
    Ok(event)
}

/// Cuts a stream of JSON objects into its objects, whatever stands between them and however the bytes are cut.
struct Frames {
    bytes: BytesMut,
    bytes_max: usize,
    /// How far `bytes` have been looked at, and what was seen up to there.
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

    /// Whether nothing has begun that has not ended.
    fn is_between(&self) -> bool {
        self.depth == 0
    }

    fn next(&mut self) -> Result<Option<Bytes>, AnswerError> {
        if self.is_between() {
            let blank = self.bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')).count();
            self.bytes.advance(blank);
            if self.bytes.first().is_some_and(|byte| *byte != b'{') {
                return Err(AnswerError::Unexpected("a watch told something that is no event".to_owned()));
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
            return Err(AnswerError::TooLarge(self.bytes_max));
        }
        Ok(None)
    }

    /// How far ahead the next byte is that means something where it stands.
    fn marked(&self) -> Option<usize> {
        let ahead = &self.bytes[self.seen..];
        if self.escaped {
            return (!ahead.is_empty()).then_some(0);
        }
        if self.in_string { memchr2(b'"', b'\\', ahead) } else { memchr3(b'"', b'{', b'}', ahead) }
    }
}

#[cfg(test)]
mod tests {
    use machinery::value;
    use proptest::prelude::*;

    use super::*;

    fn frames(chunks: &[&[u8]]) -> Result<Vec<String>, AnswerError> {
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
        fn events_are_the_same_however_the_bytes_are_cut(cuts in prop::collection::vec(0usize..60, 0..6)) {
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
    fn garbage_between_events_and_endless_events_are_errors() {
        assert!(matches!(frames(&[b"<html>"]), Err(AnswerError::Unexpected(_))));
        assert!(matches!(frames(&[b"{\"a\":\"", &[b'x'; 100]]), Err(AnswerError::TooLarge(64))));
    }

    #[test]
    fn an_event_is_read_as_what_it_tells() {
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
