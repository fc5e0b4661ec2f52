//! What a request asks for, as far as authorization cares.

mod question;

use machinery::status::{GroupName, Status};
use machinery::{fields, labels};

pub use question::{About, OwnedResource, Question};

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
    /// What the fields of objects that are listed, watched or deleted together must be, as far as it could be read.
    pub field_selector: &'a [fields::Requirement],
    /// What their labels must be, as far as it could be read.
    pub label_selector: &'a [labels::Requirement],
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

    /// The answer to a request that is refused for `reason`, which may be empty.
    pub fn forbidden(&self, reason: &str) -> Status {
        let cause = if reason.is_empty() { self.refusal() } else { format!("{}: {reason}", self.refusal()) };
        match self.target {
            Target::Path(_) => Status::forbidden(GroupName::new("", ""), "", cause),
            Target::Resource(resource) => {
                Status::forbidden(GroupName::new(resource.group, resource.resource), resource.name, cause)
            }
        }
    }
}

/// The selectors of a request as authorizers see them: only requests for many objects have any, and what cannot be read
/// is left out. That asks for more than the client wants, which is the safe side.
pub fn selectors(verb: &str, fields: &str, labels: &str) -> (Vec<fields::Requirement>, Vec<labels::Requirement>) {
    if !matches!(verb, "list" | "watch" | "deletecollection") {
        return (Vec::new(), Vec::new());
    }
    let of_fields = fields::Selector::parse(fields).map(|selector| selector.requirements().to_vec());
    let of_labels =
        labels::Selector::parse(labels).map(|selector| selector.requirements().unwrap_or_default().to_vec());
    (of_fields.unwrap_or_default(), of_labels.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_for_many_objects_have_selectors() {
        let check = |verb: &str, fields: &str, labels: &str, expect: (usize, usize)| {
            let (of_fields, of_labels) = selectors(verb, fields, labels);
            assert_eq!((of_fields.len(), of_labels.len()), expect, "{verb} {fields} {labels}");
        };
        check("list", "spec.nodeName=n,a!=b", "app=x", (2, 1));
        check("watch", "", "", (0, 0));
        check("deletecollection", "a", "app in (", (0, 0));
        check("get", "metadata.name=x", "app=x", (0, 0));
    }

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
