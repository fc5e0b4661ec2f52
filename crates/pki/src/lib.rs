//! The cluster PKI: keys and certificates, created and renewed in one directory.
//!
//! ```text
//!  ca ─────────────┬─ apiserver                  serving certificate of the API server
//!                  ├─ apiserver-kubelet-client   client certificate of the API server for kubelets
//!                  └─ admin, one per component   client certificates for the API server
//!  front-proxy-ca ─── front-proxy-client         client certificate for aggregated API servers
//!  etcd-ca ──────┬─── etcd-server, etcd-peer     certificates of a store member, for clients and peers
//!                └─── apiserver-etcd-client      client certificate of the API server for the store
//!  sa.key                                        signs service account tokens
//! ```
//!
//! A certificate is created when it is missing, when a third of its lifetime is left, or when its subject or names
//! change. CAs are never replaced automatically, because all certificates depend on them.
//!
//! # Invariants
//!
//! - An existing CA is never replaced, and listing certificates changes no file. *Enforced by*
//!   `existing_ca_is_never_replaced`, `certs_ls_does_not_change_an_agents_ca`.

mod inspect;
mod kubeconfig;
pub mod sign;
mod subject;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

pub use inspect::{CertificateInfo, certificate as seen};
pub use kubeconfig::{kubeconfig, kubeconfig_of_files};
pub use subject::{CertificateAuthority, Subject, Usage};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Lifetime of a CA.
const CA_LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Lifetime of a certificate.
const LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// A certificate is renewed when this fraction (one third) of its lifetime is left.
const RENEWAL_FRACTION: u32 = 3;
/// Tolerated clock difference between hosts.
const CLOCKS_DIFFER: Duration = Duration::from_secs(5 * 60);

/// A directory of keys and certificates.
#[derive(Clone, Debug)]
pub struct Pki {
    dir: PathBuf,
}

/// Paths of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Reasons why a certificate cannot be provided.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to read or write {path}")]
    File {
        /// The file or directory.
        path: PathBuf,
        source: std::io::Error,
    },
    /// A key or certificate cannot be created or parsed.
    #[error("{path} contains no valid key or certificate")]
    Content {
        /// The file of the key or certificate.
        path: PathBuf,
        source: rcgen::Error,
    },
    /// The key of a CA is missing: this host is not a server, or has lost the key.
    #[error(
        "the CA certificate {certificate} exists without its key {key}; on a server, restore the key from a backup; other nodes have no CA keys"
    )]
    MissingKey {
        certificate: PathBuf,
        /// The expected path of the key.
        key: PathBuf,
    },
    #[error("{path} contains no valid certificate")]
    Certificate {
        /// The file that cannot be parsed.
        path: PathBuf,
    },
}

impl Pki {
    /// Opens the directory; creates the CAs and the service account key on first use.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        fs::create_dir_all(dir).map_err(|source| Error::File { path: dir.to_owned(), source })?;
        let pki = Self { dir: dir.to_owned() };
        let cas = CertificateAuthority::ALL.into_iter().map(Some);
        at_once(cas.chain([None]), |ca| match ca {
            Some(ca) => pki.ensure_ca(ca),
            None => pki.ensure_service_account_key(),
        })?;
        Ok(pki)
    }

    /// Creates a CA: the key first, then the certificate. A crash in between leaves a key that no component trusts yet.
    /// A certificate without its key is an error, because clients already trust it and would not trust a replacement.
    fn ensure_ca(&self, ca: CertificateAuthority) -> Result<(), Error> {
        let pair = self.pair(ca.name());
        let key = match (pair.certificate.is_file(), pair.key.is_file()) {
            (true, true) => return Ok(()),
            (true, false) => return Err(Error::MissingKey { certificate: pair.certificate, key: pair.key }),
            (false, true) => read_key(&pair.key)?,
            (false, false) => self.new_key(&pair.key)?,
        };
        let made = ca_params(ca, SystemTime::now()).self_signed(&key);
        let made = made.map_err(|source| Error::Content { path: pair.certificate.clone(), source })?;
        write(&pair.certificate, &made.pem(), 0o644)
    }

    fn ensure_service_account_key(&self) -> Result<(), Error> {
        let key = self.service_account_key();
        if key.is_file() { Ok(()) } else { self.new_key(&key).map(drop) }
    }

    /// Opens the directory of a host without CA keys.
    pub fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// Returns the path of a CA's certificate.
    pub fn ca_certificate(&self, ca: CertificateAuthority) -> PathBuf {
        self.pair(ca.name()).certificate
    }

    /// Returns the paths of a CA's certificate and key.
    pub fn ca_pair(&self, ca: CertificateAuthority) -> Pair {
        self.pair(ca.name())
    }

    /// Returns the path of the key that signs service account tokens.
    pub fn service_account_key(&self) -> PathBuf {
        self.dir.join("sa.key")
    }

    /// Returns the certificate of a subject; creates or renews it if needed.
    pub fn certificate(&self, subject: &Subject, now: SystemTime) -> Result<Pair, Error> {
        let pair = self.pair(&subject.name);
        let good = inspect::certificate(&pair.certificate).is_some_and(|seen| {
            pair.key.is_file() && seen.matches(subject) && seen.not_after > now + LIFE / RENEWAL_FRACTION
        });
        if good {
            return Ok(pair);
        }
        // Read before the key of the subject is replaced.
        let signer = read_key(&self.pair(subject.by.name()).key)?;
        let key = self.new_key(&pair.key)?;
        write(&pair.certificate, &self.signed(subject, now, LIFE, &key, signer)?, 0o644)?;
        Ok(pair)
    }

    /// Issues a certificate for a new key without storing them. Returns both as PEM.
    pub fn issue(&self, subject: &Subject, now: SystemTime, life: Duration) -> Result<(String, String), Error> {
        let ca = self.pair(subject.by.name());
        let signer = read_key(&ca.key)?;
        let key = KeyPair::generate().map_err(|source| Error::Content { path: ca.key, source })?;
        Ok((self.signed(subject, now, life, &key, signer)?, key.serialize_pem()))
    }

    fn signed(
        &self,
        subject: &Subject,
        now: SystemTime,
        life: Duration,
        key: &KeyPair,
        signer: KeyPair,
    ) -> Result<String, Error> {
        // Only the name and key identifier of the issuer are used, and both are known.
        let issuer = ca_params(subject.by, now);
        let made =
            params(subject, now, life).and_then(|params| params.signed_by(key, &Issuer::from_params(&issuer, signer)));
        let path = self.pair(&subject.name).certificate;
        Ok(made.map_err(|source| Error::Content { path, source })?.pem())
    }

    /// Reads the certificate with this name; `None` if it is missing or invalid.
    pub fn certificate_of(&self, name: &str) -> Option<CertificateInfo> {
        inspect::certificate(&self.pair(name).certificate)
    }

    /// Returns the certificates in the directory, sorted by name.
    pub fn list(&self) -> Result<Vec<(String, CertificateInfo)>, Error> {
        let failed = |source| Error::File { path: self.dir.clone(), source };
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            if path.extension().is_some_and(|ending| ending == "crt") {
                let seen = inspect::certificate(&path).ok_or(Error::Certificate { path })?;
                found.push((name, seen));
            }
        }
        found.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(found)
    }

    /// Returns the time of the next certificate renewal; CAs are not renewed.
    pub fn next_renewal(&self) -> Result<Option<SystemTime>, Error> {
        let list = self.list()?;
        let own = list.iter().filter(|(name, _)| !is_ca(name));
        Ok(own.map(|(_, seen)| seen.not_after - LIFE / RENEWAL_FRACTION).min())
    }

    /// Returns the files that all servers of a cluster share.
    pub fn shared(&self) -> Vec<PathBuf> {
        let cas = CertificateAuthority::ALL.iter().map(|ca| self.ca_pair(*ca));
        cas.flat_map(|pair| [pair.certificate, pair.key]).chain([self.service_account_key()]).collect()
    }

    /// Removes all certificates except those of CAs, so that they are created again on the next request.
    pub fn remove_certificates(&self) -> Result<(), Error> {
        for (name, _) in self.list()? {
            if !is_ca(&name) {
                let path = self.pair(&name).certificate;
                fs::remove_file(&path).map_err(|source| Error::File { path, source })?;
            }
        }
        Ok(())
    }

    fn pair(&self, name: &str) -> Pair {
        let file = |ending: &str| self.dir.join(format!("{name}.{ending}"));
        Pair { certificate: file("crt"), key: file("key") }
    }

    fn new_key(&self, path: &Path) -> Result<KeyPair, Error> {
        let key = KeyPair::generate().map_err(|source| Error::Content { path: path.to_owned(), source })?;
        write(path, &key.serialize_pem(), 0o600)?;
        Ok(key)
    }
}

fn is_ca(name: &str) -> bool {
    CertificateAuthority::ALL.iter().any(|ca| ca.name() == name)
}

fn ca_params(ca: CertificateAuthority, now: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, ca.common_name());
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment, KeyUsagePurpose::KeyCertSign];
    params.not_before = (now - CLOCKS_DIFFER).into();
    params.not_after = (now + CA_LIFE).into();
    params
}

fn params(subject: &Subject, now: SystemTime, life: Duration) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(subject.names.clone())?;
    params.distinguished_name = DistinguishedName::new();
    if !subject.organization.is_empty() {
        params.distinguished_name.push(DnType::OrganizationName, subject.organization.as_str());
    }
    params.distinguished_name.push(DnType::CommonName, subject.common_name.as_str());
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = match subject.usage {
        Usage::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
        Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
        Usage::Peer => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
    };
    params.use_authority_key_identifier_extension = true;
    params.not_before = (now - CLOCKS_DIFFER).into();
    params.not_after = (now + life).into();
    Ok(params)
}

fn read_key(path: &Path) -> Result<KeyPair, Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
    KeyPair::from_pem(&text).map_err(|source| Error::Content { path: path.to_owned(), source })
}

/// Writes a file atomically: readers see the old or the new content.
pub fn write(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    sys::replace_file(path, text.as_bytes(), mode).map_err(|source| Error::File { path: path.to_owned(), source })
}

/// Runs file operations concurrently, so that their disk syncs are combined: sequentially they would dominate the
/// startup time.
pub fn at_once<T: Send, E: Send>(
    items: impl Iterator<Item = T>,
    make: impl Fn(T) -> Result<(), E> + Sync,
) -> Result<(), E> {
    std::thread::scope(|scope| {
        let makers: Vec<_> = items.map(|item| scope.spawn(|| make(item))).collect();
        let made =
            makers.into_iter().map(|maker| maker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        made.collect()
    })
}

/// Returns the number of full days left.
pub fn days_left(until: SystemTime, now: SystemTime) -> u64 {
    until.duration_since(now).map_or(0, |left| left.as_secs() / DAY.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(names: &[&str]) -> Subject {
        Subject {
            name: "apiserver".into(),
            by: CertificateAuthority::Cluster,
            common_name: "kube-apiserver".into(),
            organization: String::new(),
            usage: Usage::Server,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn certificate_is_renewed_when_it_expires_or_its_subject_changes() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::open(dir.path()).unwrap();
        let now = SystemTime::now();
        let text = |pair: &Pair| fs::read_to_string(&pair.certificate).unwrap();
        let first = text(&pki.certificate(&subject(&["localhost", "127.0.0.1"]), now).unwrap());
        assert_eq!(text(&pki.certificate(&subject(&["localhost", "127.0.0.1"]), now + 100 * DAY).unwrap()), first);
        let second = text(&pki.certificate(&subject(&["localhost", "10.0.0.1"]), now).unwrap());
        assert_ne!(second, first, "another address");
        let third = text(&pki.certificate(&subject(&["localhost", "10.0.0.1"]), now + 300 * DAY).unwrap());
        assert_ne!(third, second, "a third of its lifetime is left");
        let ca = fs::read_to_string(pki.ca_certificate(CertificateAuthority::Cluster)).unwrap();
        let again = Pki::open(dir.path()).unwrap();
        assert_eq!(fs::read_to_string(again.ca_certificate(CertificateAuthority::Cluster)).unwrap(), ca);
    }

    #[test]
    fn existing_ca_is_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let pair = Pki::open(dir.path()).unwrap().ca_pair(CertificateAuthority::Cluster);
        let (certificate, key) = (fs::read(&pair.certificate).unwrap(), fs::read(&pair.key).unwrap());
        fs::remove_file(&pair.key).unwrap();
        let error = Pki::open(dir.path()).unwrap_err();
        assert!(matches!(error, Error::MissingKey { .. }), "{error}");
        assert_eq!(fs::read(&pair.certificate).unwrap(), certificate);
        assert!(!pair.key.exists(), "its key is not replaced");

        // The state after a crash during the creation of the CA.
        fs::write(&pair.key, &key).unwrap();
        fs::remove_file(&pair.certificate).unwrap();
        Pki::open(dir.path()).unwrap();
        assert_eq!(fs::read(&pair.key).unwrap(), key);
        assert!(inspect::certificate(&pair.certificate).is_some());
    }

    #[test]
    fn key_files_are_readable_by_their_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::open(dir.path()).unwrap();
        let pair = pki.certificate(&subject(&[]), SystemTime::now()).unwrap();
        for key in [pair.key, pki.service_account_key(), pki.ca_pair(CertificateAuthority::Cluster).key] {
            assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600, "{}", key.display());
        }
    }

    #[test]
    fn issued_certificate_is_not_stored() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::open(dir.path()).unwrap();
        let (now, before) = (SystemTime::now(), pki.list().unwrap());
        let (certificate, key) = pki.issue(&Subject::client("", "jane", "dev"), now, DAY).unwrap();
        assert_eq!(pki.list().unwrap(), before);
        assert!(key.starts_with("-----BEGIN PRIVATE KEY-----"));
        let file = dir.path().join("issued.pem");
        fs::write(&file, certificate).unwrap();
        let seen = inspect::certificate(&file).unwrap();
        assert_eq!((seen.common_name.as_str(), seen.organization.as_str()), ("jane", "dev"));
        assert!(seen.not_after <= now + DAY && seen.not_after > now + DAY / 2);
    }

    #[test]
    fn created_certificates_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::open(dir.path()).unwrap();
        let admin = Subject::client("admin", "admin", "system:masters");
        pki.certificate(&admin, SystemTime::now()).unwrap();
        let list = pki.list().unwrap();
        let names: Vec<_> = list.iter().map(|(name, seen)| (name.as_str(), seen.common_name.as_str())).collect();
        let expect = [("ca", "kubernetes-ca"), ("etcd-ca", "etcd-ca"), ("front-proxy-ca", "front-proxy-ca")];
        assert_eq!(names[0], ("admin", "admin"));
        assert_eq!(names[1..], expect);
        assert!(list[0].1.matches(&admin));
        let due = pki.next_renewal().unwrap().unwrap();
        assert!((240..245).contains(&days_left(due, SystemTime::now())), "two thirds of a year");
        pki.remove_certificates().unwrap();
        assert_eq!(pki.list().unwrap().len(), 3, "authorities stay");
    }
}
