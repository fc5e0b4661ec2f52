//! Key bundle: the files that all servers share, encrypted with a key that is part of a join token for servers.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use apimachinery::{Object, Value, json};
use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use pki::Pki;

use super::hex;

/// Length of the nonce, which precedes the ciphertext.
const NONCE_LEN: usize = 12;

/// Generates a key, in hexadecimal.
pub(crate) fn new_key() -> Result<String> {
    let mut bytes = [0; 32];
    aws_lc_rs::rand::fill(&mut bytes).ok().context("failed to read random bytes")?;
    Ok(hex(&bytes))
}

/// Encrypts the files that servers share. The result is base64 text.
pub(crate) fn encrypt(pki: &Pki, key: &str) -> Result<String> {
    let mut files = Object::new();
    for path in pki.shared() {
        let text = std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
        let name = path.file_name().and_then(|name| name.to_str()).context("a file has a name")?.to_owned();
        files.insert(name, text);
    }
    let mut bytes = json::to_string(&Value::Object(files)).into_bytes();
    let sealed = cipher(key)?.seal_in_place_append_tag(Aad::empty(), &mut bytes);
    let nonce = sealed.ok().context("failed to encrypt the key bundle")?;
    Ok(BASE64.encode([nonce.as_ref().as_slice(), &bytes].concat()))
}

/// Decrypts the files into a directory. Fails if a file exists: it belongs to another cluster.
pub(crate) fn decrypt(encrypted: &str, key: &str, dir: &Path) -> Result<()> {
    let bytes = BASE64.decode(encrypted).context("the key bundle is damaged")?;
    ensure!(bytes.len() > NONCE_LEN, "the key bundle is damaged");
    let (nonce, sealed) = bytes.split_at(NONCE_LEN);
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok().context("the key bundle is damaged")?;
    let mut sealed = sealed.to_vec();
    let open = cipher(key)?.open_in_place(nonce, Aad::empty(), &mut sealed).map(|open| open.to_vec());
    let files = json::parse(&open.ok().context("the token's key does not decrypt the key bundle")?)?;
    std::fs::create_dir_all(dir)?;
    for (name, text) in files.as_object().context("the key bundle is damaged")?.iter() {
        let path = dir.join(name);
        let text = text.as_str().context("the key bundle is damaged")?;
        ensure!(!name.contains('/'), "the key bundle is damaged");
        pki::write(&path, text, 0o600)?;
    }
    Ok(())
}

fn cipher(key: &str) -> Result<RandomizedNonceKey> {
    let byte = |at: usize| key.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    let bytes: Option<Vec<u8>> = (0..key.len()).step_by(2).map(byte).collect();
    let bytes = bytes.context("the token's key is not hexadecimal")?;
    RandomizedNonceKey::new(&AES_256_GCM, &bytes).ok().context("the token's key has the wrong length")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundle_is_decrypted_only_with_its_key() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let pki = Pki::open(from.path()).unwrap();
        let key = new_key().unwrap();
        let encrypted = encrypt(&pki, &key).unwrap();
        assert!(!BASE64.decode(&encrypted).unwrap().windows(5).any(|part| part == b"BEGIN"));
        assert!(decrypt(&encrypted, &new_key().unwrap(), to.path()).is_err());
        assert!(decrypt(&encrypted, "12", to.path()).is_err());
        assert!(decrypt("AAAA", &key, to.path()).is_err());
        assert_eq!(std::fs::read_dir(to.path()).unwrap().count(), 0, "nothing is written with a wrong key");
        decrypt(&encrypted, &key, to.path()).unwrap();
        for path in pki.shared() {
            let copy = to.path().join(path.file_name().unwrap());
            assert_eq!(std::fs::read(&copy).unwrap(), std::fs::read(&path).unwrap());
        }
    }
}
