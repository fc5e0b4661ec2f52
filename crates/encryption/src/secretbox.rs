//! NaCl secretbox: XSalsa20 and Poly1305.

use std::fmt;

use crypto_secretbox::aead::Aead;
use crypto_secretbox::{KeyInit, XSalsa20Poly1305};

use crate::error::Error;

pub(crate) const NONCE: usize = 24;
/// The size of the Poly1305 tag.
const TAG: usize = 16;

/// A secretbox. It does not authenticate the store path, so a value can be moved to another key.
pub(crate) struct Secretbox(XSalsa20Poly1305);

impl Secretbox {
    /// Creates a cipher from a key of 32 bytes.
    pub(crate) fn new(secret: &[u8]) -> Option<Self> {
        XSalsa20Poly1305::new_from_slice(secret).ok().map(Self)
    }

    /// Appends the nonce and the encrypted value to `out`.
    pub(crate) fn encrypt(&self, value: &[u8], nonce: [u8; NONCE], out: &mut Vec<u8>) -> Result<(), Error> {
        out.extend(nonce);
        out.extend(self.0.encrypt(&nonce.into(), value).map_err(|_| Error::Cipher)?);
        Ok(())
    }

    /// Decrypts a value.
    pub(crate) fn open(&self, sealed: &[u8]) -> Result<Vec<u8>, Error> {
        if sealed.len() < NONCE + TAG {
            return Err(Error::TooShort);
        }
        let (nonce, value) = sealed.split_first_chunk::<NONCE>().ok_or(Error::TooShort)?;
        self.0.decrypt(&(*nonce).into(), value).map_err(|_| Error::Secretbox)
    }
}

impl fmt::Debug for Secretbox {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Secretbox").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn secretbox_matches_the_known_answer() {
        // The test vector of NaCl's own tests.
        let key = bytes("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389");
        let nonce = *bytes("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37").first_chunk().unwrap();
        let plain = bytes(concat!(
            "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c61296cdc3c01233561f41db6",
            "6cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde048977eb48f59ffd4924ca1c60902e52f0a089bc",
            "76897040e082f937763848645e0705",
        ));
        let sealed = bytes(concat!(
            "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186ac0dfc17c98dce87b4da7",
            "f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae90224368517acfeabd6bb3732bc0e9da99832b61",
            "ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74e355a5",
        ));
        let secretbox = Secretbox::new(&key).unwrap();
        let mut out = Vec::new();
        secretbox.encrypt(&plain, nonce, &mut out).unwrap();
        assert_eq!(out[NONCE..], sealed);
        assert_eq!(secretbox.open(&out).unwrap(), plain);
    }
}
