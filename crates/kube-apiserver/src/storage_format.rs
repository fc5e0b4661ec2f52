//! Storage format: the keys and the encoding of objects in the store.
//!
//! An object is JSON under `/registry/<prefix>/<namespace>/<name>`, without its resourceVersion, which is the revision
//! of its key. Its fields are in the order in which they are served, so that lists and watches copy the bytes and
//! insert the resourceVersion at the offset in [`Offsets`].

use api::kind::{Kind, Persistence};
use api::{catalogue, codec};
use apimachinery::json::{RawEntries, RawEntry};
use apimachinery::meta::MetaMut;
use apimachinery::{Value, json, protobuf};
use bytes::Bytes;
use mvcc::{Compare, Delete, Operation, Put, Relation, Revision, Span, Target, Txn};

/// The key layout of the store.
#[derive(Clone, Debug)]
pub struct Layout {
    /// `--etcd-prefix`, normally `/registry`.
    pub root: String,
}

/// Reasons why a stored object cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("the stored object is not valid JSON")]
    Json(#[from] json::Error),
    #[error("the stored protobuf cannot be read")]
    Protobuf(#[from] protobuf::Error),
    #[error("the stored value is not an object")]
    NotAnObject,
}

/// Initial buffer size; most objects are smaller.
const BYTES_LIKELY: usize = 4096;
/// Metadata fields that are not stored: resourceVersion is the revision of the key, selfLink is obsolete.
const NOT_STORED: [&str; 2] = ["resourceVersion", "selfLink"];
/// The first bytes of every encoded built-in object.
const BUILT_IN: &[u8] = b"{\"kind\":\"";

/// Offsets in an encoded object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// Offset of the key `metadata`. In a built-in object only `kind` and `apiVersion` come before it.
    pub metadata: u32,
    /// Offset at which the resourceVersion is inserted: after the metadata field that precedes it.
    pub version: u32,
}

impl Layout {
    /// Returns the key of an object.
    pub fn key(&self, kind: &Kind, namespace: &str, name: &str) -> Bytes {
        let (root, prefix) = (&self.root, prefix(kind));
        Bytes::from(match namespace {
            "" => format!("{root}/{prefix}/{name}"),
            namespace => format!("{root}/{prefix}/{namespace}/{name}"),
        })
    }

    /// Returns the key prefix of a kind, or of its objects in a namespace.
    pub fn span_start(&self, kind: &Kind, namespace: &str) -> String {
        let (root, prefix) = (&self.root, prefix(kind));
        if namespace.is_empty() { format!("{root}/{prefix}/") } else { format!("{root}/{prefix}/{namespace}/") }
    }

    /// Returns the span of all API objects.
    pub fn all(&self) -> Span {
        Span::prefix(format!("{}/", self.root).into_bytes())
    }
}

/// Returns the key segment that all objects of a kind share.
pub fn prefix(kind: &Kind) -> &str {
    match &kind.persistence {
        Persistence::Stored { prefix, .. } => prefix,
        Persistence::Virtual(_) => "",
    }
}

/// Whether objects of the kind have a TTL.
pub fn expires(kind: &Kind) -> bool {
    matches!(kind.persistence, Persistence::Stored { expires: true, .. })
}

/// Encodes an object for the store.
pub fn encode(object: &Value) -> Bytes {
    let mut out = Vec::with_capacity(BYTES_LIKELY);
    codec::JSON.write_without(object, &NOT_STORED, &mut out);
    // The bytes may be kept for a long time, so the unused capacity is released.
    Bytes::from(out.into_boxed_slice())
}

/// Whether an encoded custom resource is in this API version.
pub fn is_of(bytes: &[u8], api_version: &str) -> bool {
    let rest = bytes.strip_prefix(b"{\"apiVersion\":\"").and_then(|rest| rest.strip_prefix(api_version.as_bytes()));
    rest.is_some_and(|rest| rest.first() == Some(&b'"'))
}

/// Decodes an object and sets its resourceVersion. Objects written by upstream's API server are protobuf.
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

/// Returns bytes in the form in which they are served, and their offsets. Bytes that [`encode`] did not write are
/// encoded again: those of upstream's API server, and those of earlier releases with another field order.
pub fn served_form(bytes: Bytes) -> Result<(Bytes, Offsets), Unreadable> {
    if let Some(offsets) = offsets(&bytes) {
        return Ok((bytes, offsets));
    }
    let bytes = encode(&decode(&bytes, 0)?);
    let offsets = offsets(&bytes).ok_or(Unreadable::NotAnObject)?;
    Ok((bytes, offsets))
}

/// Whether the bytes have the form that [`encode`] writes.
pub fn is_encoded(bytes: &[u8]) -> bool {
    offsets(bytes).is_some()
}

/// Returns the offsets if [`encode`] wrote the bytes.
fn offsets(bytes: &[u8]) -> Option<Offsets> {
    let is_built_in = bytes.starts_with(BUILT_IN);
    let mut fields = RawEntries::new(bytes, 0);
    let metadata =
        if is_built_in { fields.find(|field| field.key == b"metadata")? } else { custom_metadata(bytes, &mut fields)? };
    let comes_before = |key: &[u8]| {
        if is_built_in {
            matches!(key, b"name" | b"generateName" | b"namespace" | b"uid")
        } else {
            key < b"resourceVersion".as_slice()
        }
    };
    let before = RawEntries::new(bytes, metadata.value).take_while(|field| comes_before(field.key)).last()?;
    Some(Offsets { metadata: u32::try_from(metadata.start).ok()?, version: u32::try_from(before.end(bytes)?).ok()? })
}

/// Returns the metadata of a custom resource with sorted fields. Earlier releases wrote `apiVersion`, `kind` and
/// `metadata` first, for built-in objects too; such bytes return `None`.
fn custom_metadata<'b>(bytes: &'b [u8], fields: &mut RawEntries<'b>) -> Option<RawEntry<'b>> {
    let text = |field: RawEntry<'b>| std::str::from_utf8(bytes.get(field.value + 1..field.end(bytes)? - 1)?).ok();
    let (mut api_version, mut kind) = ("", "");
    let metadata = loop {
        let field = fields.next()?;
        match field.key {
            b"apiVersion" => api_version = text(field)?,
            b"kind" => kind = text(field)?,
            b"metadata" => break field,
            _ => {}
        }
    };
    let is_sorted = fields.next().is_none_or(|next| next.key > b"metadata".as_slice());
    (is_sorted && catalogue::find(api_version, kind).is_none()).then_some(metadata)
}

/// Returns a transaction that creates a key. It fails if the key exists.
pub fn create(key: Bytes, value: Bytes) -> Txn {
    let absent = compare(&key, Target::ModRevision(0));
    let put = Operation::Put(Put { key, value: Some(value), lease: Some(0), want_previous: false });
    Txn { compare: vec![absent], success: vec![put], failure: Vec::new() }
}

/// Returns a transaction that replaces a key. It fails unless the key is at revision `at`.
pub fn replace(key: Bytes, value: Bytes, at: Revision) -> Txn {
    let unchanged = compare(&key, Target::ModRevision(at));
    // `None` keeps the lease of the key.
    let put = Operation::Put(Put { key, value: Some(value), lease: None, want_previous: false });
    Txn { compare: vec![unchanged], success: vec![put], failure: Vec::new() }
}

/// Attaches the object of a transaction to a lease.
pub fn leased(mut txn: Txn, lease: i64) -> Txn {
    if let Some(Operation::Put(put)) = txn.success.first_mut() {
        put.lease = Some(lease);
    }
    txn
}

/// Returns a transaction that deletes a key. It fails unless the key is at revision `at`.
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

    fn served(stored: &[u8]) -> String {
        let (bytes, offsets) = served_form(Bytes::copy_from_slice(stored)).unwrap();
        let (before, after) = bytes.split_at(offsets.version as usize);
        assert!(bytes[offsets.metadata as usize..].starts_with(b"\"metadata\":{"));
        [before, b",\"resourceVersion\":\"3\"", after].concat().try_into().unwrap()
    }

    #[test]
    fn object_is_stored_in_type_field_order_without_resource_version() {
        let text =
            br#"{"data":{"a":"b"},"apiVersion":"v1","metadata":{"labels":{"x":"y"},"uid":"u","resourceVersion":"3","name":"x"},"kind":"ConfigMap"}"#;
        let object = json::parse(text).unwrap();
        let bytes = encode(&object);
        let stored = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","uid":"u","labels":{"x":"y"}},"data":{"a":"b"}}"#;
        assert_eq!(std::str::from_utf8(&bytes).unwrap(), stored);
        assert!(is_encoded(&bytes));
        assert_eq!(decode(&bytes, 3).unwrap(), object);
        assert_eq!(served(&bytes), stored.replace(r#""u","#, r#""u","resourceVersion":"3","#));
    }

    #[test]
    fn resource_version_of_a_custom_resource_is_inserted_in_sorted_order() {
        let stored = r#"{"apiVersion":"example.com/v1","data":{"metadata":{}},"kind":"Widget","metadata":{"annotations":{"a":"}"},"name":"x","uid":"u"},"spec":{}}"#;
        assert_eq!(encode(&json::parse(stored.as_bytes()).unwrap()), stored);
        assert_eq!(served(stored.as_bytes()), stored.replace(r#","uid""#, r#","resourceVersion":"3","uid""#));
    }

    #[test]
    fn objects_in_other_encodings_are_served_in_the_same_field_order() {
        let expect = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","resourceVersion":"3","labels":{"a":"b"}},"data":{"a":"b"}}"#;
        let earlier =
            br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"labels":{"a":"b"},"name":"x"},"data":{"a":"b"}}"#;
        assert_eq!(served(earlier), expect);
        assert!(!is_encoded(earlier));
        let foreign = br#"{ "metadata": {"name": "x", "labels": {"a": "b"}}, "kind": "ConfigMap", "apiVersion": "v1", "data": {"a": "b"}}"#;
        assert_eq!(served(foreign), expect);
        let custom = br#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"x"},"data":{}}"#;
        assert_eq!(
            served(custom),
            r#"{"apiVersion":"example.com/v1","data":{},"kind":"Widget","metadata":{"name":"x","resourceVersion":"3"}}"#
        );
    }

    #[test]
    fn object_without_metadata_cannot_be_served() {
        for stored in
            ["{}", "[]", r#"{"kind":"Pod","apiVersion":"v1"}"#, r#"{"kind":"Pod","apiVersion":"v1","metadata":{}}"#]
        {
            assert!(served_form(Bytes::from_static(stored.as_bytes())).is_err(), "{stored}");
        }
    }
}
