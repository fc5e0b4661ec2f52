//! Authorization attributes of a request.

mod owned;

use apimachinery::status::{GroupName, Status};
use apimachinery::{fields, labels};

pub use owned::{OwnedAttributes, OwnedResource, OwnedTarget};

use crate::User;

#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// The requester.
    pub user: &'a User,
    /// The API verb, or the HTTP method in lower case for a non-resource path.
    pub verb: &'a str,
    pub target: Target<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    Resource(Resource<'a>),
    /// A non-resource path, such as `/healthz`.
    Path(&'a str),
}

/// An API resource. Empty strings mean "all" or "none", as in a SubjectAccessReview.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resource<'a> {
    /// The API group, empty for the core group.
    pub group: &'a str,
    /// The requested version of the group.
    pub version: &'a str,
    /// The plural name.
    pub resource: &'a str,
    pub subresource: &'a str,
    /// The namespace, empty for all namespaces and for cluster-scoped resources.
    pub namespace: &'a str,
    /// The object name, empty for requests on collections.
    pub name: &'a str,
    /// The interpretable requirements of the field selector of list, watch and deletecollection requests.
    pub field_selector: &'a [fields::Requirement],
    /// The interpretable requirements of the label selector.
    pub label_selector: &'a [labels::Requirement],
}

impl Attributes<'_> {
    /// Whether the verb is get, list or watch.
    pub fn is_read_only(&self) -> bool {
        matches!(self.verb, "get" | "list" | "watch")
    }

    /// Returns the message of a denied request: `User "a" cannot list resource "pods" in API group "" in the namespace
    /// "b"`.
    pub fn denial_message(&self) -> String {
        let (user, verb) = (&self.user.name, self.verb);
        let resource = match self.target {
            Target::Path(path) => return format!("User {user:?} cannot {verb} path {path:?}"),
            Target::Resource(resource) => resource,
        };
        let what = match resource.subresource {
            "" => resource.resource.to_owned(),
            subresource => format!("{}/{subresource}", resource.resource),
        };
        let scope = match resource.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        format!("User {user:?} cannot {verb} resource {what:?} in API group {:?} {scope}", resource.group)
    }

    /// Returns the Forbidden status with `reason`, which may be empty.
    pub fn forbidden(&self, reason: &str) -> Status {
        let cause =
            if reason.is_empty() { self.denial_message() } else { format!("{}: {reason}", self.denial_message()) };
        match self.target {
            Target::Path(_) => Status::forbidden(GroupName::new("", ""), "", cause),
            Target::Resource(resource) => {
                Status::forbidden(GroupName::new(resource.group, resource.resource), resource.name, cause)
            }
        }
    }
}

/// Parses the selectors of a request for the authorizers. Only list, watch and deletecollection requests have them.
/// Uninterpretable requirements are omitted, which requests broader access and is safe.
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
    fn only_collection_requests_have_selectors() {
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
    fn denial_messages_equal_upstreams() {
        let user = User::authenticated("eve", []);
        let check = |verb, target, expect: &str| {
            assert_eq!(Attributes { user: &user, verb, target }.denial_message(), expect);
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
