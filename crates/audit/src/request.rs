//! What auditing needs to know of a request.

use std::collections::BTreeMap;

use machinery::Str;

/// A request as an audit policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// Who asks.
    pub user: &'a User,
    /// The API verb, or the HTTP method in lower case for a path.
    pub verb: &'a str,
    /// What it is about.
    pub target: Target<'a>,
}

/// What a request is about; empty strings are the core group, no subresource, no namespace, no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// An API resource.
    Resource {
        /// Its API group.
        group: &'a str,
        /// The version of the group.
        version: &'a str,
        /// Its plural name.
        resource: &'a str,
        /// The part of it that is meant.
        subresource: &'a str,
        /// The namespace.
        namespace: &'a str,
        /// The one object that is meant.
        name: &'a str,
    },
    /// A path that is no resource, such as `/healthz`.
    Path(&'a str),
}

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub username: Str,
    /// A mark that outlives a change of name.
    pub uid: Str,
    /// The groups.
    pub groups: Vec<Str>,
    /// What else the authenticator knows.
    pub extra: BTreeMap<Str, Vec<Str>>,
}
