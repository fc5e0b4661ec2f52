//! Image names: short and full forms.

use std::fmt;

use oci_spec::distribution::{ParseError, Reference};

use crate::digest::Digest;

/// A full image name: registry, repository, and a tag or digest or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(Reference);

/// A text is not an image name.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is not an image name")]
pub struct NameError {
    text: String,
    #[source]
    source: ParseError,
}

impl Name {
    /// Parses a name: `busybox` is `docker.io/library/busybox:latest`.
    pub fn parse(text: &str) -> Result<Name, NameError> {
        Reference::try_from(text).map(Name).map_err(|source| NameError { text: text.to_owned(), source })
    }

    /// Returns the host of the registry, with its port if it has one.
    pub fn registry(&self) -> &str {
        self.0.registry()
    }

    /// Returns registry and repository, without tag and digest.
    pub fn repository(&self) -> String {
        format!("{}/{}", self.0.registry(), self.0.repository())
    }

    /// Returns the digest, if the name has one.
    pub fn digest(&self) -> Option<Digest> {
        self.0.digest().and_then(|digest| Digest::parse(digest).ok())
    }

    /// Returns the name with its tag, unless it has a digest.
    pub fn tagged(&self) -> Option<String> {
        match (self.0.tag(), self.0.digest()) {
            (Some(tag), None) => Some(format!("{}:{tag}", self.repository())),
            _ => None,
        }
    }

    /// Returns the repository with a digest.
    pub fn by_digest(&self, digest: &Digest) -> String {
        format!("{}@{digest}", self.repository())
    }

    /// Returns the repository without the registry.
    pub(crate) fn path(&self) -> &str {
        self.0.repository()
    }

    pub(crate) fn tag(&self) -> &str {
        self.0.tag().unwrap_or("latest")
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.whole())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_expanded_as_in_docker() {
        let check = |text: &str, tagged: Option<&str>, repository: &str| {
            let name = Name::parse(text).unwrap();
            assert_eq!((name.tagged().as_deref(), name.repository().as_str()), (tagged, repository), "{text}");
        };
        check("busybox", Some("docker.io/library/busybox:latest"), "docker.io/library/busybox");
        check("me/tool:1", Some("docker.io/me/tool:1"), "docker.io/me/tool");
        check("localhost:5000/a/b:c", Some("localhost:5000/a/b:c"), "localhost:5000/a/b");
        let digest = format!("sha256:{}", "0".repeat(64));
        check(&format!("registry.k8s.io/pause@{digest}"), None, "registry.k8s.io/pause");
        check(&format!("registry.k8s.io/pause:3.10@{digest}"), None, "registry.k8s.io/pause");
    }

    #[test]
    fn invalid_names_are_rejected() {
        for text in ["", "UPPER", "a b", "x@sha256:12", ":tag"] {
            assert!(Name::parse(text).is_err(), "{text}");
        }
    }
}
