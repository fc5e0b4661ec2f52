//! What flow control needs to know of a request.

use machinery::Str;

/// A request as a flow schema sees it.
#[derive(Clone, Copy, Debug)]
pub struct Digest<'a> {
    /// The name of who asks.
    pub user: &'a str,
    /// The groups of who asks.
    pub groups: &'a [Str],
    /// The API verb, or the HTTP method in lower case for a path.
    pub verb: &'a str,
    /// What it is about.
    pub target: Target<'a>,
}

/// What a request is about.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// An API resource; an empty string is the core group, no subresource, no namespace.
    Resource {
        /// Its API group.
        group: &'a str,
        /// Its plural name.
        resource: &'a str,
        /// The part of it that is meant.
        subresource: &'a str,
        /// The namespace.
        namespace: &'a str,
    },
    /// A path that is no resource, such as `/healthz`.
    Path(&'a str),
}

impl<'a> Digest<'a> {
    /// The namespace, empty where there is none.
    pub const fn namespace(&self) -> &'a str {
        match self.target {
            Target::Resource { namespace, .. } => namespace,
            Target::Path(_) => "",
        }
    }

    /// Whether the verb changes something.
    pub fn is_mutating(&self) -> bool {
        !matches!(self.verb, "get" | "list" | "watch")
    }
}
