//! KMS v2 envelope (EncryptedObject) in protobuf, with five fields.

use std::collections::BTreeMap;

use apimachinery::field;
use apimachinery::{Path, names};

use super::{EncryptResponse, Error};

/// Maximum length of a key ID.
pub(super) const KEY_ID_MAX: usize = 1024;
const KEY_MAX: usize = 1024;
const ANNOTATIONS_MAX: usize = 32 * 1024;

/// The type of the encrypted key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeySource {
    /// An AES-GCM key, as written by servers before 1.29.
    Key,
    /// A seed from which the key of each value is derived.
    Seed,
}

/// An encrypted value with its encrypted key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The encrypted value.
    pub data: Vec<u8>,
    /// The ID of the plugin's key.
    pub key_id: String,
    /// The encrypted key or seed.
    pub encrypted_key: Vec<u8>,
    /// Annotations to send with Decrypt.
    pub annotations: BTreeMap<String, Vec<u8>>,
    pub source: KeySource,
}

impl Envelope {
    pub(super) fn new(encrypted: &EncryptResponse, source: KeySource, data: Vec<u8>) -> Self {
        Self {
            data,
            key_id: encrypted.key_id.clone(),
            encrypted_key: encrypted.ciphertext.clone(),
            annotations: encrypted.annotations.clone(),
            source,
        }
    }

    /// Encodes the envelope; empty fields are omitted.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.data.len() + self.encrypted_key.len() + self.key_id.len() + 64);
        put_bytes(&mut out, 1, &self.data);
        put_bytes(&mut out, 2, self.key_id.as_bytes());
        put_bytes(&mut out, 3, &self.encrypted_key);
        for (key, value) in &self.annotations {
            let mut entry = Vec::new();
            put_bytes(&mut entry, 1, key.as_bytes());
            put_bytes(&mut entry, 2, value);
            put_varint(&mut out, 4 << 3 | 2);
            put_varint(&mut out, entry.len() as u64);
            out.extend(entry);
        }
        if self.source == KeySource::Seed {
            put_varint(&mut out, 5 << 3);
            put_varint(&mut out, 1);
        }
        out
    }

    /// Decodes and validates an envelope.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let mut envelope = Self {
            data: Vec::new(),
            key_id: String::new(),
            encrypted_key: Vec::new(),
            annotations: BTreeMap::new(),
            source: KeySource::Key,
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            match field(&mut rest)? {
                (1, Wire::Bytes(data)) => envelope.data = data.to_vec(),
                (2, Wire::Bytes(id)) => envelope.key_id = text(id)?,
                (3, Wire::Bytes(key)) => envelope.encrypted_key = key.to_vec(),
                (4, Wire::Bytes(entry)) => {
                    let (key, value) = annotation(entry)?;
                    envelope.annotations.insert(key, value);
                }
                (5, Wire::Number(0)) => envelope.source = KeySource::Key,
                (5, Wire::Number(1)) => envelope.source = KeySource::Seed,
                (5, Wire::Number(other)) => return Err(Error::UnknownSource(other)),
                (1..=5, _) => return Err(Error::Malformed),
                _ => {}
            }
        }
        envelope.validate()?;
        Ok(envelope)
    }

    /// Checks that all fields are present and within their size limits.
    pub fn validate(&self) -> Result<(), Error> {
        if self.data.is_empty() {
            return Err(Error::NoData);
        }
        match self.encrypted_key.len() {
            0 => return Err(Error::NoKey),
            length if length > KEY_MAX => return Err(Error::KeyTooLarge(length)),
            _ => {}
        }
        match self.key_id.len() {
            0 => return Err(Error::NoKeyId),
            length if length > KEY_ID_MAX => return Err(Error::KeyIdTooLong(length)),
            _ => {}
        }
        self.validate_annotations()
    }

    fn validate_annotations(&self) -> Result<(), Error> {
        let path = Path::of("annotations");
        let findings: field::Errors = self.annotations.keys().flat_map(|key| domain_problems(&path, key)).collect();
        if !findings.is_empty() {
            return Err(findings.into());
        }
        let size: usize = self.annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
        if size > ANNOTATIONS_MAX {
            let problem =
                format!("total size of annotations is {size}, which exceeds the max size of {ANNOTATIONS_MAX}");
            return Err(Error::Annotations(problem));
        }
        Ok(())
    }
}

/// Returns the reasons why a text is not a fully qualified domain name.
fn domain_problems(path: &Path<'_>, name: &str) -> field::Errors {
    if name.is_empty() {
        return vec![field::Error::required(path, "")];
    }
    let trimmed = name.strip_suffix('.').unwrap_or(name);
    let problems = names::dns1123_subdomain(trimmed);
    if !problems.is_empty() {
        return vec![field::Error::invalid(path, trimmed, problems.join(","))];
    }
    if !trimmed.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        return vec![field::Error::invalid(path, trimmed, detail)];
    }
    Vec::new()
}

enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Other,
}

fn field<'a>(rest: &mut &'a [u8]) -> Result<(u64, Wire<'a>), Error> {
    let tag = take_varint(rest)?;
    let wire = match tag & 7 {
        0 => Wire::Number(take_varint(rest)?),
        1 => take(rest, 8).map(|_| Wire::Other)?,
        2 => {
            let length = usize::try_from(take_varint(rest)?).map_err(|_| Error::Malformed)?;
            Wire::Bytes(take(rest, length)?)
        }
        5 => take(rest, 4).map(|_| Wire::Other)?,
        _ => return Err(Error::Malformed),
    };
    if tag >> 3 == 0 {
        return Err(Error::Malformed);
    }
    Ok((tag >> 3, wire))
}

fn annotation(entry: &[u8]) -> Result<(String, Vec<u8>), Error> {
    let (mut key, mut value, mut rest) = (String::new(), Vec::new(), entry);
    while !rest.is_empty() {
        match field(&mut rest)? {
            (1, Wire::Bytes(bytes)) => key = text(bytes)?,
            (2, Wire::Bytes(bytes)) => value = bytes.to_vec(),
            (1 | 2, _) => return Err(Error::Malformed),
            _ => {}
        }
    }
    Ok((key, value))
}

fn text(bytes: &[u8]) -> Result<String, Error> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Error::Malformed)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], Error> {
    let (taken, after) = rest.split_at_checked(length).ok_or(Error::Malformed)?;
    *rest = after;
    Ok(taken)
}

fn take_varint(rest: &mut &[u8]) -> Result<u64, Error> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        // The tenth byte of a varint holds one bit.
        if shift == 63 && byte > 1 {
            return Err(Error::Malformed);
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Error::Malformed)
}

fn put_bytes(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    if !bytes.is_empty() {
        put_varint(out, number << 3 | 2);
        put_varint(out, bytes.len() as u64);
        out.extend(bytes);
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
