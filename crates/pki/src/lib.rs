//! The keys and certificates of a cluster: a table of what there is, made and renewed in one folder.
//!
//! ```text
//!  ca ─────────────┬─ apiserver                  what the API server shows
//!                  ├─ apiserver-kubelet-client   as what it speaks to kubelets
//!                  └─ admin, one a component     as what they speak to the API server
//!  front-proxy-ca ─── front-proxy-client         as what it speaks to aggregated servers
//!  etcd-ca ──────┬─── etcd-server, etcd-peer      a member of the store, to clients and to its equals
//!                └─── apiserver-etcd-client      as what the API server speaks to it
//!  sa.key                                        signs service account tokens
//! ```
//!
//! A certificate is made when it is missing, when a third of its life is left, or when it is to say something else than it
//! does. Authorities are never replaced by themselves: everything hangs on them.

mod kubeconfig;
mod read;
pub mod sign;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

pub use kubeconfig::{kubeconfig, kubeconfig_of_files};
pub use read::{Seen, certificate as seen};
pub use table::{Authority, Subject, Usage};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long an authority lasts.
const AUTHORITY_LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// How long a certificate lasts.
const LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// The part of its life that a certificate has left when it is made anew.
const RENEWED_PART: u32 = 3;
/// Clocks of machines differ by so much.
const CLOCKS_DIFFER: Duration = Duration::from_secs(5 * 60);

/// A folder of keys and certificates.
#[derive(Clone, Debug)]
pub struct Pki {
    folder: PathBuf,
}

/// A certificate and its key, as files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The certificate.
    pub certificate: PathBuf,
    /// The key.
    pub key: PathBuf,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{path} cannot be used")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A key or certificate cannot be made or read.
    #[error("{path} holds no key or certificate")]
    Content {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rcgen::Error,
    },
    /// An authority's key is not there: this machine is no server, or has lost it.
    #[error(
        "{certificate} is here without its key {key}: on a server restore the key from a backup; any other machine has none"
    )]
    KeyLost {
        /// The authority's certificate.
        certificate: PathBuf,
        /// Where its key should be.
        key: PathBuf,
    },
    /// A certificate cannot be read.
    #[error("{path} holds no certificate")]
    Certificate {
        /// The file.
        path: PathBuf,
    },
}

impl Pki {
    /// The folder, with its authorities and the key of service accounts, made now if it is the first time.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(|source| Error::File { path: folder.to_owned(), source })?;
        let pki = Self { folder: folder.to_owned() };
        let authorities = Authority::ALL.into_iter().map(Some);
        at_once(authorities.chain([None]), |authority| match authority {
            Some(authority) => pki.ensure_authority(authority),
            None => pki.ensure_service_account_key(),
        })?;
        Ok(pki)
    }

    /// The key comes first and the certificate follows from it: a process that dies in between leaves a key that nobody has
    /// trusted yet. A certificate without its key is trusted by somebody, and another one would be trusted by nobody.
    fn ensure_authority(&self, authority: Authority) -> Result<(), Error> {
        let pair = self.pair(authority.name());
        let key = match (pair.certificate.is_file(), pair.key.is_file()) {
            (true, true) => return Ok(()),
            (true, false) => return Err(Error::KeyLost { certificate: pair.certificate, key: pair.key }),
            (false, true) => read_key(&pair.key)?,
            (false, false) => self.new_key(&pair.key)?,
        };
        let made = authority_params(authority, SystemTime::now()).self_signed(&key);
        let made = made.map_err(|source| Error::Content { path: pair.certificate.clone(), source })?;
        write(&pair.certificate, &made.pem(), 0o644)
    }

    fn ensure_service_account_key(&self) -> Result<(), Error> {
        let key = self.service_account_key();
        if key.is_file() { Ok(()) } else { self.new_key(&key).map(drop) }
    }

    /// The folder as it is: of a machine that has no authority's key.
    pub fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// The certificate of an authority.
    pub fn authority(&self, authority: Authority) -> PathBuf {
        self.pair(authority.name()).certificate
    }

    /// An authority's certificate and key.
    pub fn authority_pair(&self, authority: Authority) -> Pair {
        self.pair(authority.name())
    }

    /// The key that signs service account tokens.
    pub fn service_account_key(&self) -> PathBuf {
        self.folder.join("sa.key")
    }

    /// The certificate of a subject, made or renewed if need be.
    pub fn certificate(&self, subject: &Subject, now: SystemTime) -> Result<Pair, Error> {
        let pair = self.pair(&subject.name);
        let good = read::certificate(&pair.certificate)
            .is_some_and(|seen| pair.key.is_file() && seen.says(subject) && seen.not_after > now + LIFE / RENEWED_PART);
        if good {
            return Ok(pair);
        }
        let authority = self.pair(subject.by.name());
        let signer = read_key(&authority.key)?;
        // The issuer's name and the identifier of its key are all that is taken from it, and both are known.
        let issuer = authority_params(subject.by, now);
        let key = self.new_key(&pair.key)?;
        let made = params(subject, now)
            .and_then(|params| params.signed_by(&key, &Issuer::from_params(&issuer, signer)))
            .map_err(|source| Error::Content { path: pair.certificate.clone(), source })?;
        write(&pair.certificate, &made.pem(), 0o644)?;
        Ok(pair)
    }

    /// What is in the folder, sorted by name.
    pub fn list(&self) -> Result<Vec<(String, Seen)>, Error> {
        let failed = |source| Error::File { path: self.folder.clone(), source };
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            if path.extension().is_some_and(|ending| ending == "crt") {
                let seen = read::certificate(&path).ok_or(Error::Certificate { path })?;
                found.push((name, seen));
            }
        }
        found.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(found)
    }

    /// When the first of the certificates is to be made anew; authorities are not.
    pub fn next_renewal(&self) -> Result<Option<SystemTime>, Error> {
        let list = self.list()?;
        let own = list.iter().filter(|(name, _)| !is_authority(name));
        Ok(own.map(|(_, seen)| seen.not_after - LIFE / RENEWED_PART).min())
    }

    /// The files that make another folder the same cluster's: what all servers share.
    pub fn shared(&self) -> Vec<PathBuf> {
        let authorities = Authority::ALL.iter().map(|authority| self.authority_pair(*authority));
        authorities.flat_map(|pair| [pair.certificate, pair.key]).chain([self.service_account_key()]).collect()
    }

    /// Makes every certificate but the authorities' anew when it is next asked for.
    pub fn forget(&self) -> Result<(), Error> {
        for (name, _) in self.list()? {
            if !is_authority(&name) {
                let path = self.pair(&name).certificate;
                fs::remove_file(&path).map_err(|source| Error::File { path, source })?;
            }
        }
        Ok(())
    }

    fn pair(&self, name: &str) -> Pair {
        let file = |ending: &str| self.folder.join(format!("{name}.{ending}"));
        Pair { certificate: file("crt"), key: file("key") }
    }

    fn new_key(&self, path: &Path) -> Result<KeyPair, Error> {
        let key = KeyPair::generate().map_err(|source| Error::Content { path: path.to_owned(), source })?;
        write(path, &key.serialize_pem(), 0o600)?;
        Ok(key)
    }
}

fn is_authority(name: &str) -> bool {
    Authority::ALL.iter().any(|authority| authority.name() == name)
}

fn authority_params(authority: Authority, now: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, authority.common_name());
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment, KeyUsagePurpose::KeyCertSign];
    params.not_before = (now - CLOCKS_DIFFER).into();
    params.not_after = (now + AUTHORITY_LIFE).into();
    params
}

fn params(subject: &Subject, now: SystemTime) -> Result<CertificateParams, rcgen::Error> {
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
    params.not_after = (now + LIFE).into();
    Ok(params)
}

fn read_key(path: &Path) -> Result<KeyPair, Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
    KeyPair::from_pem(&text).map_err(|source| Error::Content { path: path.to_owned(), source })
}

/// Writes a file as a whole: whoever reads it finds the old content or the new.
pub fn write(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    sys::replace_file(path, text.as_bytes(), mode).map_err(|source| Error::File { path: path.to_owned(), source })
}

/// Makes files side by side, so that the disk syncs them together: one after the other they would take most of a start.
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

/// How many days are left of a time.
pub fn days_left(until: SystemTime, now: SystemTime) -> u64 {
    until.duration_since(now).map_or(0, |left| left.as_secs() / DAY.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(names: &[&str]) -> Subject {
        Subject {
            name: "apiserver".into(),
            by: Authority::Cluster,
            common_name: "kube-apiserver".into(),
            organization: String::new(),
            usage: Usage::Server,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn a_certificate_is_made_once_and_again_when_it_ends_or_is_to_say_something_else() {
        let folder = tempfile::tempdir().unwrap();
        let pki = Pki::open(folder.path()).unwrap();
        let now = SystemTime::now();
        let text = |pair: &Pair| fs::read_to_string(&pair.certificate).unwrap();
        let first = text(&pki.certificate(&subject(&["localhost", "127.0.0.1"]), now).unwrap());
        assert_eq!(text(&pki.certificate(&subject(&["localhost", "127.0.0.1"]), now + 100 * DAY).unwrap()), first);
        let second = text(&pki.certificate(&subject(&["localhost", "10.0.0.1"]), now).unwrap());
        assert_ne!(second, first, "another address");
        let third = text(&pki.certificate(&subject(&["localhost", "10.0.0.1"]), now + 300 * DAY).unwrap());
        assert_ne!(third, second, "a third of its life is left");
        let authority = fs::read_to_string(pki.authority(Authority::Cluster)).unwrap();
        let again = Pki::open(folder.path()).unwrap();
        assert_eq!(fs::read_to_string(again.authority(Authority::Cluster)).unwrap(), authority);
    }

    #[test]
    fn an_authority_that_is_trusted_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let pair = Pki::open(folder.path()).unwrap().authority_pair(Authority::Cluster);
        let (certificate, key) = (fs::read(&pair.certificate).unwrap(), fs::read(&pair.key).unwrap());
        fs::remove_file(&pair.key).unwrap();
        let refused = Pki::open(folder.path()).unwrap_err();
        assert!(matches!(refused, Error::KeyLost { .. }), "{refused}");
        assert_eq!(fs::read(&pair.certificate).unwrap(), certificate);
        assert!(!pair.key.exists(), "nor is it given another key");

        // As a process leaves it that died while it made the authority.
        fs::write(&pair.key, &key).unwrap();
        fs::remove_file(&pair.certificate).unwrap();
        Pki::open(folder.path()).unwrap();
        assert_eq!(fs::read(&pair.key).unwrap(), key);
        assert!(read::certificate(&pair.certificate).is_some());
    }

    #[test]
    fn keys_are_for_their_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let pki = Pki::open(folder.path()).unwrap();
        let pair = pki.certificate(&subject(&[]), SystemTime::now()).unwrap();
        for key in [pair.key, pki.service_account_key(), pki.authority_pair(Authority::Cluster).key] {
            assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600, "{}", key.display());
        }
    }

    #[test]
    fn what_is_made_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let pki = Pki::open(folder.path()).unwrap();
        let admin = Subject::client("admin", "admin", "system:masters");
        pki.certificate(&admin, SystemTime::now()).unwrap();
        let list = pki.list().unwrap();
        let names: Vec<_> = list.iter().map(|(name, seen)| (name.as_str(), seen.common_name.as_str())).collect();
        let expect = [("ca", "kubernetes-ca"), ("etcd-ca", "etcd-ca"), ("front-proxy-ca", "front-proxy-ca")];
        assert_eq!(names[0], ("admin", "admin"));
        assert_eq!(names[1..], expect);
        assert!(list[0].1.says(&admin));
        let due = pki.next_renewal().unwrap().unwrap();
        assert!((240..245).contains(&days_left(due, SystemTime::now())), "two thirds of a year");
        pki.forget().unwrap();
        assert_eq!(pki.list().unwrap().len(), 3, "authorities stay");
    }
}
