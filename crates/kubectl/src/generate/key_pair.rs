//! `create secret tls`: checks that a certificate and a private key belong together.

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::Error;

/// Checks a key pair in PEM, with the messages of Go's `tls.X509KeyPair`.
pub fn validate(certificate: &[u8], key: &[u8]) -> Result<(), Error> {
    let blocks = block_types(certificate);
    if !blocks.iter().any(|kind| kind == "CERTIFICATE") {
        return Err(Error::new(match &blocks[..] {
            [] => "tls: failed to find any PEM data in certificate input".to_owned(),
            [one] if one.ends_with("PRIVATE KEY") => "tls: failed to find certificate PEM data in certificate input, \
                but did find a private key; PEM inputs may have been switched"
                .to_owned(),
            others => format!(
                "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the \
                 following types: [{}]",
                others.join(" ")
            ),
        }));
    }
    let blocks = block_types(key);
    if !blocks.iter().any(|kind| kind == "PRIVATE KEY" || kind.ends_with(" PRIVATE KEY")) {
        return Err(Error::new(match &blocks[..] {
            [] => "tls: failed to find any PEM data in key input".to_owned(),
            [one] if one == "CERTIFICATE" => {
                "tls: found a certificate rather than a key in the PEM for the private key".to_owned()
            }
            others => format!(
                "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM \
                 blocks of the following types: [{}]",
                others.join(" ")
            ),
        }));
    }
    let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|_| Error::new("x509: malformed certificate"))?;
    let unparsable = || Error::new("tls: failed to parse private key");
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| unparsable())?;
    let key = any_supported_type(&key).map_err(|_| unparsable())?;
    match CertifiedKey::new(chain, key).keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => Ok(()),
        Err(rustls::Error::InconsistentKeys(_)) => Err(Error::new("tls: private key does not match public key")),
        Err(_) => Err(Error::new("x509: malformed certificate")),
    }
}

/// Returns the types of the PEM blocks in a text.
fn block_types(pem: &[u8]) -> Vec<String> {
    // The reader of rustls skips unknown types, but the messages name them.
    String::from_utf8_lossy(pem)
        .lines()
        .filter_map(|line| line.trim().strip_prefix("-----BEGIN ")?.strip_suffix("-----").map(str::to_owned))
        .collect()
}
