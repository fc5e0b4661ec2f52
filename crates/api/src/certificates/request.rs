//! PKCS#10 certificate requests: the only parser of `spec.request`.
//!
//! Validation, admission, the approver and the signer all use [`CertificateRequest`], so the data that is checked is
//! the data that is signed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME, Oid};
use x509_parser::prelude::FromDer;

use super::pem::{self, Error};

const LABEL: &str = "CERTIFICATE REQUEST";

/// A certificate request whose encoding has been validated completely.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateRequest {
    /// The DER encoding, without leading or trailing bytes.
    pub der: Vec<u8>,
    /// The last common name of the subject, as in Go; empty if there is none.
    pub common_name: String,
    /// The organizations of the subject, which become groups.
    pub organizations: Vec<String>,
    pub dns_names: Vec<String>,
    pub addresses: Vec<IpAddr>,
    pub emails: Vec<String>,
    pub uris: Vec<String>,
}

impl CertificateRequest {
    // DEVIATION: `spec.request` of a CertificateSigningRequest must be exactly one PEM block without headers, after
    // comment lines that start with `#`; upstream skips any text around the first block and ignores further blocks.
    /// Parses text that is exactly one PEM block, with comments before it.
    pub fn from_pem(text: &[u8]) -> Result<Self, Error> {
        let text = pem::without_comments(text);
        Self::from_der(&pem::single(text, LABEL).map_err(|error| match error {
            Error::Single(_) if !pem::begins_with(text, LABEL) => Error::NoRequest,
            other => other,
        })?)
    }

    /// Parses DER that is exactly one request. Fails if a subject attribute that names a user or group is not text, or
    /// if extensions are requested more than once, because parsers differ on such input.
    pub fn from_der(der: &[u8]) -> Result<Self, Error> {
        let Ok(([], request)) = X509CertificationRequest::from_der(der) else { return Err(Error::MalformedRequest) };
        let info = &request.certification_request_info;
        let values = |kind: &Oid<'_>| -> Result<Vec<String>, Error> {
            let found = info.subject.iter_attributes().filter(|attribute| attribute.attr_type() == kind);
            let text = found.map(|attribute| attribute.as_str().map(str::to_owned));
            text.collect::<Result<_, _>>().map_err(|_| Error::MalformedRequest)
        };
        let mut parsed = Self {
            der: der.to_vec(),
            common_name: values(&OID_X509_COMMON_NAME)?.pop().unwrap_or_default(),
            organizations: values(&OID_X509_ORGANIZATION_NAME)?,
            ..Self::default()
        };
        let requested = info.iter_attributes().filter_map(|attribute| match attribute.parsed_attribute() {
            ParsedCriAttribute::ExtensionRequest(requested) => Some(&requested.extensions),
            _ => None,
        });
        let requested: Vec<_> = requested.collect();
        if requested.len() > 1 {
            return Err(Error::MalformedRequest);
        }
        let mut seen_names = false;
        for extension in requested.into_iter().flatten() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectAlternativeName(names) if !seen_names => {
                    seen_names = true;
                    names.general_names.iter().try_for_each(|name| parsed.add(name))?;
                }
                ParsedExtension::SubjectAlternativeName(_) | ParsedExtension::ParseError { .. } => {
                    return Err(Error::MalformedRequest);
                }
                _ => {}
            }
        }
        Ok(parsed)
    }

    /// Adds a subject alternative name. Unsupported name types are never signed.
    fn add(&mut self, name: &GeneralName<'_>) -> Result<(), Error> {
        match name {
            GeneralName::DNSName(name) => self.dns_names.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => self.addresses.push(address(bytes).ok_or(Error::MalformedRequest)?),
            GeneralName::RFC822Name(name) => self.emails.push((*name).to_owned()),
            GeneralName::URI(name) => self.uris.push((*name).to_owned()),
            GeneralName::Invalid(..) => return Err(Error::MalformedRequest),
            _ => {}
        }
        Ok(())
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(|bytes| IpAddr::V4(Ipv4Addr::from(bytes)));
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(|bytes| IpAddr::V6(Ipv6Addr::from(bytes)))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus(name: &str) -> Vec<u8> {
        std::fs::read(format!("{}/../../fuzz/corpus/csr/{name}.pem", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    #[test]
    fn request_is_parsed_with_subject_and_names() {
        let request = CertificateRequest::from_pem(&corpus("serving")).unwrap();
        assert_eq!(request.common_name, "system:node:n");
        assert_eq!(request.organizations, ["system:nodes"]);
        assert_eq!(request.dns_names, ["n.example"]);
        assert_eq!(request.addresses, [IpAddr::from([10, 0, 0, 7])]);
        let with_newlines = [corpus("developer"), b"\n \n".to_vec()].concat();
        assert_eq!(CertificateRequest::from_pem(&with_newlines).unwrap().organizations, ["dev"]);
        let dos = String::from_utf8(corpus("developer")).unwrap().replace('\n', "\r\n");
        assert_eq!(CertificateRequest::from_pem(dos.as_bytes()).unwrap().organizations, ["dev"]);
        let with_comments = [b"# for tests only\r\n#\n".to_vec(), corpus("developer")].concat();
        assert_eq!(CertificateRequest::from_pem(&with_comments).unwrap().organizations, ["dev"]);
        super::super::agreement::check(&with_comments);
    }

    #[test]
    fn ambiguous_request_is_rejected() {
        for (name, expect) in [
            ("hidden-first-block", Error::NoRequest),
            ("text-before", Error::NoRequest),
            ("two-blocks", Error::Single(LABEL)),
            ("headers", Error::Single(LABEL)),
            ("trailing-der", Error::MalformedRequest),
            ("bmpstring-organization", Error::MalformedRequest),
        ] {
            assert_eq!(CertificateRequest::from_pem(&corpus(name)), Err(expect), "{name}");
        }
        assert_eq!(CertificateRequest::from_pem(b""), Err(Error::NoRequest));
        for comment in ["# -----BEGIN CERTIFICATE REQUEST-----\n", "#\r", " # a\n", "a\n", "# a\nb\n"] {
            let text = [comment.as_bytes(), &corpus("developer")].concat();
            assert_eq!(CertificateRequest::from_pem(&text), Err(Error::NoRequest), "{comment:?}");
        }
        let certificate = b"-----BEGIN CERTIFICATE-----\nYWI=\n-----END CERTIFICATE-----\n";
        assert_eq!(CertificateRequest::from_pem(certificate), Err(Error::NoRequest));
        let garbage = b"-----BEGIN CERTIFICATE REQUEST-----\nYWI=\n-----END CERTIFICATE REQUEST-----\n";
        assert_eq!(CertificateRequest::from_pem(garbage), Err(Error::MalformedRequest));
    }
}
