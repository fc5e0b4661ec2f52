//! Request targets: resource, namespace, name and subresource, and their path.

use apimachinery::meta::Scope;
use apimachinery::{Key, Resource, Str};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters that are not escaped in a path segment: the unreserved ones, and those in names of roles.
const SEGMENT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':').remove(b'@');

/// The target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    pub resource: &'a Resource,
    /// The namespace; empty for all, or for a cluster-scoped resource.
    pub namespace: Str,
    /// The object name; empty for the collection.
    pub name: Str,
    /// `status`, `scale`, …; empty for the object itself.
    pub subresource: Str,
}

/// A target has no valid path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// A segment would change the path.
    #[error("{field} {value:?} is not a valid path segment")]
    Segment {
        /// The part of the target.
        field: &'static str,
        value: String,
    },
    #[error("{resource} {name:?} requires a namespace")]
    NamespaceMissing {
        /// The plural name of the resource.
        resource: String,
        name: String,
    },
    #[error("{resource} are cluster-scoped, but namespace {namespace:?} is given")]
    UnexpectedNamespace {
        /// The plural name of the resource.
        resource: String,
        namespace: String,
    },
    /// The verb requires a name.
    #[error("a name is required for {0}")]
    NameMissing(String),
}

impl<'a> Target<'a> {
    /// Returns a target for all objects of a resource.
    pub fn all(resource: &'a Resource) -> Self {
        Self::within(resource, "")
    }

    /// Returns a target for the objects of a resource in a namespace.
    pub fn within(resource: &'a Resource, namespace: impl Into<Str>) -> Self {
        Self { resource, namespace: namespace.into(), name: Str::default(), subresource: Str::default() }
    }

    pub fn object(resource: &'a Resource, key: &Key) -> Self {
        Self { name: key.name.clone(), ..Self::within(resource, key.namespace.clone()) }
    }

    pub fn named(resource: &'a Resource, namespace: impl Into<Str>, name: impl Into<Str>) -> Self {
        Self { name: name.into(), ..Self::within(resource, namespace) }
    }

    /// Returns the target of a subresource: `status`, `scale`, `binding`, `eviction`, `token`, ….
    #[must_use]
    pub fn subresource(self, subresource: impl Into<Str>) -> Self {
        Self { subresource: subresource.into(), ..self }
    }

    pub fn path(&self) -> Result<String, TargetError> {
        let resource = self.resource;
        let mut path = String::with_capacity(96);
        if resource.group.is_empty() {
            path.push_str("/api");
        } else {
            path.push_str("/apis");
            push(&mut path, "group", &resource.group)?;
        }
        push(&mut path, "version", &resource.version)?;
        match resource.scope {
            Scope::Namespaced if !self.namespace.is_empty() => {
                path.push_str("/namespaces");
                push(&mut path, "namespace", &self.namespace)?;
            }
            Scope::Namespaced if !self.name.is_empty() => {
                let (resource, name) = (resource.to_string(), self.name.to_string());
                return Err(TargetError::NamespaceMissing { resource, name });
            }
            Scope::Cluster if !self.namespace.is_empty() => {
                let (resource, namespace) = (resource.to_string(), self.namespace.to_string());
                return Err(TargetError::UnexpectedNamespace { resource, namespace });
            }
            Scope::Namespaced | Scope::Cluster => {}
        }
        push(&mut path, "resource", &resource.plural)?;
        if !self.name.is_empty() {
            push(&mut path, "name", &self.name)?;
        }
        if !self.subresource.is_empty() {
            push(&mut path, "subresource", &self.subresource)?;
        }
        Ok(path)
    }

    /// Returns the path of a request that requires a name.
    pub(crate) fn object_path(&self) -> Result<String, TargetError> {
        if self.name.is_empty() {
            return Err(TargetError::NameMissing(self.resource.to_string()));
        }
        self.path()
    }
}

/// Appends a segment. As upstream, rejects values that could lead to another object.
fn push(path: &mut String, field: &'static str, value: &str) -> Result<(), TargetError> {
    if matches!(value, "" | "." | "..") || value.contains(['/', '%']) {
        return Err(TargetError::Segment { field, value: value.to_owned() });
    }
    path.push('/');
    path.extend(utf8_percent_encode(value, SEGMENT));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PODS: Resource = Resource::namespaced("", "v1", "pods", "Pod");
    const ROLES: Resource = Resource::cluster("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole");

    #[test]
    fn target_has_the_documented_path() {
        let check = |target: Target<'_>, path: &str| assert_eq!(target.path().unwrap(), path);
        check(Target::all(&PODS), "/api/v1/pods");
        check(Target::within(&PODS, "a"), "/api/v1/namespaces/a/pods");
        check(Target::named(&PODS, "a", "b").subresource("eviction"), "/api/v1/namespaces/a/pods/b/eviction");
        let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node";
        check(Target::named(&ROLES, "", "system:node"), role);
        check(Target::named(&PODS, "a", "b?c#d e"), "/api/v1/namespaces/a/pods/b%3Fc%23d%20e");
    }

    #[test]
    fn names_cannot_change_the_path() {
        let check = |target: Target<'_>, expected: &str| assert_eq!(target.path().unwrap_err().to_string(), expected);
        check(Target::named(&PODS, "a", ".."), "name \"..\" is not a valid path segment");
        check(Target::named(&PODS, "a/b", "c"), "namespace \"a/b\" is not a valid path segment");
        check(Target::named(&PODS, "a", "b%2Fc"), "name \"b%2Fc\" is not a valid path segment");
        check(Target::named(&PODS, "", "b"), "pods \"b\" requires a namespace");
        check(
            Target::within(&ROLES, "a"),
            "clusterroles.rbac.authorization.k8s.io are cluster-scoped, but namespace \"a\" is given",
        );
    }
}
