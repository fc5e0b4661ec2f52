//! PEM: one strict parser for text that must be a single block, and a lenient one for bundles.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

/// The PEM label of a certificate.
const CERTIFICATE: &str = "CERTIFICATE";

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
    /// The text is not exactly one PEM block with this label.
    #[error("must be exactly one PEM block of type {0}, without headers and without text around it")]
    Single(&'static str),
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

/// The content of text that is exactly one PEM block: nothing before it, no headers, only whitespace after it.
///
/// Every PEM parser reads such text alike, so a decision about the returned bytes is a decision about the text.
pub fn single(text: &[u8], label: &'static str) -> Result<Vec<u8>, Error> {
    let parse = || {
        let text = std::str::from_utf8(text).ok()?;
        let body = text.strip_prefix(&format!("-----BEGIN {label}-----"))?.trim_ascii_end();
        let body = body.strip_suffix(&format!("-----END {label}-----"))?;
        let mut lines = body.lines();
        let is_own_line = lines.next()?.trim_ascii().is_empty() && body.ends_with('\n');
        let content: String = lines.map(str::trim_ascii_end).collect();
        is_own_line.then(|| STANDARD.decode(content).ok()).flatten().filter(|bytes| !bytes.is_empty())
    };
    parse().ok_or(Error::Single(label))
}

/// Whether the text begins with a PEM block of this label.
pub fn begins_with(text: &[u8], label: &str) -> bool {
    text.starts_with(format!("-----BEGIN {label}-----").as_bytes())
}

/// The DER of text that is exactly one certificate.
pub fn single_certificate(text: &[u8]) -> Result<Vec<u8>, Error> {
    let der = single(text, CERTIFICATE)?;
    match X509Certificate::from_der(&der) {
        Ok(([], _)) => Ok(der),
        _ => Err(Error::MalformedCertificate),
    }
}

/// A certificate as PEM, in lines of 64 characters.
pub fn certificate(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN {CERTIFICATE}-----\n{}\n-----END {CERTIFICATE}-----\n", lines.join("\n"))
}

/// What is wrong with a text that should hold certificates and nothing else.
pub fn check_certificates(text: &str) -> Result<(), Error> {
    let blocks = blocks(text);
    if blocks.is_empty() {
        return Err(Error::Empty);
    }
    for block in blocks {
        if block.label != CERTIFICATE {
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
    fn a_single_block_stands_alone() {
        let check = |text: &str, expect: Option<&[u8]>| {
            assert_eq!(single(text.as_bytes(), "A").ok().as_deref(), expect, "{text:?}");
        };
        check("-----BEGIN A-----\nYWI=\n-----END A-----\n", Some(b"ab"));
        check("-----BEGIN A-----\r\nYW\r\nI=\r\n-----END A-----\r\n\n", Some(b"ab"));
        check("-----BEGIN A-----\nYWI=\n-----END A-----", Some(b"ab"));
        check("\n-----BEGIN A-----\nYWI=\n-----END A-----\n", None);
        check("x\n-----BEGIN A-----\nYWI=\n-----END A-----\n", None);
        check("-----BEGIN A-----\nYWI=\n-----END A-----\nx", None);
        check("-----BEGIN A-----\nYWI=\n-----END A-----\n-----BEGIN A-----\nYWI=\n-----END A-----\n", None);
        check("-----BEGIN A-----\nk: v\n\nYWI=\n-----END A-----\n", None);
        check("-----BEGIN A-----YWI=\n-----END A-----\n", None);
        check("-----BEGIN A-----\nYWI=-----END A-----\n", None);
        check("-----BEGIN A-----\nYWJ=\n-----END A-----\n", None);
        check("-----BEGIN A-----\n-----END A-----\n", None);
        check("-----BEGIN B-----\nYWI=\n-----END B-----\n", None);
    }

    #[test]
    fn a_bundle_holds_certificates_only() {
        let garbage = "-----BEGIN CERTIFICATE REQUEST-----\nYWI=\n-----END CERTIFICATE REQUEST-----";
        assert_eq!(check_certificates(garbage), Err(Error::Other("CERTIFICATE REQUEST".into())));
        assert_eq!(single_certificate(certificate(b"ab").as_bytes()), Err(Error::MalformedCertificate));
    }
}
