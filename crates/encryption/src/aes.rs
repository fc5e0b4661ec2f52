//! AES-CBC, and AES-GCM with a given or a derived key.

use std::fmt;

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{self, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::hmac;
use aws_lc_rs::iv::FixedLength;

use crate::error::Error;

/// The AES block size, and the size of the CBC initialization vector.
pub(crate) const BLOCK: usize = 16;
/// The size of a GCM nonce.
pub(crate) const NONCE: usize = 12;
/// The size of the HKDF info, which precedes the nonce.
pub(crate) const INFO: usize = 32;
/// The minimum size of a seed.
pub(crate) const SEED: usize = 32;

/// AES-CBC with PKCS #7 padding, without authentication.
pub(crate) struct Cbc {
    encrypting: EncryptingKey,
    decrypting: DecryptingKey,
}

/// AES-GCM. The store path is authenticated as additional data, so that a value cannot be moved to another key.
pub(crate) struct Gcm(LessSafeKey);

/// AES-GCM with a separate key for each value, derived from a seed. The number of values per seed is not limited.
pub(crate) struct DerivedGcm(hmac::Key);

impl Cbc {
    /// Creates a cipher from a key of 16, 24 or 32 bytes.
    pub(crate) fn new(secret: &[u8]) -> Option<Self> {
        let algorithm = match secret.len() {
            16 => &cipher::AES_128,
            24 => &cipher::AES_192,
            32 => &cipher::AES_256,
            _ => return None,
        };
        let key = || UnboundCipherKey::new(algorithm, secret).ok();
        Some(Self { encrypting: EncryptingKey::cbc(key()?).ok()?, decrypting: DecryptingKey::cbc(key()?).ok()? })
    }

    /// Appends the initialization vector and the encrypted value to `out`.
    pub(crate) fn encrypt(&self, value: &[u8], first: [u8; BLOCK], out: &mut Vec<u8>) -> Result<(), Error> {
        out.extend(first);
        let start = out.len();
        out.extend(value);
        let padding = BLOCK - value.len() % BLOCK;
        out.extend(std::iter::repeat_n(padding as u8, padding));
        let context = EncryptionContext::Iv128(FixedLength::from(first));
        self.encrypting.less_safe_encrypt(&mut out[start..], context).map_err(|_| Error::Cipher)?;
        Ok(())
    }

    /// Decrypts a value.
    pub(crate) fn open(&self, sealed: &[u8]) -> Result<Vec<u8>, Error> {
        let (first, blocks) = sealed.split_first_chunk::<BLOCK>().ok_or(Error::TooShort)?;
        if blocks.len() % BLOCK != 0 {
            return Err(Error::BlockSize);
        }
        if blocks.is_empty() {
            return Err(Error::NotPadded);
        }
        let mut value = blocks.to_vec();
        let context = DecryptionContext::Iv128(FixedLength::from(*first));
        self.decrypting.decrypt(&mut value, context).map_err(|_| Error::Cipher)?;
        let padding = usize::from(*value.last().ok_or(Error::NotPadded)?);
        if padding == 0 || padding > value.len() {
            return Err(Error::NotPadded);
        }
        let end = value.len() - padding;
        if value[end..].iter().any(|byte| usize::from(*byte) != padding) {
            return Err(Error::Padding);
        }
        value.truncate(end);
        Ok(value)
    }
}

impl Gcm {
    /// Creates a cipher from a key of 16, 24 or 32 bytes.
    pub(crate) fn new(secret: &[u8]) -> Option<Self> {
        let algorithm = match secret.len() {
            16 => &aead::AES_128_GCM,
            24 => &aead::AES_192_GCM,
            32 => &aead::AES_256_GCM,
            _ => return None,
        };
        UnboundKey::new(algorithm, secret).ok().map(LessSafeKey::new).map(Self)
    }

    /// Appends the nonce and the encrypted value to `out`.
    pub(crate) fn encrypt(
        &self,
        value: &[u8],
        path: &[u8],
        nonce: [u8; NONCE],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        out.extend(nonce);
        let start = out.len();
        out.extend(value);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.0.seal_in_place_separate_tag(nonce, Aad::from(path), &mut out[start..]);
        out.extend(tag.map_err(|_| Error::Cipher)?.as_ref());
        Ok(())
    }

    /// Decrypts a value.
    pub(crate) fn open(&self, sealed: &[u8], path: &[u8]) -> Result<Vec<u8>, Error> {
        let (nonce, value) = sealed.split_first_chunk::<NONCE>().ok_or(Error::TooShort)?;
        let mut value = value.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.0.open_in_place(nonce, Aad::from(path), &mut value).map_err(|_| Error::Authentication)?.len();
        value.truncate(length);
        Ok(value)
    }
}

impl DerivedGcm {
    /// Creates a cipher from a seed of at least 32 bytes.
    pub(crate) fn new(seed: &[u8]) -> Option<Self> {
        (seed.len() >= SEED).then(|| Self(hmac::Key::new(hmac::HMAC_SHA256, seed)))
    }

    /// Appends the HKDF info, the nonce and the encrypted value to `out`.
    pub(crate) fn encrypt(
        &self,
        value: &[u8],
        path: &[u8],
        (info, nonce): ([u8; INFO], [u8; NONCE]),
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        out.extend(info);
        self.derive(&info)?.encrypt(value, path, nonce, out)
    }

    /// Decrypts a value.
    pub(crate) fn open(&self, sealed: &[u8], path: &[u8]) -> Result<Vec<u8>, Error> {
        let (info, rest) = sealed.split_first_chunk::<INFO>().ok_or(Error::TooShort)?;
        self.derive(info)?.open(rest, path)
    }

    /// Derives a key by HKDF-SHA256 expansion to 32 bytes, which is a single block and therefore a single HMAC.
    fn derive(&self, info: &[u8; INFO]) -> Result<Gcm, Error> {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(info);
        context.update(&[1]);
        Gcm::new(context.sign().as_ref()).ok_or(Error::Cipher)
    }
}

macro_rules! opaque {
    ($($name:ident),*) => {
        $(impl fmt::Debug for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        })*
    };
}

opaque!(Cbc, Gcm, DerivedGcm);

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn cbc_matches_known_answers() {
        // NIST SP 800-38A, F.2: the first block of each key size; the padding adds another block.
        let plain = bytes("6bc1bee22e409f96e93d7e117393172a");
        let first = *bytes("000102030405060708090a0b0c0d0e0f").first_chunk().unwrap();
        let check = |key: &str, sealed: &str| {
            let cbc = Cbc::new(&bytes(key)).unwrap();
            let mut out = Vec::new();
            cbc.encrypt(&plain, first, &mut out).unwrap();
            assert_eq!(out[BLOCK..2 * BLOCK], bytes(sealed), "{key}");
            assert_eq!(cbc.open(&out).unwrap(), plain);
        };
        check("2b7e151628aed2a6abf7158809cf4f3c", "7649abac8119b246cee98e9b12e9197d");
        check("8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b", "4f021db243bc633d7178183a9fa071e8");
        check("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4", "f58c4c04d6e5f1ba779eabfb5f7bfbd6");
    }

    #[test]
    fn gcm_matches_known_answers() {
        // Test cases 4, 10 and 16 of the GCM specification, one per key size.
        let nonce = *bytes("cafebabefacedbaddecaf888").first_chunk().unwrap();
        let plain = bytes(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
        );
        let path = bytes("feedfacedeadbeeffeedfacedeadbeefabaddad2");
        let check = |key: &str, tag: &str| {
            let gcm = Gcm::new(&bytes(key)).unwrap();
            let mut out = Vec::new();
            gcm.encrypt(&plain, &path, nonce, &mut out).unwrap();
            assert_eq!(out[out.len() - 16..], bytes(tag), "{key}");
            assert_eq!(gcm.open(&out, &path).unwrap(), plain);
        };
        check("feffe9928665731c6d6a8f9467308308", "5bc94fbc3221a5db94fae95ae7121a47");
        check("feffe9928665731c6d6a8f9467308308feffe9928665731c", "2519498e80f1478f37ba55bd6d27618c");
        check("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308", "76fc6ece0f4e1768cddf8853bb2d551b");
    }

    #[test]
    fn keys_are_derived_by_hkdf_expansion() {
        // RFC 5869, A.1: its pseudorandom key, an info of another size than ours, and the first 32 bytes of its output.
        let key = hmac::Key::new(
            hmac::HMAC_SHA256,
            &bytes("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5"),
        );
        let mut context = hmac::Context::with_key(&key);
        context.update(&bytes("f0f1f2f3f4f5f6f7f8f9"));
        context.update(&[1]);
        let expect = bytes("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
        assert_eq!(context.sign().as_ref(), expect);
        // Compared with the library's own expansion, for our info size.
        struct Bytes32;
        impl aws_lc_rs::hkdf::KeyType for Bytes32 {
            fn len(&self) -> usize {
                32
            }
        }
        let (seed, info) = ([7; SEED], [9; INFO]);
        let prk = aws_lc_rs::hkdf::Prk::new_less_safe(aws_lc_rs::hkdf::HKDF_SHA256, &seed);
        let mut derived = [0; 32];
        prk.expand(&[&info], Bytes32).unwrap().fill(&mut derived).unwrap();
        let (mut actual, mut expected) = (Vec::new(), Vec::new());
        DerivedGcm::new(&seed).unwrap().encrypt(b"value", b"path", (info, [1; NONCE]), &mut actual).unwrap();
        Gcm::new(&derived).unwrap().encrypt(b"value", b"path", [1; NONCE], &mut expected).unwrap();
        assert_eq!(actual[INFO..], expected);
    }

    #[test]
    fn invalid_padding_is_an_error() {
        let cbc = Cbc::new(&[1; 32]).unwrap();
        let encrypt = |padded: &[u8]| {
            let mut out = vec![0; BLOCK];
            out.extend(padded);
            let context = EncryptionContext::Iv128(FixedLength::from([0; BLOCK]));
            cbc.encrypting.less_safe_encrypt(&mut out[BLOCK..], context).unwrap();
            out
        };
        assert!(matches!(cbc.open(&encrypt(&[0; 16])), Err(Error::NotPadded)));
        assert!(matches!(cbc.open(&encrypt(&[17; 16])), Err(Error::NotPadded)));
        assert!(matches!(cbc.open(&encrypt(&[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3])), Err(Error::Padding)));
        assert!(matches!(cbc.open(&[0; 16]), Err(Error::NotPadded)));
        assert!(matches!(cbc.open(&[0; 15]), Err(Error::TooShort)));
        assert!(matches!(cbc.open(&[0; 33]), Err(Error::BlockSize)));
    }
}
