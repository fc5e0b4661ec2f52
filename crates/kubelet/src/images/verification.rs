//! Image pull credential verification: a pod may use a present image only with credentials that could have pulled it.

use std::collections::BTreeMap;

/// Maximum number of recorded secrets per image. Further matching secrets are accepted without a record, since
/// namespaces are created and deleted continuously.
const SECRETS_MAX: usize = 100;

/// `imagePullCredentialsVerificationPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verification {
    /// `NeverVerify`.
    Never,
    /// `NeverVerifyPreloadedImages`: verifies images that this kubelet pulled.
    #[default]
    UnlessPreloaded,
    /// `NeverVerifyAllowlistedImages`: verifies images that match no entry of the allowlist.
    UnlessListed(Vec<AllowlistEntry>),
    /// `AlwaysVerify`.
    Always,
}

/// An entry of `preloadedImagesVerificationAllowlist`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowlistEntry {
    Repository(String),
    /// All repositories with this prefix, which ends with `/`.
    Prefix(String),
}

impl AllowlistEntry {
    /// Parses an entry: `registry/path` or `registry/path/*`.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (rest, is_prefix) = text.strip_suffix('*').map_or((text, false), |rest| (rest, true));
        if text != text.trim() {
            return Err("leading/trailing spaces are not allowed");
        }
        if rest.is_empty() || rest == "/" {
            return Err("at least registry hostname is required");
        }
        if rest.contains('*') || is_prefix && !rest.ends_with('/') {
            return Err("not a valid wildcard pattern, only patterns ending with '/*' are allowed");
        }
        if is_prefix {
            return Ok(Self::Prefix(rest.to_owned()));
        }
        if repository(rest) != rest {
            return Err("must be a whole name without tag and digest");
        }
        Ok(Self::Repository(rest.to_owned()))
    }

    fn fits(&self, repository: &str) -> bool {
        match self {
            Self::Repository(name) => repository == name,
            Self::Prefix(beginning) => repository.starts_with(beginning.as_str()),
        }
    }
}

/// A Secret that pulled an image, or that a pod offers for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretUse {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    /// Hash of the credentials.
    pub hash: String,
}

/// A service account whose token gave the credentials that pulled an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccountUse {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// The object that a credential comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Secret(SecretUse),
    Account(AccountUse),
}

impl SecretUse {
    fn is_same_object(&self, other: &Self) -> bool {
        (&self.uid, &self.namespace, &self.name) == (&other.uid, &other.namespace, &other.name)
    }
}

/// The credentials that pulled an image under one repository name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Whether the image was pulled without credentials, or with those of the node.
    pub everybody: bool,
    pub secrets: Vec<SecretUse>,
    pub accounts: Vec<AccountUse>,
}

/// Access to an image by repository.
pub(super) type Record = BTreeMap<String, Access>;

/// Knowledge about the origin of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageOrigin<'a> {
    /// The kubelet has no record of the image.
    Preloaded,
    /// A pull is in progress or was interrupted.
    Pulling,
    Pulled(&'a Record),
}

/// The decision about the use of a present image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision<'a> {
    Allowed,
    /// Allowed by a secret that must be recorded: either another secret with the recorded credentials, or a recorded
    /// secret with new credentials.
    AllowedBy(&'a Source),
    /// The pod must pull the image with its own credentials.
    MustPull,
}

impl Verification {
    /// Decides from the record of an image and the sources of the pod's matching credentials.
    pub fn verdict<'a>(&self, image: &str, known: ImageOrigin<'_>, sources: &'a [Source]) -> Decision<'a> {
        let repository = repository(image);
        let required = match self {
            Self::Never => false,
            Self::UnlessPreloaded => known != ImageOrigin::Preloaded,
            Self::UnlessListed(list) => !list.iter().any(|entry| entry.fits(&repository)),
            Self::Always => true,
        };
        if !required {
            return Decision::Allowed;
        }
        let ImageOrigin::Pulled(record) = known else { return Decision::MustPull };
        let Some(access) = record.get(&repository) else { return Decision::MustPull };
        if access.everybody {
            return Decision::Allowed;
        }
        for source in sources {
            let secret = match source {
                Source::Account(account) if access.accounts.contains(account) => return Decision::Allowed,
                Source::Account(_) => continue,
                Source::Secret(secret) => secret,
            };
            for used in &access.secrets {
                let (same_object, same_hash) = (secret.is_same_object(used), secret.hash == used.hash);
                match (same_object, same_hash) {
                    (true, true) => return Decision::Allowed,
                    (false, false) => {}
                    _ if access.secrets.len() < SECRETS_MAX => return Decision::AllowedBy(source),
                    _ => return Decision::Allowed,
                }
            }
        }
        Decision::MustPull
    }
}

/// Adds a pull, with a credential of a pod or another one, to a record. Returns whether the record changed.
pub(super) fn add(record: &mut Record, image: &str, by: Option<&Source>) -> bool {
    let access = record.entry(repository(image)).or_default();
    let before = access.clone();
    match by {
        _ if access.everybody => {}
        None => *access = Access { everybody: true, ..Access::default() },
        Some(Source::Account(account)) if access.accounts.contains(account) => {}
        Some(Source::Account(account)) => {
            access.accounts.push(account.clone());
            access.accounts.sort();
        }
        Some(Source::Secret(secret)) => {
            access.secrets.retain(|used| !used.is_same_object(secret));
            access.secrets.push(secret.clone());
            access.secrets.sort_by(|a, b| (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid)));
        }
    }
    *access != before
}

/// Returns the full repository name of an image, without tag and digest.
pub(super) fn repository(image: &str) -> String {
    let name = image.split_once('@').map_or(image, |(name, _)| name);
    let tag = name.rfind(':').filter(|at| !name[*at..].contains('/'));
    let name = tag.map_or(name, |at| &name[..at]);
    match name.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => name.to_owned(),
        Some(_) => format!("docker.io/{name}"),
        None => format!("docker.io/library/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(name: &str, hash: &str) -> Source {
        let uid = format!("u-{name}");
        Source::Secret(SecretUse { uid, namespace: "n".into(), name: name.into(), hash: hash.into() })
    }

    fn account(name: &str, uid: &str) -> Source {
        Source::Account(AccountUse { uid: uid.into(), namespace: "n".into(), name: name.into() })
    }

    #[test]
    fn repository_names_are_normalized() {
        let check = |image: &str, expect: &str| assert_eq!(repository(image), expect, "{image}");
        check("busybox", "docker.io/library/busybox");
        check("busybox:1.36", "docker.io/library/busybox");
        check("team/app@sha256:00", "docker.io/team/app");
        check("127.0.0.1:5000/a/b:1@sha256:00", "127.0.0.1:5000/a/b");
        check("localhost/a", "localhost/a");
    }

    #[test]
    fn image_is_usable_with_credentials_that_could_pull_it() {
        let mut record = Record::new();
        add(&mut record, "r.example/a:1", Some(&secret("one", "h1")));
        let rules = Verification::default();
        let check = |image: &str, known: ImageOrigin<'_>, of_pod: &[Source], expect: &str| {
            let verdict = match rules.verdict(image, known, of_pod) {
                Decision::Allowed => "allowed".to_owned(),
                Decision::AllowedBy(Source::Secret(secret)) => format!("allowed by {}", secret.name),
                Decision::AllowedBy(Source::Account(_)) => panic!("a service account needs no other record"),
                Decision::MustPull => "must pull".to_owned(),
            };
            assert_eq!(verdict, expect, "{image} {known:?} {of_pod:?}");
        };
        let pulled = ImageOrigin::Pulled(&record);
        check("r.example/a:1", ImageOrigin::Preloaded, &[], "allowed");
        check("r.example/a:1", ImageOrigin::Pulling, &[secret("one", "h1")], "must pull");
        check("r.example/a:2", pulled, &[secret("one", "h1")], "allowed");
        check("r.example/a:1", pulled, &[], "must pull");
        check("r.example/a:1", pulled, &[secret("two", "h2")], "must pull");
        check("r.example/a:1", pulled, &[secret("two", "h2"), secret("three", "h1")], "allowed by three");
        check("r.example/a:1", pulled, &[secret("one", "changed")], "allowed by one");
        check("r.example/other:1", pulled, &[secret("one", "h1")], "must pull");
        let mut by_account = record.clone();
        assert!(add(&mut by_account, "r.example/a:1", Some(&account("robot", "1"))));
        assert!(!add(&mut by_account, "r.example/a:1", Some(&account("robot", "1"))));
        let pulled_by_account = ImageOrigin::Pulled(&by_account);
        check("r.example/a:1", pulled_by_account, &[account("robot", "1")], "allowed");
        check("r.example/a:1", pulled_by_account, &[account("robot", "2")], "must pull");
        check("r.example/a:1", pulled_by_account, &[secret("one", "h1")], "allowed");
        check("r.example/a:1", pulled, &[account("robot", "1")], "must pull");
        let mut open = record.clone();
        assert!(add(&mut open, "r.example/a", None), "what everybody may pull");
        check("r.example/a:1", ImageOrigin::Pulled(&open), &[], "allowed");
        assert!(!add(&mut open, "r.example/a", Some(&secret("one", "h1"))), "stays everybody's");
    }

    #[test]
    fn verification_policies_are_applied() {
        let listed = |texts: &[&str]| -> Result<Vec<AllowlistEntry>, &'static str> {
            texts.iter().map(|text| AllowlistEntry::parse(text)).collect()
        };
        let rules = Verification::UnlessListed(listed(&["r.example/team/*", "docker.io/library/busybox"]).unwrap());
        let verdict = |rules: &Verification, image: &str| rules.verdict(image, ImageOrigin::Preloaded, &[]);
        assert_eq!(verdict(&rules, "r.example/team/a:1"), Decision::Allowed);
        assert_eq!(verdict(&rules, "busybox:1"), Decision::Allowed);
        assert_eq!(verdict(&rules, "r.example/teams"), Decision::MustPull);
        assert_eq!(verdict(&Verification::Always, "busybox"), Decision::MustPull);
        assert_eq!(Verification::Never.verdict("busybox", ImageOrigin::Pulling, &[]), Decision::Allowed);
        for wrong in ["", "*", "/*", "a*", "r.example/*/a", " r.example/a", "r.example/a:1", "busybox"] {
            assert!(AllowlistEntry::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn secret_with_new_credentials_replaces_its_record() {
        let mut record = Record::new();
        assert!(add(&mut record, "r.example/a", Some(&secret("one", "old"))));
        assert!(add(&mut record, "r.example/a:2", Some(&secret("one", "new"))));
        assert!(!add(&mut record, "r.example/a", Some(&secret("one", "new"))));
        let secrets = record["r.example/a"].secrets.iter().cloned().map(Source::Secret);
        assert_eq!(secrets.collect::<Vec<_>>(), [secret("one", "new")]);
    }
}
