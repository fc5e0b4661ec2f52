//! Certificate requests: proof of possession and subject alternative names.

use std::net::IpAddr;

use api::certificates::request::CertificateRequest;
use aws_lc_rs::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use x509_parser::prelude::X509CertificationRequest;

use super::der;

/// Whether the request is signed by the key it contains.
pub(super) fn is_proven(request: &X509CertificationRequest<'_>) -> bool {
    let info = &request.certification_request_info;
    let key = &*info.subject_pki.subject_public_key.data;
    let Some(algorithm) = algorithm(request.signature_algorithm.algorithm.as_bytes(), key.len()) else {
        return false;
    };
    UnparsedPublicKey::new(algorithm, key).verify(info.raw, &request.signature_value.data).is_ok()
}

/// Returns the subject alternative names of a request, as GeneralNames in DER.
pub(super) fn names(request: &CertificateRequest) -> Vec<Vec<u8>> {
    let texts = |tag: u8, names: &[String]| names.iter().map(|name| der::tlv(tag, name.as_bytes())).collect::<Vec<_>>();
    let addresses = request.addresses.iter().map(|address| match address {
        IpAddr::V4(four) => der::tlv(0x87, &four.octets()),
        IpAddr::V6(six) => der::tlv(0x87, &six.octets()),
    });
    let mut names = texts(0x82, &request.dns_names);
    names.extend(texts(0x81, &request.emails));
    names.extend(addresses);
    names.extend(texts(0x86, &request.uris));
    names
}

/// Returns the signature verification algorithm. Public keys of the three curves differ in length.
fn algorithm(id: &[u8], key_len: usize) -> Option<&'static dyn VerificationAlgorithm> {
    Some(match (id, key_len) {
        (der::ECDSA_SHA256, 65) => &signature::ECDSA_P256_SHA256_ASN1,
        (der::ECDSA_SHA384, 65) => &signature::ECDSA_P256_SHA384_ASN1,
        (der::ECDSA_SHA512, 65) => &signature::ECDSA_P256_SHA512_ASN1,
        (der::ECDSA_SHA256, 97) => &signature::ECDSA_P384_SHA256_ASN1,
        (der::ECDSA_SHA384, 97) => &signature::ECDSA_P384_SHA384_ASN1,
        (der::ECDSA_SHA512, 97) => &signature::ECDSA_P384_SHA512_ASN1,
        (der::ECDSA_SHA256, 133) => &signature::ECDSA_P521_SHA256_ASN1,
        (der::ECDSA_SHA384, 133) => &signature::ECDSA_P521_SHA384_ASN1,
        (der::ECDSA_SHA512, 133) => &signature::ECDSA_P521_SHA512_ASN1,
        (der::RSA_SHA256, _) => &signature::RSA_PKCS1_2048_8192_SHA256,
        (der::RSA_SHA384, _) => &signature::RSA_PKCS1_2048_8192_SHA384,
        (der::RSA_SHA512, _) => &signature::RSA_PKCS1_2048_8192_SHA512,
        (der::ED25519, _) => &signature::ED25519,
        _ => return None,
    })
}
