//! What a request for a certificate says, and whether it comes from the holder of its key.

use aws_lc_rs::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::X509CertificationRequest;

use super::der;

/// Whether the request is signed by the key that it names.
pub fn is_proven(request: &X509CertificationRequest<'_>) -> bool {
    let info = &request.certification_request_info;
    let key = &*info.subject_pki.subject_public_key.data;
    let Some(algorithm) = algorithm(request.signature_algorithm.algorithm.as_bytes(), key.len()) else {
        return false;
    };
    UnparsedPublicKey::new(algorithm, key).verify(info.raw, &request.signature_value.data).is_ok()
}

/// Names, addresses, mail addresses and URIs, as they stand in the request. Other names have no meaning here.
pub fn names(request: &X509CertificationRequest<'_>) -> Vec<Vec<u8>> {
    let extensions = request.requested_extensions().into_iter().flatten();
    let names = extensions.filter_map(|extension| match extension {
        ParsedExtension::SubjectAlternativeName(names) => Some(&names.general_names),
        _ => None,
    });
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::RFC822Name(text) => Some(der::tlv(0x81, text.as_bytes())),
        GeneralName::DNSName(text) => Some(der::tlv(0x82, text.as_bytes())),
        GeneralName::URI(text) => Some(der::tlv(0x86, text.as_bytes())),
        GeneralName::IPAddress(bytes) => Some(der::tlv(0x87, bytes)),
        _ => None,
    };
    names.flatten().filter_map(name).collect()
}

/// How a signature is checked. Points of the three curves differ in length.
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
