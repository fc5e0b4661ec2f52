//! Content digests: an algorithm and a hash.

use std::fmt;
use std::io::{self, Read, Write};

use aws_lc_rs::digest::{Context, SHA256, SHA512};
use serde::{Deserialize, Serialize};

/// `sha256:` or `sha512:` and the hash in lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// A text is not a digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a sha256 or sha512 digest")]
pub struct DigestError(String);

impl Digest {
    /// Parses a digest; accepts only the two algorithms of the specification.
    pub fn parse(text: &str) -> Result<Digest, DigestError> {
        let error = || DigestError(text.to_owned());
        let (algorithm, hex) = text.split_once(':').ok_or_else(error)?;
        let length = match algorithm {
            "sha256" => 64,
            "sha512" => 128,
            _ => return Err(error()),
        };
        let lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if hex.len() != length || !hex.bytes().all(lower_hex) {
            return Err(error());
        }
        Ok(Digest(text.to_owned()))
    }

    /// Returns the SHA-256 digest of bytes.
    pub fn of(bytes: &[u8]) -> Digest {
        let mut hasher = Hasher::sha256();
        hasher.update(bytes);
        hasher.finish()
    }

    /// Returns `sha256` or `sha512`.
    pub fn algorithm(&self) -> &str {
        self.0.split(':').next().expect("a digest has an algorithm")
    }

    /// Returns the hash without its algorithm.
    pub fn hex(&self) -> &str {
        self.0.split(':').nth(1).expect("a digest has a hash")
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Digest, DigestError> {
        Digest::parse(&text)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.0
    }
}

/// Computes a digest incrementally.
pub(crate) struct Hasher {
    algorithm: &'static str,
    context: Context,
}

impl Hasher {
    pub(crate) fn sha256() -> Hasher {
        Hasher { algorithm: "sha256", context: Context::new(&SHA256) }
    }

    /// Returns a hasher with the algorithm of `digest`.
    pub(crate) fn like(digest: &Digest) -> Hasher {
        match digest.algorithm() {
            "sha512" => Hasher { algorithm: "sha512", context: Context::new(&SHA512) },
            _ => Hasher::sha256(),
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
    }

    pub(crate) fn finish(self) -> Digest {
        let hash = self.context.finish();
        let mut text = String::with_capacity(self.algorithm.len() + 1 + 2 * hash.as_ref().len());
        text.push_str(self.algorithm);
        text.push(':');
        for byte in hash.as_ref() {
            for nibble in [byte >> 4, byte & 15] {
                text.push(char::from_digit(nibble.into(), 16).expect("a nibble is a hexadecimal digit"));
            }
        }
        Digest(text)
    }
}

/// A reader or writer that hashes and counts the bytes that pass through.
pub(crate) struct Hashing<T> {
    inner: T,
    hasher: Hasher,
    bytes: u64,
}

impl<T> Hashing<T> {
    pub(crate) fn new(inner: T, hasher: Hasher) -> Hashing<T> {
        Hashing { inner, hasher, bytes: 0 }
    }

    pub(crate) fn finish(self) -> (T, Digest, u64) {
        (self.inner, self.hasher.finish(), self.bytes)
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_is_an_algorithm_and_a_lower_case_hash() {
        let check = |text: &str, good: bool| assert_eq!(Digest::parse(text).is_ok(), good, "{text}");
        check(&format!("sha256:{}", "a0".repeat(32)), true);
        check(&format!("sha512:{}", "0f".repeat(64)), true);
        check(&format!("sha256:{}", "A0".repeat(32)), false);
        check(&format!("sha256:{}", "a0".repeat(31)), false);
        check(&format!("md5:{}", "a0".repeat(16)), false);
        check("sha256", false);
        check("sha256:../../../../../../../../../../../../../../../../../../etc/passwd00", false);
    }

    #[test]
    fn digest_of_empty_input_is_correct() {
        assert_eq!(Digest::of(b"").hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
