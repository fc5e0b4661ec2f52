//! X.509 client certificate authentication: the subject as a user. The TLS layer verifies the chain.

use apimachinery::Str;
use apimachinery::time::Time;
use aws_lc_rs::digest;
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME, Oid};

use crate::User;
use crate::user::CREDENTIAL_ID;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("x509: malformed certificate")]
    Malformed,
    #[error("x509: certificate has expired or is not yet valid: current time {now} is {relation} {limit}")]
    Validity {
        /// The time of the check.
        now: Time,
        /// `before` or `after`.
        relation: &'static str,
        /// The violated limit of the validity period.
        limit: Time,
    },
    #[error("expected at most one UID in the certificate's subject, found {0}")]
    SeveralUids(usize),
    #[error("UID cannot be an empty string")]
    EmptyUid,
}

/// 1.3.6.1.4.1.57683.2, the subject attribute with the user's UID.
const UID: &[u64] = &[1, 3, 6, 1, 4, 1, 57683, 2];

/// The subject of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The common name; empty if absent.
    pub common_name: Str,
    pub organizations: Vec<Str>,
    /// The UID; empty if absent.
    pub uid: Str,
    /// The credential ID, a hash of the certificate.
    pub credential_id: String,
}

impl Subject {
    /// Parses a DER certificate and checks its validity period at `now`.
    pub fn read(certificate: &[u8], now: Time) -> Result<Self, Error> {
        let (rest, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|_| Error::Malformed)?;
        if !rest.is_empty() {
            return Err(Error::Malformed);
        }
        check_validity(&parsed, now)?;
        let uid_type = Oid::from(UID).map_err(|_| Error::Malformed)?;
        let (common_names, organizations) =
            (values(&parsed, &OID_X509_COMMON_NAME)?, values(&parsed, &OID_X509_ORGANIZATION_NAME)?);
        let uids = values(&parsed, &uid_type)?;
        let uid = match uids.as_slice() {
            [] => Str::default(),
            [uid] if uid.is_empty() => return Err(Error::EmptyUid),
            [uid] => uid.clone(),
            several => return Err(Error::SeveralUids(several.len())),
        };
        Ok(Self {
            // The last common name is used, as in Go.
            common_name: common_names.last().cloned().unwrap_or_default(),
            organizations,
            uid,
            credential_id: format!("X509SHA256={}", hex(digest::digest(&digest::SHA256, certificate).as_ref())),
        })
    }

    /// Returns the user of the subject; `None` without a common name.
    pub fn user(self) -> Option<User> {
        let user = User { uid: self.uid, ..User::authenticated(self.common_name, self.organizations) };
        (!user.name.is_empty()).then(|| user.with_extra(CREDENTIAL_ID, self.credential_id))
    }
}

fn check_validity(certificate: &X509Certificate<'_>, now: Time) -> Result<(), Error> {
    let validity = certificate.validity();
    let [from, until] = [validity.not_before, validity.not_after].map(|at| Time::from_unix(at.timestamp(), 0));
    let wrong = |relation, limit| Err(Error::Validity { now, relation, limit });
    match now.to_seconds() {
        at if at < from => wrong("before", from),
        at if at > until => wrong("after", until),
        _ => Ok(()),
    }
}

/// Returns the values of a subject attribute. A value that is not text fails the certificate: a parser that decodes
/// more string types would see a user or group that is not seen here.
fn values(certificate: &X509Certificate<'_>, kind: &Oid<'_>) -> Result<Vec<Str>, Error> {
    let attributes = certificate.subject().iter_attributes().filter(|attribute| attribute.attr_type() == kind);
    attributes.map(|attribute| attribute.as_str().map(Str::from).map_err(|_| Error::Malformed)).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, date_time_ymd};

    use super::*;

    const UID_TYPE: DnType = DnType::CustomDnType(Vec::new());

    fn certificate(attributes: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2027, 1, 1);
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in attributes {
            let kind = if *kind == UID_TYPE { DnType::CustomDnType(UID.to_vec()) } else { kind.clone() };
            params.distinguished_name.push(kind, *value);
        }
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    fn at(time: &str) -> Time {
        Time::parse(time).unwrap()
    }

    #[test]
    fn subject_is_a_user() {
        let der = certificate(&[(DnType::OrganizationName, "devs"), (DnType::CommonName, "eve"), (UID_TYPE, "u1")]);
        let user = Subject::read(&der, at("2026-06-01T00:00:00Z")).unwrap().user().unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("eve", "u1"));
        assert_eq!(user.groups, ["devs", "system:authenticated"]);
        let hash = hex(digest::digest(&digest::SHA256, &der).as_ref());
        assert_eq!(user.extra[CREDENTIAL_ID], [format!("X509SHA256={hash}")]);
        assert_eq!(hash.len(), 64);
    }

    #[test]
    fn subject_without_a_common_name_is_not_a_user() {
        let der = certificate(&[(DnType::OrganizationName, "system:masters")]);
        assert_eq!(Subject::read(&der, at("2026-06-01T00:00:00Z")).unwrap().user(), None);
    }

    #[test]
    fn validity_period_is_checked() {
        let der = certificate(&[(DnType::CommonName, "eve")]);
        let error_message =
            |time| Subject::read(&der, at(time)).err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(error_message("2026-01-01T00:00:00Z"), "");
        assert_eq!(error_message("2027-01-01T00:00:00.5Z"), "");
        let early = "x509: certificate has expired or is not yet valid: current time 2025-12-31T23:59:59Z is before 2026-01-01T00:00:00Z";
        assert_eq!(error_message("2025-12-31T23:59:59Z"), early);
        let late = "x509: certificate has expired or is not yet valid: current time 2027-01-01T00:00:01Z is after 2027-01-01T00:00:00Z";
        assert_eq!(error_message("2027-01-01T00:00:01Z"), late);
    }

    #[test]
    fn subject_with_an_undecodable_group_is_rejected() {
        let mut params = CertificateParams::default();
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2027, 1, 1);
        params.distinguished_name = DistinguishedName::new();
        let masters = rcgen::DnValue::BmpString("system:masters".try_into().unwrap());
        params.distinguished_name.push(DnType::OrganizationName, masters);
        params.distinguished_name.push(DnType::CommonName, "eve");
        let der = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().to_vec();
        assert_eq!(Subject::read(&der, at("2026-06-01T00:00:00Z")), Err(Error::Malformed));
    }

    #[test]
    fn invalid_certificates_are_rejected() {
        let now = at("2026-06-01T00:00:00Z");
        assert_eq!(Subject::read(b"", now), Err(Error::Malformed));
        let mut der = certificate(&[(UID_TYPE, "")]);
        assert_eq!(Subject::read(&der, now), Err(Error::EmptyUid));
        der.push(0);
        assert_eq!(Subject::read(&der, now), Err(Error::Malformed));
    }
}
