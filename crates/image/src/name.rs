//! The name of an image as people write it, and in full.

use std::fmt;

use oci_client::Reference;

use crate::digest::Digest;

/// An image's name in full: registry, repository, and a tag or digest or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(Reference);

/// Why a text names no image.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is not an image name")]
pub struct NameError {
    text: String,
    /// Why.
    #[source]
    source: oci_client::ParseError,
}

impl Name {
    /// Reads a name: `busybox` is `docker.io/library/busybox:latest`.
    pub fn parse(text: &str) -> Result<Name, NameError> {
        Reference::try_from(text).map(Name).map_err(|source| NameError { text: text.to_owned(), source })
    }

    /// The registry's host, with its port if it has one.
    pub fn registry(&self) -> &str {
        self.0.registry()
    }

    /// Registry and repository, without tag and digest.
    pub fn repository(&self) -> String {
        format!("{}/{}", self.0.registry(), self.0.repository())
    }

    /// The digest it asks for.
    pub fn digest(&self) -> Option<Digest> {
        self.0.digest().and_then(|digest| Digest::parse(digest).ok())
    }

    /// The name by tag, unless it is by digest.
    pub fn tagged(&self) -> Option<String> {
        match (self.0.tag(), self.0.digest()) {
            (Some(tag), None) => Some(format!("{}:{tag}", self.repository())),
            _ => None,
        }
    }

    /// The same repository by digest.
    pub fn by_digest(&self, digest: &Digest) -> String {
        format!("{}@{digest}", self.repository())
    }

    pub(crate) fn reference(&self) -> &Reference {
        &self.0
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
    fn short_names_mean_what_docker_means_by_them() {
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
    fn what_is_no_name_is_refused() {
        for text in ["", "UPPER", "a b", "x@sha256:12", ":tag"] {
            assert!(Name::parse(text).is_err(), "{text}");
        }
    }
}
