//! Signs what others ask for: a request becomes a certificate of an authority whose files may change at any time.
//!
//! Names and keys are taken over byte for byte, so that whoever compares finds what was asked for.

mod der;
mod request;

use api::certificates::request::CertificateRequest;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use machinery::time::{Duration, Time};
use rcgen::{KeyPair, SigningKey as _};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer, X509Certificate, X509CertificationRequest};

use crate::{Error, Pair, read_key};
use der::{bits, context, octets, oid, sequence, tlv};

/// Clocks of machines differ by so much.
const BACKDATE: Duration = Duration::from_seconds(5 * 60);
/// What lasts longer than this lasts no longer altogether for having begun earlier.
const SHORT: Duration = Duration::from_seconds(8 * 3600);

/// What is to be signed.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The request, in DER.
    pub request: &'a [u8],
    /// What the certificate is for, in the words of the API: `client auth`.
    pub usages: &'a [String],
    /// How long it lasts, at most as long as the authority.
    pub life: Duration,
}

/// Why nothing was signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// The files of the authority cannot be used.
    #[error("the authority cannot be used")]
    Authority(#[from] Error),
    /// The authority is over.
    #[error("the signer has expired: NotAfter={0}")]
    Expired(Time),
    /// What was asked for cannot be read.
    #[error("the request cannot be read")]
    Malformed,
    /// It is not signed by the key that it names.
    #[error("the request is not signed by the key that it is for")]
    Unproven,
    /// Nobody knows such a usage.
    #[error("unrecognized usage values: {0:?}")]
    Usage(String),
    /// The key cannot sign, or no number can be drawn.
    #[error("the certificate cannot be signed")]
    Key,
}

/// Signs a certificate, and gives it in PEM.
pub fn sign(authority: &Pair, wanted: &Wanted<'_>, now: Time) -> Result<String, SignError> {
    let path = &authority.certificate;
    let unreadable = || Error::Certificate { path: path.clone() };
    let issuer = CertificateDer::from_pem_file(path).map_err(|_| unreadable())?;
    let (_, issuer) = X509Certificate::from_der(&issuer).map_err(|_| unreadable())?;
    let key = read_key(&authority.key)?;
    let ends = Time::from_unix(issuer.validity().not_after.timestamp(), 0);
    if ends <= now {
        return Err(SignError::Expired(ends));
    }
    let checked = CertificateRequest::from_der(wanted.request).map_err(|_| SignError::Malformed)?;
    let (_, request) = X509CertificationRequest::from_der(&checked.der).map_err(|_| SignError::Malformed)?;
    request::is_proven(&request).then_some(()).ok_or(SignError::Unproven)?;
    let body = body(&issuer, &request, &request::names(&checked), wanted, &key, (now, ends))?;
    let signature = key.sign(&body).map_err(|_| SignError::Key)?;
    let certificate =
        sequence(&[&body, &algorithm(&key)?, &tlv(der::BIT_STRING, &[&[0], signature.as_slice()].concat())]);
    Ok(api::certificates::pem::certificate(&certificate))
}

/// The part of a certificate that is signed.
fn body(
    issuer: &X509Certificate<'_>,
    request: &X509CertificationRequest<'_>,
    names: &[Vec<u8>],
    wanted: &Wanted<'_>,
    key: &KeyPair,
    (now, ends): (Time, Time),
) -> Result<Vec<u8>, SignError> {
    let life = if wanted.life > SHORT { wanted.life.nanos() - BACKDATE.nanos() } else { wanted.life.nanos() };
    let begins = now.plus(Duration::from_nanos(-BACKDATE.nanos()));
    let info = &request.certification_request_info;
    Ok(sequence(&[
        // The third version, counted from nothing.
        &context(0, &tlv(der::INTEGER, &[2])),
        &tlv(der::INTEGER, &serial()?),
        &algorithm(key)?,
        issuer.subject().as_raw(),
        &sequence(&[&der::time(begins), &der::time(now.plus(Duration::from_nanos(life)).min(ends))]),
        info.subject.as_raw(),
        info.subject_pki.raw,
        &context(3, &sequence_of(&extensions(issuer, request, names, wanted.usages)?)),
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
        let nobody = request.certification_request_info.subject.iter().next().is_none();
        list.push(extension(der::ALTERNATIVE_NAMES, nobody, &sequence_of(names)));
    }
    Ok(list)
}

/// What the authority calls its key, or a name from the key itself if it has none.
fn key_identifier(issuer: &X509Certificate<'_>) -> Vec<u8> {
    let stated = issuer.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(identifier) => Some(identifier.0.to_vec()),
        _ => None,
    });
    let key = &issuer.public_key().subject_public_key.data;
    stated.unwrap_or_else(|| digest(&SHA1_FOR_LEGACY_USE_ONLY, key).as_ref().to_vec())
}

/// A number that nobody has: positive, and of 127 bits.
fn serial() -> Result<[u8; 16], SignError> {
    let mut bytes = [0u8; 16];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| SignError::Key)?;
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(bytes)
}

/// How a key signs, as certificates say it.
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
