//! PEM files.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

#[derive(Clone, PartialEq, Eq)]
pub struct Block {
    /// The type in the first line, such as `RSA PRIVATE KEY`.
    pub label: String,
    pub bytes: Vec<u8>,
}

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Returns the blocks of a file. As in Go, surrounding text and invalid blocks are skipped.
pub fn blocks(text: &str) -> impl Iterator<Item = Block> {
    let mut lines = text.lines().map(str::trim);
    std::iter::from_fn(move || {
        loop {
            let label = loop {
                if let Some(label) = marker(lines.next()?, "-----BEGIN ") {
                    break label;
                }
            };
            let mut body = String::new();
            let closed = loop {
                match lines.next() {
                    None => break false,
                    Some(line) => match marker(line, "-----END ") {
                        Some(end) => break end == label,
                        // Skip headers, such as those of encrypted keys.
                        None if line.contains(':') => {}
                        None => body.push_str(line),
                    },
                }
            };
            if let (true, Ok(bytes)) = (closed, BASE64.decode(&body)) {
                return Some(Block { label: label.to_owned(), bytes });
            }
        }
    })
}

/// Returns the certificates of a file in DER.
pub fn certificates(text: &str) -> Vec<Vec<u8>> {
    blocks(text).filter(|block| block.label == "CERTIFICATE").map(|block| block.bytes).collect()
}

fn marker<'a>(line: &'a str, start: &str) -> Option<&'a str> {
    line.strip_prefix(start)?.strip_suffix("-----")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_among_other_text() {
        let file =
            "note\n-----BEGIN A-----\nAQI=\n-----END A-----\nx\r\n-----BEGIN B C-----\r\nAw\r\nQ=\r\n-----END B C-----";
        let found: Vec<_> = blocks(file).map(|block| (block.label, block.bytes)).collect();
        assert_eq!(found, [("A".to_owned(), vec![1, 2]), ("B C".to_owned(), vec![3, 4])]);
    }

    #[test]
    fn broken_blocks_are_skipped() {
        let check = |file: &str| assert_eq!(blocks(file).count(), 0, "{file}");
        check("-----BEGIN A-----\nAQI=\n");
        check("-----BEGIN A-----\nAQI=\n-----END B-----\n");
        check("-----BEGIN A-----\n!\n-----END A-----\n");
        check("-----BEGIN ");
    }
}
