//! Certificates and requests in their text form.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use x509_parser::certificate::X509Certificate;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

/// One block of a text: what it says it is, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// `CERTIFICATE`
    pub label: String,
    /// Whether lines such as `Proc-Type: …` come before the content.
    pub headers: bool,
    /// The content.
    pub bytes: Vec<u8>,
}

/// Why a text holds no certificate or request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The first block is no request.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    NoRequest,
    /// What the block holds is no PKCS#10 request.
    #[error("asn1: structure error: not a certification request")]
    MalformedRequest,
    /// There is no block.
    #[error("must contain one or more PEM blocks")]
    Empty,
    /// A block is something else.
    #[error("only CERTIFICATE PEM blocks are allowed, found {}", machinery::go::quote(.0))]
    Other(String),
    /// A block has lines before its content.
    #[error("no PEM block headers are permitted")]
    Headers,
    /// What a block holds is no certificate.
    #[error("x509: malformed certificate")]
    MalformedCertificate,
}

/// The blocks of a text in order; what is not one is passed over.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut rest = text;
    while let Some((label, body, after)) = next_block(rest) {
        rest = after;
        let (headers, content) = match body.split_once("\n\n") {
            Some((headers, content)) if headers.contains(':') => (true, content),
            _ => (false, body),
        };
        let content: String = content.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        if let Ok(bytes) = STANDARD.decode(content) {
            blocks.push(Block { label: label.to_owned(), headers, bytes });
        }
    }
    blocks
}

/// What is wrong with a text that should hold a request for a certificate.
pub fn check_request(text: &str) -> Result<(), Error> {
    let block = blocks(text).into_iter().next().filter(|block| block.label == "CERTIFICATE REQUEST");
    let block = block.ok_or(Error::NoRequest)?;
    match X509CertificationRequest::from_der(&block.bytes) {
        Ok(([], _)) => Ok(()),
        _ => Err(Error::MalformedRequest),
    }
}

/// What is wrong with a text that should hold certificates and nothing else.
pub fn check_certificates(text: &str) -> Result<(), Error> {
    let blocks = blocks(text);
    if blocks.is_empty() {
        return Err(Error::Empty);
    }
    for block in blocks {
        if block.label != "CERTIFICATE" {
            return Err(Error::Other(block.label));
        }
        if block.headers {
            return Err(Error::Headers);
        }
        match X509Certificate::from_der(&block.bytes) {
            Ok(([], _)) => {}
            _ => return Err(Error::MalformedCertificate),
        }
    }
    Ok(())
}

fn next_block(text: &str) -> Option<(&str, &str, &str)> {
    let start = text.find("-----BEGIN ")?;
    let (label, rest) = text[start + "-----BEGIN ".len()..].split_once("-----")?;
    let end = format!("-----END {label}-----");
    let (body, after) = rest.split_once(end.as_str())?;
    Some((label, body.trim(), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_among_other_text() {
        let text =
            "noise\n-----BEGIN A-----\nYWI=\n-----END A-----\nmore\n-----BEGIN B-----\nk: v\n\nYWI=\n-----END B-----\n";
        let found = blocks(text);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], Block { label: "A".into(), headers: false, bytes: b"ab".to_vec() });
        assert!(found[1].headers);
    }

    #[test]
    fn what_is_no_request_says_why() {
        assert_eq!(check_request(""), Err(Error::NoRequest));
        assert_eq!(
            check_request("-----BEGIN CERTIFICATE-----\nYWI=\n-----END CERTIFICATE-----"),
            Err(Error::NoRequest)
        );
        let garbage = "-----BEGIN CERTIFICATE REQUEST-----\nYWI=\n-----END CERTIFICATE REQUEST-----";
        assert_eq!(check_request(garbage), Err(Error::MalformedRequest));
        assert_eq!(check_certificates(garbage), Err(Error::Other("CERTIFICATE REQUEST".into())));
    }
}
