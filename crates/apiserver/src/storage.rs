//! Objects in the store: where they are, and how they are written down.
//!
//! An object is JSON under `/registry/<prefix>/<namespace>/<name>`, without its resourceVersion: that is the revision
//! of its key. `apiVersion`, `kind` and `metadata` come first, so that whoever serves the bytes can put the version in
//! without reading on.

use api::catalogue;
use api::kind::{Keeping, Kind};
use bytes::Bytes;
use machinery::meta::{Meta, MetaMut};
use machinery::{Value, json, protobuf};
use mvcc::{Compare, Delete, Operation, Put, Relation, Revision, Span, Target, Txn};
use registry::admission::Effect;

/// Where the API's keys are, in front of a kind's prefix.
#[derive(Clone, Debug)]
pub struct Layout {
    /// `/registry`, or what `--etcd-prefix` says.
    pub root: String,
}

/// What cannot be read from the store.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// No JSON.
    #[error("the stored object is no JSON")]
    Json(#[from] json::Error),
    /// An envelope with something unknown inside.
    #[error("the stored protobuf cannot be read")]
    Protobuf(#[from] protobuf::Error),
    /// JSON, and no object.
    #[error("what is stored is not an object")]
    NotAnObject,
}

/// Most objects are no longer.
const BYTES_LIKELY: usize = 4096;
/// What the head of every object ends with.
const METADATA: &[u8] = b"\"metadata\":{";

impl Layout {
    /// The key of an object.
    pub fn key(&self, kind: &Kind, namespace: &str, name: &str) -> Bytes {
        let (root, prefix) = (&self.root, prefix(kind));
        Bytes::from(match namespace {
            "" => format!("{root}/{prefix}/{name}"),
            namespace => format!("{root}/{prefix}/{namespace}/{name}"),
        })
    }

    /// What the keys of a kind, or of its objects in a namespace, start with.
    pub fn span_start(&self, kind: &Kind, namespace: &str) -> String {
        let (root, prefix) = (&self.root, prefix(kind));
        if namespace.is_empty() { format!("{root}/{prefix}/") } else { format!("{root}/{prefix}/{namespace}/") }
    }

    /// The transaction together with what admission changes along with it.
    pub fn along(&self, mut txn: Txn, effects: &[Effect]) -> Txn {
        for effect in effects {
            let meta = Meta::of(&effect.object);
            let key = self.key(&effect.kind, meta.namespace(), meta.name());
            let more = replace(key, encode(&effect.object), meta.resource_version().parse().unwrap_or(0));
            txn.compare.extend(more.compare);
            txn.success.extend(more.success);
        }
        txn
    }

    /// All keys of the API.
    pub fn all(&self) -> Span {
        Span::prefix(format!("{}/", self.root).into_bytes())
    }
}

/// The key's part that all objects of a kind share.
pub fn prefix(kind: &Kind) -> &str {
    match &kind.keeping {
        Keeping::Stored { prefix, .. } => prefix,
        Keeping::Answered(_) => "",
    }
}

/// Whether the objects of a kind end by themselves.
pub fn expires(kind: &Kind) -> bool {
    matches!(kind.keeping, Keeping::Stored { expires: true, .. })
}

/// Writes an object down.
pub fn encode(object: &Value) -> Bytes {
    const HEAD: [&str; 3] = ["apiVersion", "kind", "metadata"];
    let mut out = Vec::with_capacity(BYTES_LIKELY);
    out.push(b'{');
    let fields = object.as_object();
    for key in HEAD {
        match fields.and_then(|fields| fields.get(key)) {
            Some(Value::Object(metadata)) if key == "metadata" => {
                name(&mut out, key);
                out.push(b'{');
                let kept = metadata.iter().filter(|(key, _)| !matches!(*key, "resourceVersion" | "selfLink"));
                kept.for_each(|(key, value)| field(&mut out, key, value));
                out.push(b'}');
            }
            Some(value) => field(&mut out, key, value),
            None => {}
        }
    }
    let rest = fields.into_iter().flat_map(machinery::Object::iter).filter(|(key, _)| !HEAD.contains(key));
    rest.for_each(|(key, value)| field(&mut out, key, value));
    out.push(b'}');
    // It may be kept for long: without the room that is left.
    Bytes::from(out.into_boxed_slice())
}

fn field(out: &mut Vec<u8>, key: &str, value: &Value) {
    name(out, key);
    json::write(value, out);
}

fn name(out: &mut Vec<u8>, key: &str) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    json::write_string(key, out);
    out.push(b':');
}

/// Whether an object was written down in this version.
pub fn is_of(bytes: &[u8], api_version: &str) -> bool {
    let rest = bytes.strip_prefix(b"{\"apiVersion\":\"").and_then(|rest| rest.strip_prefix(api_version.as_bytes()));
    rest.is_some_and(|rest| rest.first() == Some(&b'"'))
}

/// Reads an object, and gives it its version. Objects that an upstream server left are protobuf.
pub fn decode(bytes: &[u8], revision: Revision) -> Result<Value, Unreadable> {
    let mut object = if protobuf::Envelope::is_in(bytes) {
        protobuf::decode_object(bytes, &|gvk| catalogue::schema(gvk))?
    } else {
        json::parse(bytes)?
    };
    let mut meta = MetaMut::of(&mut object).ok_or(Unreadable::NotAnObject)?;
    meta.set_resource_version(revision.unsigned_abs());
    Ok(object)
}

/// Bytes as they are served: where the head ends, in front of the first field of the metadata. Bytes that were not
/// written by [`encode`] are written anew.
pub fn served_form(bytes: Bytes) -> Result<(Bytes, usize), Unreadable> {
    if let Some(head) = head(&bytes) {
        return Ok((bytes, head));
    }
    let bytes = encode(&decode(&bytes, 0)?);
    let head = head(&bytes).ok_or(Unreadable::NotAnObject)?;
    Ok((bytes, head))
}

/// Whether bytes are such as [`encode`] writes.
pub fn is_encoded(bytes: &[u8]) -> bool {
    head(bytes).is_some()
}

/// Where the metadata of bytes that [`encode`] wrote begins.
fn head(bytes: &[u8]) -> Option<usize> {
    // Longer than any version and kind.
    const BYTES_MAX: usize = 512;
    let start = &bytes[..bytes.len().min(BYTES_MAX)];
    if !start.starts_with(b"{\"apiVersion\":\"") {
        return None;
    }
    let at = start.windows(METADATA.len()).position(|window| window == METADATA)?;
    let head = at + METADATA.len();
    // Empty metadata has no place to put a version in front of.
    (bytes.get(head) == Some(&b'"')).then_some(head)
}

/// Creates a key that must not exist.
pub fn create(key: Bytes, value: Bytes) -> Txn {
    let absent = compare(&key, Target::ModRevision(0));
    let put = Operation::Put(Put { key, value: Some(value), lease: Some(0), want_previous: false });
    Txn { compare: vec![absent], success: vec![put], failure: Vec::new() }
}

/// Replaces a key that must be at a revision.
pub fn replace(key: Bytes, value: Bytes, at: Revision) -> Txn {
    let unchanged = compare(&key, Target::ModRevision(at));
    // The lease of what expires stays as it is.
    let put = Operation::Put(Put { key, value: Some(value), lease: None, want_previous: false });
    Txn { compare: vec![unchanged], success: vec![put], failure: Vec::new() }
}

/// The transaction with its object attached to a lease.
pub fn leased(mut txn: Txn, lease: i64) -> Txn {
    if let Some(Operation::Put(put)) = txn.success.first_mut() {
        put.lease = Some(lease);
    }
    txn
}

/// Deletes a key that must be at a revision.
pub fn remove(key: Bytes, at: Revision) -> Txn {
    let unchanged = compare(&key, Target::ModRevision(at));
    let delete = Operation::Delete(Delete { span: Span::key(key), want_previous: false });
    Txn { compare: vec![unchanged], success: vec![delete], failure: Vec::new() }
}

fn compare(key: &Bytes, target: Target) -> Compare {
    Compare { span: Span::key(key.clone()), relation: Relation::Equal, target }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_has_its_version_apart() {
        let text =
            br#"{"kind":"ConfigMap","data":{"a":"b"},"apiVersion":"v1","metadata":{"name":"x","resourceVersion":"3"}}"#;
        let object = json::parse(text).unwrap();
        let bytes = encode(&object);
        assert_eq!(
            std::str::from_utf8(&bytes).unwrap(),
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"b"}}"#
        );
        assert_eq!(decode(&bytes, 3).unwrap(), object);
        let (bytes, head) = served_form(bytes).unwrap();
        assert_eq!(&bytes[head..head + 6], b"\"name\"");
        let foreign = Bytes::from_static(br#"{"metadata":{"name":"x"},"kind":"A","apiVersion":"v1"}"#);
        let (bytes, head) = served_form(foreign).unwrap();
        assert!(bytes.starts_with(br#"{"apiVersion":"v1","kind":"A","metadata":{"#) && head == 42, "{head}");
    }
}
