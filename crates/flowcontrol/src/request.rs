//! The attributes of a request for flow control.

use apimachinery::Str;

/// The attributes that flow schemas match.
#[derive(Clone, Copy, Debug)]
pub struct Digest<'a> {
    /// The user name of the requester.
    pub user: &'a str,
    /// The groups of the requester.
    pub groups: &'a [Str],
    /// The API verb, or the HTTP method in lower case for a non-resource path.
    pub verb: &'a str,
    pub target: Target<'a>,
}

#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// An API resource. Empty strings mean the core group, no subresource, no namespace.
    Resource {
        group: &'a str,
        /// The plural name.
        resource: &'a str,
        subresource: &'a str,
        namespace: &'a str,
    },
    /// A non-resource path, such as `/healthz`.
    Path(&'a str),
}

impl<'a> Digest<'a> {
    /// Returns the namespace, empty for none.
    pub const fn namespace(&self) -> &'a str {
        match self.target {
            Target::Resource { namespace, .. } => namespace,
            Target::Path(_) => "",
        }
    }

    /// Whether the verb is not get, list or watch.
    pub fn is_mutating(&self) -> bool {
        !matches!(self.verb, "get" | "list" | "watch")
    }
}
