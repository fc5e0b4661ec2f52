//! Consistency checks of the certificate and request parsers, for fuzzing and for the test corpus.

use x509_parser::pem::parse_x509_pem;

use super::pem;
use super::request::CertificateRequest;

/// Panics if the strict parser accepts input that another parser reads differently, or if it does not accept its own
/// output.
pub fn check(bytes: &[u8]) {
    if let Ok(request) = CertificateRequest::from_pem(bytes) {
        assert_eq!(
            CertificateRequest::from_der(&request.der).as_ref(),
            Ok(&request),
            "DER and PEM parse to the same request"
        );
        is_only_block(bytes, &request.der);
    }
    if let Ok(request) = CertificateRequest::from_der(bytes) {
        assert_eq!(request.der, bytes, "all of it was read");
    }
    if let Ok(der) = pem::single_certificate(bytes) {
        assert_eq!(
            pem::single_certificate(pem::certificate(&der).as_bytes()).as_ref(),
            Ok(&der),
            "written in the parsed form"
        );
        is_only_block(bytes, &der);
    }
}

/// Asserts that the lenient parser and x509-parser, which skip text around blocks, find exactly this block.
fn is_only_block(text: &[u8], der: &[u8]) {
    let lenient = pem::blocks(std::str::from_utf8(text).expect("PEM that was accepted is text"));
    assert!(matches!(lenient.as_slice(), [block] if block.bytes == der && !block.headers), "{lenient:?}");
    let (rest, first) = parse_x509_pem(text).expect("another parser accepts it");
    assert_eq!(first.contents, der);
    assert!(parse_x509_pem(rest).is_err(), "another block follows");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsers_agree_on_the_corpus() {
        let corpus = format!("{}/../../fuzz/corpus/csr", env!("CARGO_MANIFEST_DIR"));
        let mut count = 0;
        for entry in std::fs::read_dir(corpus).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            check(&bytes);
            // Truncation and byte changes, the first mutations of a fuzzer.
            (0..bytes.len()).for_each(|end| check(&bytes[..end]));
            for at in (0..bytes.len()).step_by(7) {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x20;
                check(&damaged);
            }
            count += 1;
        }
        assert!(count >= 10, "the corpus has {count} files");
    }
}
