//! Object codec for JSON, YAML and Kubernetes protobuf, with detection of the encoding.

use std::fmt;

use apimachinery::{GroupVersionKind, Value, conform, gvk, json, protobuf, yaml};

use crate::catalogue;

/// Encodes JSON like the upstream API server: built-in kinds in the order of their Go fields, others sorted.
pub const JSON: json::Encoder = json::Encoder::new(catalogue::find);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Concatenated JSON values.
    Json,
    /// Documents separated by `---`.
    Yaml,
    /// One envelope. Several envelopes are each preceded by their length as four bytes, as in Kubernetes watch streams.
    Protobuf,
}

/// Decoding or encoding failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no object in the input")]
    Empty,
    #[error("cannot read JSON")]
    Json(#[from] json::Error),
    #[error("cannot read YAML")]
    Yaml(#[from] yaml::Error),
    #[error("the input is neither JSON nor YAML nor Kubernetes protobuf")]
    Bytes(#[from] std::str::Utf8Error),
    /// The protobuf envelope or its content is invalid.
    #[error("cannot read protobuf")]
    Decode(#[source] protobuf::Error),
    /// A frame length exceeds the input.
    #[error("the input ends inside a protobuf frame")]
    Frame,
    #[error("document {document} is not a Kubernetes object: {problem}")]
    NotAnObject {
        /// Counted from one.
        document: usize,
        problem: NotAnObject,
    },
    #[error("{0} has no protobuf form: it is not a built-in kind")]
    NoProtobuf(GroupVersionKind),
    /// A field does not match the schema of the kind.
    #[error("document {document} does not fit its kind")]
    SchemaMismatch {
        /// Counted from one.
        document: usize,
        source: conform::Error,
    },
    #[error("document {document} cannot be written as protobuf")]
    Encode {
        /// Counted from one.
        document: usize,
        source: protobuf::Error,
    },
}

/// The reason that a document is not a Kubernetes object.
#[derive(Debug, PartialEq, Eq)]
pub enum NotAnObject {
    /// The document has this JSON type instead of object.
    Other(&'static str),
    /// `apiVersion` or `kind` is missing.
    Missing(&'static str),
    Version(gvk::InvalidGroupVersion),
}

/// Encoded objects, with warnings about dropped fields.
#[derive(Debug, Default)]
pub struct EncodedObjects {
    pub bytes: Vec<u8>,
    /// Fields unknown to the kind: `document 1: unknown field "spec.bogus"`.
    pub warnings: Vec<String>,
}

/// Decodes one or more objects and detects their encoding.
pub fn decode(bytes: &[u8]) -> Result<Vec<Value>, Error> {
    let objects: Vec<Value> = match detect(bytes) {
        Encoding::Protobuf => frames(bytes)?.into_iter().map(decode_envelope).collect::<Result<_, _>>()?,
        // Input that starts with a brace may be YAML flow style. If both parsers fail, the JSON error is returned.
        Encoding::Json => json::parse_all(bytes).or_else(|error| {
            std::str::from_utf8(bytes).ok().and_then(|text| yaml::parse_all(text).ok()).ok_or(error)
        })?,
        Encoding::Yaml => yaml::parse_all(std::str::from_utf8(bytes)?)?,
    };
    // Empty YAML documents, such as the one before a leading `---`, are ignored.
    let objects: Vec<Value> = objects.into_iter().filter(|object| !object.is_null()).collect();
    if objects.is_empty() {
        return Err(Error::Empty);
    }
    for (at, object) in objects.iter().enumerate() {
        gvk_of(object).map_err(|problem| Error::NotAnObject { document: at + 1, problem })?;
    }
    Ok(objects)
}

/// Encodes objects. Fields that the kind does not have are dropped in protobuf and reported as warnings.
pub fn encode(objects: &[Value], encoding: Encoding) -> Result<EncodedObjects, Error> {
    let mut written = EncodedObjects::default();
    for (at, object) in objects.iter().enumerate() {
        match encoding {
            Encoding::Json => {
                written.bytes.extend(json::to_string_pretty(object).into_bytes());
                written.bytes.push(b'\n');
            }
            Encoding::Yaml => {
                if at > 0 {
                    written.bytes.extend(b"---\n");
                }
                written.bytes.extend(yaml::to_string(object).into_bytes());
            }
            Encoding::Protobuf => {
                let envelope = encode_envelope(at + 1, object, &mut written.warnings)?;
                if objects.len() > 1 {
                    let length = u32::try_from(envelope.len()).expect("an object is smaller than 4 GiB");
                    written.bytes.extend(length.to_be_bytes());
                }
                written.bytes.extend(envelope);
            }
        }
    }
    Ok(written)
}

/// Detects the encoding by the first bytes.
pub fn detect(bytes: &[u8]) -> Encoding {
    let framed = bytes.get(FRAME..).is_some_and(protobuf::Envelope::is_in);
    if protobuf::Envelope::is_in(bytes) || framed {
        Encoding::Protobuf
    } else if bytes.trim_ascii_start().starts_with(b"{") {
        Encoding::Json
    } else {
        Encoding::Yaml
    }
}

/// Size of a frame's length prefix in bytes.
const FRAME: usize = size_of::<u32>();

fn frames(bytes: &[u8]) -> Result<Vec<&[u8]>, Error> {
    if protobuf::Envelope::is_in(bytes) {
        return Ok(vec![bytes]);
    }
    let mut frames = Vec::new();
    let mut rest = bytes;
    while let Some((length, after)) = rest.split_first_chunk::<FRAME>() {
        let length = u32::from_be_bytes(*length) as usize;
        let (frame, after) = after.split_at_checked(length).ok_or(Error::Frame)?;
        frames.push(frame);
        rest = after;
    }
    if rest.is_empty() { Ok(frames) } else { Err(Error::Frame) }
}

fn decode_envelope(bytes: &[u8]) -> Result<Value, Error> {
    protobuf::decode_object(bytes, &catalogue::schema).map_err(Error::Decode)
}

fn encode_envelope(document: usize, object: &Value, warnings: &mut Vec<String>) -> Result<Vec<u8>, Error> {
    let gvk = gvk_of(object).map_err(|problem| Error::NotAnObject { document, problem })?;
    let schema = catalogue::schema(&gvk).ok_or(Error::NoProtobuf(gvk))?;
    let mut object = object.clone();
    let unknown = conform::conform(&mut object, schema).map_err(|source| Error::SchemaMismatch { document, source })?;
    warnings.extend(unknown.iter().map(|field| format!("document {document}: unknown field {field:?}")));
    let mut bytes = Vec::with_capacity(1024);
    protobuf::encode_object(&object, schema, &mut bytes).map_err(|source| Error::Encode { document, source })?;
    Ok(bytes)
}

fn gvk_of(object: &Value) -> Result<GroupVersionKind, NotAnObject> {
    if object.as_object().is_none() {
        return Err(NotAnObject::Other(object.kind()));
    }
    for key in ["apiVersion", "kind"] {
        if object[key].as_str().unwrap_or_default().is_empty() {
            return Err(NotAnObject::Missing(key));
        }
    }
    GroupVersionKind::of_object(object).map_err(NotAnObject::Version)
}

impl fmt::Display for NotAnObject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(kind) => write!(out, "it is of JSON type {kind}"),
            Self::Missing(key) => write!(out, "it has no {key}"),
            Self::Version(error) => write!(out, "{error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use apimachinery::value;

    use super::*;

    fn config_map(name: &str) -> Value {
        value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "yes"}})
    }

    #[test]
    fn several_objects_pass_through_every_encoding() {
        let objects = [config_map("a"), config_map("b")];
        for encoding in [Encoding::Json, Encoding::Yaml, Encoding::Protobuf] {
            let written = encode(&objects, encoding).unwrap();
            assert_eq!(detect(&written.bytes), encoding);
            assert_eq!(decode(&written.bytes).unwrap(), objects, "{encoding:?}");
        }
    }

    #[test]
    fn one_object_as_protobuf_is_a_bare_envelope() {
        let written = encode(&[config_map("a")], Encoding::Protobuf).unwrap();
        assert!(written.bytes.starts_with(protobuf::MAGIC));
        assert_eq!(decode(&written.bytes).unwrap(), [config_map("a")]);
    }

    #[test]
    fn non_objects_are_rejected_with_the_reason() {
        let check = |input: &[u8], expect: &str| assert_eq!(decode(input).unwrap_err().to_string(), expect);
        check(b"", "there is no object in the input");
        check(b"---\n---\n# nothing\n", "there is no object in the input");
        check(b"- a\n- b\n", "document 1 is not a Kubernetes object: it is of JSON type array");
        check(b"hello", "document 1 is not a Kubernetes object: it is of JSON type string");
        check(b"{}", "document 1 is not a Kubernetes object: it has no apiVersion");
        check(
            b"{\"apiVersion\":\"v1\",\"kind\":\"Pod\"} {\"apiVersion\":\"v1\"}",
            "document 2 is not a Kubernetes object: it has no kind",
        );
        check(b"{\"a\"", "cannot read JSON");
        check(b"a: b: c", "cannot read YAML");
        check(b"\xff\xfe", "the input is neither JSON nor YAML nor Kubernetes protobuf");
        check(b"k8s\0\xff", "cannot read protobuf");
        check(b"\0\0\0\x09k8s\0", "the input ends inside a protobuf frame");
    }

    #[test]
    fn dropped_unknown_fields_are_reported_as_warnings() {
        let mut object = config_map("a");
        object.as_object_mut().unwrap().insert("bogus", 1);
        let written = encode(&[object], Encoding::Protobuf).unwrap();
        assert_eq!(written.warnings, ["document 1: unknown field \"bogus\""]);
    }

    #[test]
    fn custom_resources_have_no_protobuf_form() {
        let widget = value!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"size": 1}});
        assert_eq!(decode(&encode(from_ref(&widget), Encoding::Yaml).unwrap().bytes).unwrap(), from_ref(&widget));
        let error = encode(&[widget], Encoding::Protobuf).unwrap_err().to_string();
        assert_eq!(error, "example.com/v1, Kind=Widget has no protobuf form: it is not a built-in kind");
    }

    #[test]
    fn type_error_names_the_field() {
        let pod = value!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": "none"}});
        let error = encode(&[pod], Encoding::Protobuf).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("spec.containers"), "{cause}");
    }
}
