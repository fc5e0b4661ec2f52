//! Server name indication: selects the serving certificate by the name that the client requests.

use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;

/// The serving certificates.
#[derive(Debug)]
pub(super) struct ServingCertificates {
    otherwise: Arc<CertifiedKey>,
    by_name: Vec<(String, Arc<CertifiedKey>)>,
}

impl ServingCertificates {
    /// Creates a resolver with a default certificate.
    pub(super) fn new(otherwise: CertifiedKey) -> Self {
        Self { otherwise: Arc::new(otherwise), by_name: Vec::new() }
    }

    /// Adds a certificate for these names, or for the names in the certificate if `names` is empty.
    pub(super) fn add(&mut self, certificate: CertifiedKey, names: &[String]) {
        let certificate = Arc::new(certificate);
        let names = if names.is_empty() { own_names(&certificate) } else { names.to_vec() };
        self.by_name.extend(names.into_iter().map(|name| (name.to_ascii_lowercase(), certificate.clone())));
    }

    /// Returns the certificate for a name. Exact matches precede wildcards, earlier certificates precede later ones.
    fn find(&self, server_name: &str) -> Option<&Arc<CertifiedKey>> {
        let server_name = server_name.to_ascii_lowercase();
        let exact = self.by_name.iter().find(|(name, _)| *name == server_name);
        let found = exact.or_else(|| self.by_name.iter().find(|(name, _)| matches(name, &server_name)));
        found.map(|(_, certificate)| certificate)
    }
}

impl ResolvesServerCert for ServingCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let found = hello.server_name().and_then(|name| self.find(name));
        Some(found.unwrap_or(&self.otherwise).clone())
    }
}

/// Whether a name matches a pattern. A wildcard matches exactly the first label.
fn matches(pattern: &str, name: &str) -> bool {
    let rest = name.split_once('.').map(|(_, rest)| rest);
    pattern.strip_prefix("*.").is_some_and(|pattern| rest == Some(pattern))
}

fn own_names(certificate: &CertifiedKey) -> Vec<String> {
    let Some(Ok((_, parsed))) = certificate.cert.first().map(|der| x509_parser::parse_x509_certificate(der)) else {
        return Vec::new();
    };
    let alternatives = parsed.subject_alternative_name().ok().flatten();
    let names = alternatives.iter().flat_map(|names| &names.value.general_names);
    let mut names: Vec<String> = names
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        })
        .collect();
    if names.is_empty() {
        names.extend(parsed.subject().iter_common_name().filter_map(|name| Some(name.as_str().ok()?.to_owned())));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcard_matches_one_label() {
        let check =
            |pattern: &str, name: &str, expect: bool| assert_eq!(matches(pattern, name), expect, "{pattern} {name}");
        check("*.example.com", "a.example.com", true);
        check("*.example.com", "example.com", false);
        check("*.example.com", "a.b.example.com", false);
        check("a.example.com", "b.example.com", false);
    }
}
