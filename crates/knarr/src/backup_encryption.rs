//! Encryption of a backup to a public key: the host that makes backups cannot read them.
//!
//! ```text
//!  header: magic, ephemeral public key │ chunk │ chunk │ … │ last chunk
//! ```
//!
//! X25519 with an ephemeral key and HKDF-SHA256 derive the key of AES-256-GCM. The nonce of a chunk contains its index
//! and whether it is the last one, so that chunks can be neither reordered nor removed.

use std::io::{self, Read, Write};

use anyhow::{Context, Result, bail, ensure};
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};

/// Start of an encrypted backup.
pub(crate) const MAGIC: &[u8; 16] = b"knarr backup v1\n";
const KEY_LEN: usize = 32;
/// Size of the plaintext of a chunk.
const CHUNK_BYTES: usize = 64 << 10;
const TAG_BYTES: usize = 16;
const PUBLIC: &str = "backup-public:";
const SECRET: &str = "backup-secret:";

/// The key of one backup, and the header from which the owner of the private key derives it.
#[derive(Clone)]
pub(crate) struct ContentKey {
    key: [u8; KEY_LEN],
    pub header: Vec<u8>,
}

/// Returns a new private key and its public key, as text.
pub(crate) fn new_key_pair() -> Result<(String, String)> {
    let mut secret = [0; KEY_LEN];
    aws_lc_rs::rand::fill(&mut secret).ok().context("failed to read random bytes")?;
    let public = public_of(&private(&secret)?)?;
    Ok((format!("{SECRET}{}", hex(&secret)), format!("{PUBLIC}{}", hex(&public))))
}

impl ContentKey {
    /// Creates a key for a new backup that only the owner of the private key can read.
    pub(crate) fn for_recipient(public: &str) -> Result<Self> {
        let recipient = parse(public, PUBLIC)
            .context("a public key has the form backup-public:HEX; make a key pair with `knarr backup key FILE`")?;
        let mut secret = [0; KEY_LEN];
        aws_lc_rs::rand::fill(&mut secret).ok().context("failed to read random bytes")?;
        let ephemeral = private(&secret)?;
        let own = public_of(&ephemeral)?;
        let key = derive(&ephemeral, &recipient, &own, &recipient)?;
        Ok(Self { key, header: [MAGIC.as_slice(), &own].concat() })
    }

    /// Derives the key of a backup from its header and a private key.
    pub(crate) fn from_header(header: &[u8], secret: &str) -> Result<Self> {
        let secret = parse(secret.trim(), SECRET).context("a private key has the form backup-secret:HEX")?;
        let private = private(&secret)?;
        let ephemeral = header.strip_prefix(MAGIC.as_slice()).context("the file is not an encrypted backup")?;
        let own = public_of(&private)?;
        let key = derive(&private, ephemeral, ephemeral, &own)?;
        Ok(Self { key, header: header.to_vec() })
    }

    fn cipher(&self) -> io::Result<LessSafeKey> {
        let key = UnboundKey::new(&AES_256_GCM, &self.key);
        key.map(LessSafeKey::new).map_err(|_| io::Error::other("the key has the wrong length"))
    }
}

/// Size of a header.
pub(crate) const HEADER_BYTES: usize = MAGIC.len() + KEY_LEN;

fn private(secret: &[u8]) -> Result<PrivateKey> {
    PrivateKey::from_private_key(&X25519, secret).ok().context("the private key is invalid")
}

fn public_of(private: &PrivateKey) -> Result<Vec<u8>> {
    Ok(private.compute_public_key().ok().context("the private key is invalid")?.as_ref().to_vec())
}

/// Derives the shared key. It depends on both public keys.
fn derive(own: &PrivateKey, peer: &[u8], ephemeral: &[u8], recipient: &[u8]) -> Result<[u8; KEY_LEN]> {
    let salt = Salt::new(HKDF_SHA256, &[ephemeral, recipient].concat());
    let expanded = agree(own, UnparsedPublicKey::new(&X25519, peer), (), |shared| {
        let mut key = [0; KEY_LEN];
        salt.extract(shared)
            .expand(&[MAGIC.as_slice()], HKDF_SHA256)
            .and_then(|okm| okm.fill(&mut key))
            .map_err(drop)?;
        Ok(key)
    });
    expanded.ok().context("the public key is invalid")
}

fn parse(text: &str, prefix: &str) -> Result<Vec<u8>> {
    let digits = text.strip_prefix(prefix).with_context(|| format!("{prefix} is missing"))?;
    ensure!(digits.len() == 2 * KEY_LEN && digits.is_ascii(), "the key must have {} digits", 2 * KEY_LEN);
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16);
    Ok((0..digits.len()).step_by(2).map(byte).collect::<Result<_, _>>()?)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn nonce(number: u64, is_last: bool) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes[NONCE_LEN - 1] = u8::from(is_last);
    Nonce::assume_unique_for_key(bytes)
}

/// A writer that encrypts its input.
pub(crate) struct Encryptor<W> {
    out: W,
    cipher: LessSafeKey,
    chunk: Vec<u8>,
    number: u64,
}

impl<W: Write> Encryptor<W> {
    /// Writes the header.
    pub(crate) fn new(mut out: W, key: &ContentKey) -> io::Result<Self> {
        out.write_all(&key.header)?;
        Ok(Self { out, cipher: key.cipher()?, chunk: Vec::with_capacity(CHUNK_BYTES + TAG_BYTES), number: 0 })
    }

    /// Writes the last chunk.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.encrypt_chunk(true)?;
        Ok(self.out)
    }

    fn encrypt_chunk(&mut self, is_last: bool) -> io::Result<()> {
        let encrypted =
            self.cipher.seal_in_place_append_tag(nonce(self.number, is_last), Aad::empty(), &mut self.chunk);
        encrypted.map_err(|_| io::Error::other("encryption failed"))?;
        self.out.write_all(&self.chunk)?;
        self.chunk.clear();
        self.number += 1;
        Ok(())
    }
}

impl<W: Write> Write for Encryptor<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A full chunk is written when more follows, because the last one is marked.
        if self.chunk.len() == CHUNK_BYTES && !bytes.is_empty() {
            self.encrypt_chunk(false)?;
        }
        let count = bytes.len().min(CHUNK_BYTES - self.chunk.len());
        self.chunk.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A reader that decrypts a backup, starting after its header.
pub(crate) struct Decryptor<R> {
    input: R,
    cipher: LessSafeKey,
    /// Bytes that are not decrypted yet.
    ciphertext: Vec<u8>,
    /// The decrypted chunk, and the number of its bytes that were read.
    chunk: Vec<u8>,
    at: usize,
    number: u64,
    is_over: bool,
}

impl<R: Read> Decryptor<R> {
    pub(crate) fn new(input: R, key: &ContentKey) -> io::Result<Self> {
        let cipher = key.cipher()?;
        Ok(Self { input, cipher, ciphertext: Vec::new(), chunk: Vec::new(), at: 0, number: 0, is_over: false })
    }

    fn open(&mut self) -> io::Result<()> {
        const CIPHERTEXT_BYTES: usize = CHUNK_BYTES + TAG_BYTES;
        // One byte more shows whether another chunk follows.
        let missing = (CIPHERTEXT_BYTES + 1).saturating_sub(self.ciphertext.len());
        (&mut self.input).take(missing as u64).read_to_end(&mut self.ciphertext)?;
        self.is_over = self.ciphertext.len() <= CIPHERTEXT_BYTES;
        let rest = self.ciphertext.split_off(self.ciphertext.len().min(CIPHERTEXT_BYTES));
        let decrypted = self.cipher.open_in_place(nonce(self.number, self.is_over), Aad::empty(), &mut self.ciphertext);
        let length = decrypted.map_err(|_| io::Error::other("the backup is damaged or the key is not its key"))?.len();
        self.ciphertext.truncate(length);
        self.chunk = std::mem::replace(&mut self.ciphertext, rest);
        (self.at, self.number) = (0, self.number + 1);
        Ok(())
    }
}

impl<R: Read> Read for Decryptor<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.at == self.chunk.len() {
            if self.is_over {
                return Ok(0);
            }
            self.open()?;
        }
        let count = out.len().min(self.chunk.len() - self.at);
        out[..count].copy_from_slice(&self.chunk[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// Reads the private key of a file that only its owner can read.
pub(crate) fn read_secret(path: &std::path::Path) -> Result<String> {
    use std::os::unix::fs::MetadataExt;
    let context = || format!("failed to read the key {}", path.display());
    let mode = std::fs::metadata(path).with_context(context)?.mode();
    if mode & 0o077 != 0 {
        bail!("other users can read the key {}; run `chmod 600` on it", path.display());
    }
    std::fs::read_to_string(path).with_context(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ciphertext(content: &[u8], public: &str) -> Vec<u8> {
        let mut encryptor = Encryptor::new(Vec::new(), &ContentKey::for_recipient(public).unwrap()).unwrap();
        encryptor.write_all(content).unwrap();
        encryptor.finish().unwrap()
    }

    fn decrypted(ciphertext: &[u8], secret: &str) -> Result<Vec<u8>> {
        let (header, rest) = ciphertext.split_at(HEADER_BYTES);
        let mut content = Vec::new();
        Decryptor::new(rest, &ContentKey::from_header(header, secret)?)?.read_to_end(&mut content)?;
        Ok(content)
    }

    #[test]
    fn content_of_any_length_is_read_with_the_private_key_only() {
        let (secret, public) = new_key_pair().unwrap();
        let (other, _) = new_key_pair().unwrap();
        for length in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES] {
            let content: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let ciphertext = ciphertext(&content, &public);
            assert_eq!(decrypted(&ciphertext, &secret).unwrap(), content, "{length}");
            assert!(decrypted(&ciphertext, &other).is_err(), "{length}");
        }
    }

    #[test]
    fn changed_reordered_and_truncated_content_is_rejected() {
        let (secret, public) = new_key_pair().unwrap();
        let ciphertext = ciphertext(&vec![7; 2 * CHUNK_BYTES + 5], &public);
        let chunk = CHUNK_BYTES + TAG_BYTES;
        let mut changed = ciphertext.clone();
        changed[HEADER_BYTES + 3] ^= 1;
        let mut reordered = ciphertext.clone();
        reordered[HEADER_BYTES..HEADER_BYTES + 2 * chunk].rotate_left(chunk);
        for broken in [
            &changed,
            &reordered,
            &ciphertext[..HEADER_BYTES + 2 * chunk].to_vec(),
            &ciphertext[..ciphertext.len() - 1].to_vec(),
        ] {
            assert!(decrypted(broken, &secret).is_err());
        }
    }

    #[test]
    fn malformed_keys_are_rejected_with_their_form() {
        let (secret, public) = new_key_pair().unwrap();
        for key in ["", "backup-public:12", &secret, &public[..public.len() - 1]] {
            let error = ContentKey::for_recipient(key).err().unwrap();
            assert!(error.to_string().contains("backup-public:HEX"), "{error}");
        }
        let header = ContentKey::for_recipient(&public).unwrap().header;
        assert!(ContentKey::from_header(&header, &public).err().unwrap().to_string().contains("backup-secret:HEX"));
        assert!(ContentKey::from_header(b"other", &secret).is_err());
    }
}
