//! Kubernetes protobuf: schema-driven decoding to a tree and encoding from a tree.
//!
//! Decoding gives the JSON that Go prints for the message: fields that Go always writes have their zero value, fields
//! that Go omits when empty are absent. Encoding gives the bytes of Go's generated code: field numbers ascending, map
//! keys sorted, non-pointer scalars even if zero, lists of numbers unpacked.
//!
//! An object on the wire is an [`Envelope`] around its message, because the message itself does not contain its type.

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

/// Finds the schema of a kind, for objects embedded in other objects.
pub type Kinds<'a> = dyn Fn(&GroupVersionKind) -> Option<Schema<'a>> + 'a;

/// Maximum nesting depth of lists and objects: the same as in JSON, so that each form can be converted to the other.
pub const DEPTH_MAX: usize = 127;

/// Decodes an object in its envelope, which supplies `apiVersion` and `kind`.
pub fn decode_object(bytes: &[u8], kinds: &Kinds<'_>) -> Result<Value, Error> {
    decode::object(bytes, kinds, &crate::Path::ROOT, 0)
}

/// Encodes an object in an envelope with the object's `apiVersion` and `kind`.
pub fn encode_object(object: &Value, schema: Schema<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
    let mut raw = Vec::with_capacity(1024);
    encode(object, schema, &mut raw)?;
    let text = |key| object.get(key).and_then(Value::as_str).unwrap_or_default();
    Envelope { api_version: text("apiVersion"), kind: text("kind"), raw: &raw, ..Envelope::default() }.encode(out);
    Ok(())
}

/// Encodes one frame of a protobuf watch stream: a 4-byte big-endian length and a bare `WatchEvent` message.
///
/// Only `object`, the embedded object, is in the `k8s\0` envelope. client-go rejects a stream in which the event itself
/// has one.
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
