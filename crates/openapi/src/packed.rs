//! A document as it is kept: compressed, with the tag by which a client knows that it has it.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use machinery::Value;
use sha2::{Digest, Sha256};

/// A document that takes little room: OpenAPI compresses to a twentieth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    gzip: Vec<u8>,
    length: usize,
    etag: String,
}

impl Packed {
    /// Packs a document as JSON.
    pub fn json(document: &Value) -> Self {
        Self::new(&machinery::json::to_vec(document))
    }

    /// Packs bytes.
    pub fn new(bytes: &[u8]) -> Self {
        let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 16), Compression::default());
        encoder.write_all(bytes).expect("memory takes everything");
        let gzip = encoder.finish().expect("memory takes everything");
        Self { gzip, length: bytes.len(), etag: etag(bytes) }
    }

    /// The bytes compressed, as a client gets them that accepts gzip.
    pub fn gzip(&self) -> &[u8] {
        &self.gzip
    }

    /// The hash of the bytes, without the quotes that the header has around it.
    pub fn etag(&self) -> &str {
        &self.etag
    }

    /// The bytes as they were.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.length);
        GzDecoder::new(&*self.gzip).read_to_end(&mut bytes).expect("what was packed can be unpacked");
        bytes
    }
}

/// A document's hash: 128 hexadecimal digits, as upstream's tags have.
pub fn etag(bytes: &[u8]) -> String {
    hex(&sha2::Sha512::digest(bytes))
}

/// The SHA-256 hash of several parts, each told from the next by its length.
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
        write!(out, "{byte:02x}").expect("a string takes everything");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unpacked_is_what_was_packed() {
        let bytes = br#"{"paths": {}}"#.repeat(100);
        let packed = Packed::new(&bytes);
        assert_eq!(packed.bytes(), bytes);
        assert!(packed.gzip().len() < bytes.len() / 4);
        assert_eq!(packed.etag(), etag(&bytes));
        assert_ne!(packed.etag(), etag(b""));
    }
}
