//! The protobuf envelope of an object (`runtime.Unknown`): four magic bytes and a message with the object's type.

use super::wire::{BYTES, Reader, close, expect, put_bytes, put_tag};
use super::{Error, Problem};
use crate::Path;

/// The first bytes of every object.
pub const MAGIC: &[u8; 4] = b"k8s\0";

/// The type of an object, and its message (upstream's `runtime.Unknown`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// `apps/v1`
    pub api_version: &'a str,
    /// `Deployment`
    pub kind: &'a str,
    pub raw: &'a [u8],
    /// The compression of the message; empty if not compressed.
    pub content_encoding: &'a str,
    /// The media type of the message; empty for protobuf.
    pub content_type: &'a str,
}

impl<'a> Envelope<'a> {
    pub fn is_in(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
    }

    pub fn decode(bytes: &'a [u8]) -> Result<Self, Error> {
        let at = |field: &'static str| move |problem| Error::new(&Path::of(field), problem);
        let root = at("");
        let mut reader = Reader::new(bytes.strip_prefix(MAGIC).ok_or(Problem::Magic).map_err(root)?);
        let mut envelope = Self::default();
        while let Some((number, wire)) = reader.field().map_err(root)? {
            let field = match number {
                1 => "typeMeta",
                2 => "raw",
                3 => "contentEncoding",
                4 => "contentType",
                _ => {
                    reader.skip(wire).map_err(root)?;
                    continue;
                }
            };
            let bytes = expect(BYTES, wire).and_then(|()| reader.bytes()).map_err(at(field))?;
            match number {
                1 => envelope.type_meta(bytes).map_err(at(field))?,
                2 => envelope.raw = bytes,
                3 => envelope.content_encoding = text(bytes),
                _ => envelope.content_type = text(bytes),
            }
        }
        Ok(envelope)
    }

    /// Appends the magic bytes and the envelope.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.raw.len() + self.api_version.len() + self.kind.len() + 32);
        out.extend_from_slice(MAGIC);
        put_tag(out, 1, BYTES);
        out.push(0);
        let start = out.len();
        put_bytes(out, 1, self.api_version.as_bytes());
        put_bytes(out, 2, self.kind.as_bytes());
        close(out, start);
        // Go writes an empty message, which is equivalent to an absent one.
        put_bytes(out, 2, self.raw);
        put_bytes(out, 3, self.content_encoding.as_bytes());
        put_bytes(out, 4, self.content_type.as_bytes());
    }

    fn type_meta(&mut self, bytes: &'a [u8]) -> Result<(), Problem> {
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.field()? {
            match number {
                1 | 2 => {
                    expect(BYTES, wire)?;
                    let text = text(reader.bytes()?);
                    *(if number == 1 { &mut self.api_version } else { &mut self.kind }) = text;
                }
                _ => reader.skip(wire)?,
            }
        }
        Ok(())
    }
}

/// Returns the text; empty if it is not UTF-8, which names no kind or encoding.
fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap_or_default()
}
