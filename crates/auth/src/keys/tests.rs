//! Tests of keys in all supported encodings.

use std::sync::LazyLock;

use proptest::prelude::*;

use apimachinery::json;
use aws_lc_rs::encoding::{AsDer, EcPrivateKeyRfc5915Der, Pkcs8V1Der};
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::EcdsaSigningAlgorithm;
use base64::engine::general_purpose::STANDARD;

use super::*;

/// A key in two PEM encodings.
struct EncodedKey {
    own: String,
    pkcs8: String,
}

static RSA_MADE: LazyLock<EncodedKey> = LazyLock::new(|| {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let pkcs8: Pkcs8V1Der<'_> = pair.as_der().unwrap();
    // PKCS #8 wraps PKCS #1 after version and algorithm: 22 bytes and the 4 bytes of the octet string header.
    EncodedKey { own: pem("RSA PRIVATE KEY", &pkcs8.as_ref()[26..]), pkcs8: pem("PRIVATE KEY", pkcs8.as_ref()) }
});

/// Returns an RSA key in PEM, generated once for all tests.
pub(crate) fn rsa_pem() -> &'static str {
    &RSA_MADE.pkcs8
}

/// Returns a new P-256 key in PEM.
pub(crate) fn p256_pem() -> String {
    elliptic(&signature::ECDSA_P256_SHA256_FIXED_SIGNING).pkcs8
}

fn elliptic(algorithm: &'static EcdsaSigningAlgorithm) -> EncodedKey {
    let pair = EcdsaKeyPair::generate(algorithm).unwrap();
    let sec1: EcPrivateKeyRfc5915Der<'_> = pair.private_key().as_der().unwrap();
    EncodedKey {
        own: pem("EC PRIVATE KEY", sec1.as_ref()),
        pkcs8: pem("PRIVATE KEY", pair.to_pkcs8v1().unwrap().as_ref()),
    }
}

fn pem(label: &str, bytes: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(bytes))
}

fn everything() -> Vec<(EncodedKey, Algorithm)> {
    let rsa = EncodedKey { own: RSA_MADE.own.clone(), pkcs8: RSA_MADE.pkcs8.clone() };
    vec![
        (rsa, Algorithm::Rs256),
        (elliptic(&signature::ECDSA_P256_SHA256_FIXED_SIGNING), Algorithm::Es256),
        (elliptic(&signature::ECDSA_P384_SHA384_FIXED_SIGNING), Algorithm::Es384),
        (elliptic(&signature::ECDSA_P521_SHA512_FIXED_SIGNING), Algorithm::Es512),
    ]
}

#[test]
fn key_is_equal_in_every_encoding_and_verifies_its_signatures() {
    for (made, algorithm) in everything() {
        let own = PrivateKey::from_pem(&made.own).unwrap();
        let pkcs8 = PrivateKey::from_pem(&made.pkcs8).unwrap();
        assert_eq!(own.public(), pkcs8.public());
        assert_eq!(own.public().algorithm(), algorithm);
        let public = pem("PUBLIC KEY", &own.public().to_spki());
        assert_eq!(PublicKey::all_from_pem(&public).unwrap(), [own.public().clone()]);
        assert_eq!(PublicKey::all_from_pem(&made.own).unwrap(), [own.public().clone()]);
        let signature = own.sign(b"message").unwrap();
        assert_eq!(pkcs8.public().verify(algorithm, b"message", &signature), Ok(()));
        assert_eq!(own.public().verify(algorithm, b"massage", &signature), Err(Error::Signature));
        assert_eq!(own.public().verify(algorithm, b"message", &signature[1..]), Err(Error::Signature));
    }
}

#[test]
fn algorithm_of_another_key_type_is_rejected() {
    for (made, algorithm) in everything() {
        let key = PrivateKey::from_pem(&made.own).unwrap();
        let signature = key.sign(b"message").unwrap();
        for other in ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"] {
            let other = Algorithm::named(other).unwrap();
            assert_eq!(key.public().verify(other, b"message", &signature).is_ok(), other == algorithm, "{other:?}");
        }
    }
}

#[test]
fn file_may_hold_several_keys_and_certificates() {
    let made = everything();
    let certified = rcgen::KeyPair::from_pem(&made[1].0.pkcs8).unwrap();
    let certificate = rcgen::CertificateParams::default().self_signed(&certified).unwrap();
    let file = format!("{}{}junk\n{}", certificate.pem(), made[0].0.own, made[2].0.pkcs8);
    let keys = PublicKey::all_from_pem(&file).unwrap();
    let expect: Vec<_> = [1, 0, 2].map(|at| PrivateKey::from_pem(&made[at].0.own).unwrap().public().clone()).into();
    assert_eq!(keys, expect);
    assert_eq!(PrivateKey::from_pem(&file).unwrap().public(), &expect[1]);
}

#[test]
fn key_set_round_trips_keys_and_ids() {
    let keys: Vec<_> =
        everything().iter().map(|(made, _)| PublicKey::all_from_pem(&made.own).unwrap().remove(0)).collect();
    let document = json::to_vec(&jwks(&keys));
    let set = KeySet::parse(&document).unwrap();
    assert_eq!(set, KeySet::of(keys.clone()));
    assert_eq!(set.candidates(&keys[1].id()).collect::<Vec<_>>(), [&keys[1]]);
    assert_eq!(set.candidates("").count(), 4);
    assert_eq!(set.candidates("other").count(), 0);
}

#[test]
fn invalid_keys_are_rejected_or_skipped() {
    assert_eq!(PrivateKey::from_pem("").unwrap_err(), Error::NoPrivateKey);
    assert_eq!(
        PublicKey::all_from_pem("-----BEGIN PUBLIC KEY-----\nAQI=\n-----END PUBLIC KEY-----"),
        Err(Error::NoPublicKey)
    );
    assert_eq!(KeySet::parse(b"{}"), Err(Error::KeySet));
    assert_eq!(KeySet::parse(b"[").unwrap_err(), Error::KeySet);
    let strange =
        br#"{"keys":[{"kty":"OKP"},{"kty":"RSA","n":"","e":"AQAB"},{"kty":"EC","crv":"P-256","x":"AA","y":"AA"},1]}"#;
    assert_eq!(KeySet::parse(strange), Ok(KeySet::default()));
}

/// Key IDs must equal upstream's, so that key sets and tokens stay valid when the server is replaced.
#[test]
fn key_ids_equal_upstreams() {
    // Modulus and exponent of the example key of RFC 7517, appendix A.1. The ID is the SHA-256 hash of its
    // SubjectPublicKeyInfo as written by OpenSSL.
    let document = br#"{"keys":[{"kty":"RSA","kid":"2011-04-29","e":"AQAB","n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"}]}"#;
    let set = KeySet::parse(document).unwrap();
    assert_eq!(set.0[0].1.id(), "rTIyDPbFltiEsFOBulc6uo3dV0m03o9KI6efmondrrI");
}

proptest! {
    /// Files and tokens are untrusted: parsing any bytes returns a key or none, without a panic.
    #[test]
    fn parsing_arbitrary_bytes_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..300, flip in 0usize..300) {
        let mut spki = PublicKey::all_from_pem(rsa_pem()).unwrap()[0].to_spki();
        let last = spki.len() - 1;
        spki[flip.min(last)] ^= 0x81;
        spki.truncate(cut);
        for input in [&bytes, &spki] {
            if let Some(key) = PublicKey::from_spki(input) {
                prop_assert_eq!(PublicKey::from_spki(&key.to_spki()), Some(key));
            }
            let _ = KeySet::parse(input);
            for label in ["PUBLIC KEY", "RSA PUBLIC KEY", "CERTIFICATE", "EC PRIVATE KEY", "PRIVATE KEY", "RSA PRIVATE KEY"] {
                let _ = PublicKey::all_from_pem(&pem(label, input));
            }
            let text = String::from_utf8_lossy(input);
            prop_assert!(crate::jwt::Token::parse(&text).is_err());
            prop_assert!(crate::x509::Subject::read(input, apimachinery::time::Time::from_unix(0, 0)).is_err());
        }
    }
}
