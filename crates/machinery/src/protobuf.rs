//! Kubernetes protobuf to tree and back, by schema.
//!
//! Decoding gives the JSON that Go prints for the message: fields it always writes are there with their zero value,
//! those that it leaves out when empty are not. Encoding gives the bytes that Go's generated code writes: numbers
//! ascending, map keys sorted, a scalar that is no pointer even if it is zero, lists of numbers unpacked.
//!
//! An object on the wire is an [`Envelope`] around its message, because the message itself does not say what it is.

mod decode;
mod encode;
mod envelope;
mod error;
mod wire;

use crate::{GroupVersionKind, Schema, Value};

pub use decode::{decode, decode_with};
pub use encode::encode;
pub use envelope::{Envelope, MAGIC};
pub use error::{Error, Problem};

/// Finds the schema of a kind, to understand an object that stands inside another one.
pub type Kinds<'a> = dyn Fn(&GroupVersionKind) -> Option<Schema<'a>> + 'a;

/// How many lists and objects may stand inside each other: as many as in JSON, so that what is read from one can be
/// written as the other.
pub const DEPTH_MAX: usize = 127;

/// Reads an object in its envelope; its `apiVersion` and `kind` are what the envelope says.
pub fn decode_object(bytes: &[u8], kinds: &Kinds<'_>) -> Result<Value, Error> {
    decode::object(bytes, kinds, &crate::Path::ROOT, 0)
}

/// Writes an object in an envelope that says what the object says it is.
pub fn encode_object(object: &Value, schema: Schema<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
    let mut raw = Vec::with_capacity(1024);
    encode(object, schema, &mut raw)?;
    let text = |key| object.get(key).and_then(Value::as_str).unwrap_or_default();
    Envelope { api_version: text("apiVersion"), kind: text("kind"), raw: &raw, ..Envelope::default() }.encode(out);
    Ok(())
}

/// Encodes one frame of a protobuf watch stream: a 4-byte big-endian length and a bare `WatchEvent` message.
///
/// Only `object`, the embedded object, is in the `k8s\0` envelope. client-go rejects a stream in which the event itself has one.
pub fn watch_frame(event_type: &str, object: &[u8]) -> Vec<u8> {
    let mut raw_extension = Vec::with_capacity(object.len() + 8);
    wire::put_bytes(&mut raw_extension, 1, object);
    let mut frame = Vec::with_capacity(raw_extension.len() + 32);
    frame.extend_from_slice(&[0; 4]);
    wire::put_bytes(&mut frame, 1, event_type.as_bytes());
    wire::put_bytes(&mut frame, 2, &raw_extension);
    let length = u32::try_from(frame.len() - 4).expect("objects are limited to a few megabytes");
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame
}

#[cfg(test)]
mod tests;
