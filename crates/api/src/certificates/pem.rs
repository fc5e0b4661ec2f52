//! PEM parsing: a strict parser for exactly one block, and a lenient one for bundles.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

const CERTIFICATE: &str = "CERTIFICATE";

/// A PEM block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Such as `CERTIFICATE`.
    pub label: String,
    /// Whether the block has headers such as `Proc-Type: …`.
    pub headers: bool,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    NoRequest,
    #[error("must be exactly one PEM block of type {0}, without headers and without text around it")]
    Single(&'static str),
    #[error("asn1: structure error: not a certification request")]
    MalformedRequest,
    #[error("must contain one or more PEM blocks")]
    Empty,
    #[error("only CERTIFICATE PEM blocks are allowed, found {}", apimachinery::go::quote(.0))]
    Other(String),
    #[error("no PEM block headers are permitted")]
    Headers,
    #[error("x509: malformed certificate")]
    MalformedCertificate,
}

/// Returns the PEM blocks in order and skips other text.
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

/// Returns the content of text that is exactly one PEM block: nothing before it, no headers, only whitespace after it.
///
/// Every PEM parser reads such text alike, so a check of the returned bytes is a check of the text.
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

/// Returns the text after its leading comment lines. A comment line starts with `#` and does not contain `-----`, which
/// a parser could take for the start of a block.
pub fn without_comments(mut text: &[u8]) -> &[u8] {
    while text.starts_with(b"#")
        && let Some(end) = text.iter().position(|byte| *byte == b'\n')
        && !text[..end].windows(5).any(|window| window == b"-----")
    {
        text = &text[end + 1..];
    }
    text
}

/// Whether the text starts with a PEM block of this label.
pub fn begins_with(text: &[u8], label: &str) -> bool {
    text.starts_with(format!("-----BEGIN {label}-----").as_bytes())
}

/// Returns the DER of text that is exactly one certificate.
pub fn single_certificate(text: &[u8]) -> Result<Vec<u8>, Error> {
    let der = single(text, CERTIFICATE)?;
    match X509Certificate::from_der(&der) {
        Ok(([], _)) => Ok(der),
        _ => Err(Error::MalformedCertificate),
    }
}

/// Encodes a certificate as PEM, in lines of 64 characters.
pub fn certificate(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN {CERTIFICATE}-----\n{}\n-----END {CERTIFICATE}-----\n", lines.join("\n"))
}

/// Fails if the text contains no block, or a block that is not a certificate.
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
    fn strict_parser_accepts_exactly_one_block() {
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
    fn bundle_contains_only_certificates() {
        let garbage = "-----BEGIN CERTIFICATE REQUEST-----\nYWI=\n-----END CERTIFICATE REQUEST-----";
        assert_eq!(check_certificates(garbage), Err(Error::Other("CERTIFICATE REQUEST".into())));
        assert_eq!(single_certificate(certificate(b"ab").as_bytes()), Err(Error::MalformedCertificate));
    }
}
