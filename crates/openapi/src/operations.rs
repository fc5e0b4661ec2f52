//! What can be done with the resources of a group version, as both versions of OpenAPI tell it.

mod parameters;
mod routes;

use machinery::{GroupVersionKind, Str};

pub use parameters::{Parameter, Place};
pub use routes::{Routes, tag};

/// A path with what can be done there.
#[derive(Debug)]
pub struct Route {
    /// `/api/v1/namespaces/{namespace}/pods`.
    pub path: String,
    /// What can be done.
    pub operations: Vec<Operation>,
}

/// One method of one path.
#[derive(Debug)]
pub struct Operation {
    /// `get`.
    pub method: &'static str,
    /// `listCoreV1NamespacedPod`.
    pub id: String,
    /// A line for people.
    pub description: String,
    /// What Kubernetes calls it, and the kind it is about; none for what is about no kind.
    pub action: Option<(&'static str, GroupVersionKind)>,
    /// What may stand in the query and must stand in the path, by name.
    pub parameters: Vec<Parameter>,
    /// What is sent.
    pub body: Body,
    /// What comes back, and with which codes besides 200.
    pub answer: (Content, &'static [u16]),
    /// In which encodings it comes back.
    pub produces: &'static [&'static str],
}

/// What is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Nothing.
    None,
    /// An object, in any encoding.
    Required(Content),
    /// An object, or nothing.
    Optional(Content),
    /// A patch, of one of these types.
    Patch(&'static [&'static str]),
}

/// What is sent or comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// An object of a built-in kind.
    BuiltIn(GroupVersionKind),
    /// An object of the custom kind with that place in the group version.
    Custom(usize),
    /// A list of such.
    CustomList(usize),
    /// Text.
    Text,
    /// The server's version.
    Version,
}

impl Route {
    /// The parameters that all operations have, which are said once for the path.
    pub fn common(&self) -> Vec<&Parameter> {
        let Some((first, others)) = self.operations.split_first() else { return Vec::new() };
        let everywhere = |one: &&Parameter| others.iter().all(|other| other.parameters.contains(one));
        first.parameters.iter().filter(everywhere).collect()
    }
}

/// `Batch` for `batch`, `RbacAuthorization` for `rbac.authorization.k8s.io`, `Core` for the core group.
pub fn pascal_group(group: &str) -> String {
    let group = if group.is_empty() { "core" } else { group.strip_suffix(".k8s.io").unwrap_or(group) };
    group.split('.').map(pascal).collect()
}

/// The word with a capital.
pub fn pascal(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect()
}

/// `a Pod`, `an Event`.
pub fn with_article(noun: &Str) -> String {
    let vowel = noun.starts_with(['A', 'E', 'I', 'O', 'U', 'a', 'e', 'i', 'o', 'u']);
    format!("{} {noun}", if vowel { "an" } else { "a" })
}
