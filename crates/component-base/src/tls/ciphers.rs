//! `--tls-cipher-suites`: TLS 1.2 suites by their Go names. TLS 1.3 suites are not configurable, as in Go.

use rustls::{CipherSuite, SupportedCipherSuite};

use super::TlsError;

/// Go's names and their suites. Names without a suite are insecure and never offered.
const NAMES: [(&str, Option<CipherSuite>); 22] = [
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", Some(CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", Some(CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384)),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", Some(CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256)),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", Some(CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256)),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", Some(CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256)),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", Some(CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384)),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", Some(CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256)),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", Some(CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256)),
    ("TLS_AES_128_GCM_SHA256", Some(CipherSuite::TLS13_AES_128_GCM_SHA256)),
    ("TLS_AES_256_GCM_SHA384", Some(CipherSuite::TLS13_AES_256_GCM_SHA384)),
    ("TLS_CHACHA20_POLY1305_SHA256", Some(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256)),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", None),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", None),
    ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", None),
    ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", None),
    ("TLS_RSA_WITH_AES_128_CBC_SHA", None),
    ("TLS_RSA_WITH_AES_128_GCM_SHA256", None),
    ("TLS_RSA_WITH_AES_256_CBC_SHA", None),
    ("TLS_RSA_WITH_AES_256_GCM_SHA384", None),
    ("TLS_RSA_WITH_3DES_EDE_CBC_SHA", None),
    ("TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA", None),
    ("TLS_RSA_WITH_RC4_128_SHA", None),
];

/// Keeps the named TLS 1.2 suites and all TLS 1.3 suites.
// DEVIATION: cipher suites without forward secrecy or with CBC are accepted in the flag but not offered.
pub(crate) fn choose(suites: &mut Vec<SupportedCipherSuite>, names: &[String]) -> Result<(), TlsError> {
    if names.is_empty() {
        return Ok(());
    }
    let mut requested = Vec::new();
    for name in names {
        let known = NAMES.iter().find(|(known, _)| known == name);
        let (_, suite) =
            known.ok_or_else(|| TlsError::Ciphers(format!("Cipher suite {name} not supported or doesn't exist")))?;
        match suite {
            Some(suite) => requested.push(*suite),
            None => tracing::warn!(name, "an insecure cipher suite in --tls-cipher-suites is not offered"),
        }
    }
    suites.retain(|suite| suite.tls13().is_some() || requested.contains(&suite.suite()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_tls_1_2_suites_are_offered() {
        let chosen = |names: &[&str]| {
            let mut suites = rustls::crypto::aws_lc_rs::default_provider().cipher_suites;
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            choose(&mut suites, &names).map(|()| suites.iter().filter(|suite| suite.tls13().is_none()).count())
        };
        assert_eq!(chosen(&["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_256_CBC_SHA"]).unwrap(), 1);
        assert!(chosen(&[]).unwrap() > 3);
        let error = chosen(&["TLS_NONSENSE"]).unwrap_err().to_string();
        assert_eq!(error, "--tls-cipher-suites: Cipher suite TLS_NONSENSE not supported or doesn't exist");
    }
}
