//! What a request asks for, as far as authorization cares.

use crate::User;

/// A request as an authorizer sees it.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// Who asks.
    pub user: &'a User,
    /// What they want to do: an API verb, or the HTTP method in lower case for a path.
    pub verb: &'a str,
    /// What they want to do it to.
    pub target: Target<'a>,
}

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// An API resource.
    Resource(Resource<'a>),
    /// A path that is no resource, such as `/healthz`.
    Path(&'a str),
}

/// An API resource; empty strings are "all" or "none", as in a SubjectAccessReview.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resource<'a> {
    /// Its API group, empty for the core group.
    pub group: &'a str,
    /// The version of the group that was asked for.
    pub version: &'a str,
    /// Its plural name.
    pub resource: &'a str,
    /// The part of it that is meant.
    pub subresource: &'a str,
    /// The namespace, empty for all of them and for what has none.
    pub namespace: &'a str,
    /// The one object that is meant.
    pub name: &'a str,
}

impl Attributes<'_> {
    /// Whether the verb changes nothing.
    pub fn is_read_only(&self) -> bool {
        matches!(self.verb, "get" | "list" | "watch")
    }

    /// The sentence that refuses the request: `User "a" cannot list resource "pods" in API group "" in the namespace "b"`.
    pub fn refusal(&self) -> String {
        let (user, verb) = (&self.user.name, self.verb);
        let resource = match self.target {
            Target::Path(path) => return format!("User {user:?} cannot {verb} path {path:?}"),
            Target::Resource(resource) => resource,
        };
        let what = match resource.subresource {
            "" => resource.resource.to_owned(),
            subresource => format!("{}/{subresource}", resource.resource),
        };
        let place = match resource.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        format!("User {user:?} cannot {verb} resource {what:?} in API group {:?} {place}", resource.group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_reads_as_kubernetes_words_it() {
        let user = User::authenticated("eve", []);
        let check = |verb, target, expect: &str| {
            assert_eq!(Attributes { user: &user, verb, target }.refusal(), expect);
        };
        let pods = Resource { resource: "pods", ..Resource::default() };
        check("get", Target::Path("/metrics"), r#"User "eve" cannot get path "/metrics""#);
        check(
            "list",
            Target::Resource(pods),
            r#"User "eve" cannot list resource "pods" in API group "" at the cluster scope"#,
        );
        check(
            "create",
            Target::Resource(Resource { subresource: "exec", namespace: "b", name: "x", ..pods }),
            r#"User "eve" cannot create resource "pods/exec" in API group "" in the namespace "b""#,
        );
    }
}
