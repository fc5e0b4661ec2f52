//! What a request is about: a resource, perhaps a namespace, an object and a subresource; and the path that says so.

use machinery::meta::Scope;
use machinery::{Key, Resource, Str};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What stays as it is in a segment of a path: the unreserved characters, and what names of roles contain.
const SEGMENT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':').remove(b'@');

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// The resource.
    pub resource: &'a Resource,
    /// The namespace; empty for all, or for a resource that has none.
    pub namespace: Str,
    /// The object; empty for all.
    pub name: Str,
    /// `status`, `scale`, …; empty for the object itself.
    pub subresource: Str,
}

/// Why there is no path to a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// A name that would mean another path.
    #[error("{field} {value:?} cannot stand in a path")]
    Segment {
        /// Which part of the target it is.
        field: &'static str,
        /// What it says.
        value: String,
    },
    /// An object in a namespace is addressed without it.
    #[error("{resource} {name:?} is addressed without its namespace")]
    NamespaceMissing {
        /// The resource.
        resource: String,
        /// The object.
        name: String,
    },
    /// A namespace is given for a resource that has none.
    #[error("{resource} are not in namespaces, yet {namespace:?} is given")]
    NamespaceGiven {
        /// The resource.
        resource: String,
        /// The namespace.
        namespace: String,
    },
    /// The verb needs a name.
    #[error("the name of one of {0} is missing")]
    NameMissing(String),
}

impl<'a> Target<'a> {
    /// All objects of a resource.
    pub fn all(resource: &'a Resource) -> Self {
        Self::within(resource, "")
    }

    /// The objects of a resource in a namespace.
    pub fn within(resource: &'a Resource, namespace: impl Into<Str>) -> Self {
        Self { resource, namespace: namespace.into(), name: Str::default(), subresource: Str::default() }
    }

    /// One object.
    pub fn object(resource: &'a Resource, key: &Key) -> Self {
        Self { name: key.name.clone(), ..Self::within(resource, key.namespace.clone()) }
    }

    /// One object in a namespace.
    pub fn named(resource: &'a Resource, namespace: impl Into<Str>, name: impl Into<Str>) -> Self {
        Self { name: name.into(), ..Self::within(resource, namespace) }
    }

    /// A subresource of it: `status`, `scale`, `binding`, `eviction`, `token`, ….
    #[must_use]
    pub fn subresource(self, subresource: impl Into<Str>) -> Self {
        Self { subresource: subresource.into(), ..self }
    }

    /// The path of the request.
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
                return Err(TargetError::NamespaceGiven { resource, namespace });
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

    /// The path of a request that must be about one object.
    pub(crate) fn object_path(&self) -> Result<String, TargetError> {
        if self.name.is_empty() {
            return Err(TargetError::NameMissing(self.resource.to_string()));
        }
        self.path()
    }
}

/// Refuses what upstream refuses in a segment, so that no name leads to another object.
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
    fn a_target_has_the_path_that_the_api_documents() {
        let check = |target: Target<'_>, path: &str| assert_eq!(target.path().unwrap(), path);
        check(Target::all(&PODS), "/api/v1/pods");
        check(Target::within(&PODS, "a"), "/api/v1/namespaces/a/pods");
        check(Target::named(&PODS, "a", "b").subresource("eviction"), "/api/v1/namespaces/a/pods/b/eviction");
        let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node";
        check(Target::named(&ROLES, "", "system:node"), role);
        check(Target::named(&PODS, "a", "b?c#d e"), "/api/v1/namespaces/a/pods/b%3Fc%23d%20e");
    }

    #[test]
    fn no_name_leads_out_of_its_place() {
        let check = |target: Target<'_>, why: &str| assert_eq!(target.path().unwrap_err().to_string(), why);
        check(Target::named(&PODS, "a", ".."), "name \"..\" cannot stand in a path");
        check(Target::named(&PODS, "a/b", "c"), "namespace \"a/b\" cannot stand in a path");
        check(Target::named(&PODS, "a", "b%2Fc"), "name \"b%2Fc\" cannot stand in a path");
        check(Target::named(&PODS, "", "b"), "pods \"b\" is addressed without its namespace");
        check(
            Target::within(&ROLES, "a"),
            "clusterroles.rbac.authorization.k8s.io are not in namespaces, yet \"a\" is given",
        );
    }
}
