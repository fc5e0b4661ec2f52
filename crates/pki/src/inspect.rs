//! Reads existing certificates.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::Subject;

/// The contents of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateInfo {
    /// The user name of a client certificate.
    pub common_name: String,
    /// The group of a client certificate.
    pub organization: String,
    /// Subject alternative names: DNS names and IP addresses.
    pub names: Vec<String>,
    pub not_after: SystemTime,
}

impl CertificateInfo {
    /// Whether the certificate matches the subject.
    pub fn matches(&self, subject: &Subject) -> bool {
        let sorted = |names: &[String]| {
            let mut names = names.to_vec();
            names.sort();
            names.dedup();
            names
        };
        self.common_name == subject.common_name
            && self.organization == subject.organization
            && sorted(&self.names) == sorted(&subject.names)
    }
}

/// Reads a certificate file; `None` if it is missing or invalid.
pub fn certificate(path: &Path) -> Option<CertificateInfo> {
    let der = CertificateDer::from_pem_file(path).ok()?;
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    let subject = certificate.subject();
    let first = |mut texts: Vec<&str>| if texts.is_empty() { String::new() } else { texts.swap_remove(0).to_owned() };
    let alternative = certificate.subject_alternative_name().ok()?;
    let names = alternative.map(|names| names.value.general_names.iter().filter_map(name).collect());
    let seconds = u64::try_from(certificate.validity().not_after.timestamp()).ok()?;
    Some(CertificateInfo {
        common_name: first(subject.iter_common_name().filter_map(|name| name.as_str().ok()).collect()),
        organization: first(subject.iter_organization().filter_map(|name| name.as_str().ok()).collect()),
        names: names.unwrap_or_default(),
        not_after: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
    })
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(*bytes).map(|bytes| IpAddr::V4(Ipv4Addr::from(bytes)));
            let address = four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(|bytes| IpAddr::V6(Ipv6Addr::from(bytes))));
            address.ok().map(|address| address.to_string())
        }
        _ => None,
    }
}
