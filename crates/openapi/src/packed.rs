//! Compressed documents with their ETag.

use std::io::{Read, Write};

use apimachinery::Value;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

/// A gzip-compressed document; OpenAPI compresses to a twentieth of its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressedDocument {
    gzip: Vec<u8>,
    length: usize,
    etag: String,
}

impl CompressedDocument {
    /// Compresses a document as JSON.
    pub fn json(document: &Value) -> Self {
        Self::new(&apimachinery::json::to_vec(document))
    }

    pub fn new(bytes: &[u8]) -> Self {
        let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 16), Compression::default());
        encoder.write_all(bytes).expect("writing to memory cannot fail");
        let gzip = encoder.finish().expect("writing to memory cannot fail");
        Self { gzip, length: bytes.len(), etag: etag(bytes) }
    }

    /// Returns the gzip bytes, for clients that accept gzip.
    pub fn gzip(&self) -> &[u8] {
        &self.gzip
    }

    /// Returns the hash of the bytes, without the quotes of the ETag header.
    pub fn etag(&self) -> &str {
        &self.etag
    }

    /// Returns the uncompressed bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.length);
        GzDecoder::new(&*self.gzip).read_to_end(&mut bytes).expect("a packed document can be decompressed");
        bytes
    }
}

/// Returns the hash of a document: 128 hexadecimal digits, as in upstream's ETags.
pub fn etag(bytes: &[u8]) -> String {
    hex(&sha2::Sha512::digest(bytes))
}

/// Returns the SHA-256 hash of several parts, each preceded by its length.
pub(crate) fn hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hex(&hasher.finalize()).to_uppercase()
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        write!(out, "{byte:02x}").expect("writing to a String cannot fail");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_documents_round_trip() {
        let bytes = br#"{"paths": {}}"#.repeat(100);
        let packed = CompressedDocument::new(&bytes);
        assert_eq!(packed.bytes(), bytes);
        assert!(packed.gzip().len() < bytes.len() / 4);
        assert_eq!(packed.etag(), etag(&bytes));
        assert_ne!(packed.etag(), etag(b""));
    }
}
