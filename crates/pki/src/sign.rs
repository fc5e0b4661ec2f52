//! Signs certificate requests with a CA, whose files are read on every call because they may change.
//!
//! Names and keys are copied byte for byte from the request, so that comparisons with the request succeed.

mod der;
mod request;

use api::certificates::request::CertificateRequest;
use apimachinery::time::{Duration, Time};
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use rcgen::{KeyPair, SigningKey as _};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer, X509Certificate, X509CertificationRequest};

use crate::{Error, Pair, read_key};
use der::{bits, context, octets, oid, sequence, tlv};

/// Tolerated clock difference between hosts.
const BACKDATE: Duration = Duration::from_seconds(5 * 60);
/// Above this lifetime, backdating does not extend the total validity.
const SHORT: Duration = Duration::from_seconds(8 * 3600);

/// A certificate to sign.
#[derive(Clone, Copy, Debug)]
pub struct SigningRequest<'a> {
    /// The certificate request, in DER.
    pub request: &'a [u8],
    /// API usages, for example `client auth`.
    pub usages: &'a [String],
    /// Lifetime, limited by the CA's.
    pub life: Duration,
}

/// Reasons why a certificate was not signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// The files of the CA cannot be used.
    #[error("the CA cannot be used")]
    Ca(#[from] Error),
    /// The CA has expired.
    #[error("the signer has expired: NotAfter={0}")]
    Expired(Time),
    #[error("the certificate request cannot be parsed")]
    Malformed,
    /// The request is not signed by the key it contains.
    #[error("the certificate request is not signed by the key it contains")]
    InvalidSignature,
    #[error("unrecognized usage values: {0:?}")]
    Usage(String),
    /// Signing or drawing the serial number failed.
    #[error("the certificate cannot be signed")]
    Key,
}

/// Signs a certificate and returns it as PEM.
pub fn sign(ca: &Pair, signing_request: &SigningRequest<'_>, now: Time) -> Result<String, SignError> {
    let path = &ca.certificate;
    let unreadable = || Error::Certificate { path: path.clone() };
    let issuer = CertificateDer::from_pem_file(path).map_err(|_| unreadable())?;
    let (_, issuer) = X509Certificate::from_der(&issuer).map_err(|_| unreadable())?;
    let key = read_key(&ca.key)?;
    let ends = Time::from_unix(issuer.validity().not_after.timestamp(), 0);
    if ends <= now {
        return Err(SignError::Expired(ends));
    }
    let checked = CertificateRequest::from_der(signing_request.request).map_err(|_| SignError::Malformed)?;
    let (_, request) = X509CertificationRequest::from_der(&checked.der).map_err(|_| SignError::Malformed)?;
    request::is_proven(&request).then_some(()).ok_or(SignError::InvalidSignature)?;
    let body = body(&issuer, &request, &request::names(&checked), signing_request, &key, (now, ends))?;
    let signature = key.sign(&body).map_err(|_| SignError::Key)?;
    let certificate =
        sequence(&[&body, &algorithm(&key)?, &tlv(der::BIT_STRING, &[&[0], signature.as_slice()].concat())]);
    Ok(api::certificates::pem::certificate(&certificate))
}

/// Returns the TBSCertificate in DER.
fn body(
    issuer: &X509Certificate<'_>,
    request: &X509CertificationRequest<'_>,
    names: &[Vec<u8>],
    signing_request: &SigningRequest<'_>,
    key: &KeyPair,
    (now, ends): (Time, Time),
) -> Result<Vec<u8>, SignError> {
    let life = if signing_request.life > SHORT {
        signing_request.life.nanos() - BACKDATE.nanos()
    } else {
        signing_request.life.nanos()
    };
    let begins = now.plus(Duration::from_nanos(-BACKDATE.nanos()));
    let info = &request.certification_request_info;
    Ok(sequence(&[
        // Version 3, encoded as 2.
        &context(0, &tlv(der::INTEGER, &[2])),
        &tlv(der::INTEGER, &serial()?),
        &algorithm(key)?,
        issuer.subject().as_raw(),
        &sequence(&[&der::time(begins), &der::time(now.plus(Duration::from_nanos(life)).min(ends))]),
        info.subject.as_raw(),
        info.subject_pki.raw,
        &context(3, &sequence_of(&extensions(issuer, request, names, signing_request.usages)?)),
    ]))
}

fn extensions(
    issuer: &X509Certificate<'_>,
    request: &X509CertificationRequest<'_>,
    names: &[Vec<u8>],
    usages: &[String],
) -> Result<Vec<Vec<u8>>, SignError> {
    let extension = |id: &[u8], critical: bool, value: &[u8]| {
        let flag = if critical { tlv(der::BOOLEAN, &[0xff]) } else { Vec::new() };
        sequence(&[&oid(id), &flag, &octets(value)])
    };
    let (key_bits, purposes) = der::usages(usages).map_err(SignError::Usage)?;
    let mut list = Vec::new();
    if key_bits != 0 {
        list.push(extension(der::KEY_USAGE, true, &bits(key_bits)));
    }
    if !purposes.is_empty() {
        let purposes: Vec<Vec<u8>> = purposes.iter().map(|id| oid(id)).collect();
        list.push(extension(der::EXTENDED_KEY_USAGE, false, &sequence_of(&purposes)));
    }
    list.push(extension(der::BASIC_CONSTRAINTS, true, &sequence(&[])));
    list.push(extension(der::AUTHORITY_KEY, false, &sequence(&[&tlv(0x80, &key_identifier(issuer))])));
    if !names.is_empty() {
        let is_subject_empty = request.certification_request_info.subject.iter().next().is_none();
        list.push(extension(der::ALTERNATIVE_NAMES, is_subject_empty, &sequence_of(names)));
    }
    Ok(list)
}

/// Returns the CA's subject key identifier, or one derived from its key.
fn key_identifier(issuer: &X509Certificate<'_>) -> Vec<u8> {
    let stated = issuer.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(identifier) => Some(identifier.0.to_vec()),
        _ => None,
    });
    let key = &issuer.public_key().subject_public_key.data;
    stated.unwrap_or_else(|| digest(&SHA1_FOR_LEGACY_USE_ONLY, key).as_ref().to_vec())
}

/// Returns a random positive serial number of 127 bits.
fn serial() -> Result<[u8; 16], SignError> {
    let mut bytes = [0u8; 16];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| SignError::Key)?;
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(bytes)
}

/// Returns the signature AlgorithmIdentifier of a key in DER.
fn algorithm(key: &KeyPair) -> Result<Vec<u8>, SignError> {
    let known = [
        (&rcgen::PKCS_ECDSA_P256_SHA256, der::ECDSA_SHA256),
        (&rcgen::PKCS_ECDSA_P384_SHA384, der::ECDSA_SHA384),
        (&rcgen::PKCS_ECDSA_P521_SHA512, der::ECDSA_SHA512),
        (&rcgen::PKCS_ED25519, der::ED25519),
    ];
    if let Some((_, id)) = known.iter().find(|(algorithm, _)| *algorithm == key.algorithm()) {
        return Ok(sequence(&[&oid(id)]));
    }
    if key.algorithm() == &rcgen::PKCS_RSA_SHA256 {
        return Ok(sequence(&[&oid(der::RSA_SHA256), &tlv(der::NULL, &[])]));
    }
    Err(SignError::Key)
}

fn sequence_of(items: &[Vec<u8>]) -> Vec<u8> {
    let items: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
    sequence(&items)
}

#[cfg(test)]
mod tests;
