//! OpenAPI operations of a group version, shared by OpenAPI v2 and v3.

mod parameters;
mod routes;

use apimachinery::{GroupVersionKind, Str};

pub(crate) use parameters::{Parameter, ParameterLocation};
pub(crate) use routes::{Routes, tag};

/// A path with its operations.
#[derive(Debug)]
pub(crate) struct Route {
    /// For example `/api/v1/namespaces/{namespace}/pods`.
    pub path: String,
    pub operations: Vec<Operation>,
}

/// One method of a path.
#[derive(Debug)]
pub(crate) struct Operation {
    /// For example `get`.
    pub method: &'static str,
    /// For example `listCoreV1NamespacedPod`.
    pub id: String,
    pub description: String,
    /// `x-kubernetes-action` and the kind; `None` for operations without a kind.
    pub action: Option<(&'static str, GroupVersionKind)>,
    /// Query and path parameters, by name.
    pub parameters: Vec<Parameter>,
    pub body: Body,
    /// The response content, and the success codes in addition to 200.
    pub response: (Content, &'static [u16]),
    /// The media types of the response.
    pub produces: &'static [&'static str],
}

/// The content of a request body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    None,
    Required(Content),
    Optional(Content),
    /// A patch, with its media types.
    Patch(&'static [&'static str]),
}

/// The schema of a request or response body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// An object of a built-in kind.
    BuiltIn(GroupVersionKind),
    /// An object of the custom kind with that index in the group version.
    Custom(usize),
    /// A list of the custom kind with that index.
    CustomList(usize),
    Text,
    /// The `/version` document.
    Version,
}

impl Route {
    /// Returns the parameters common to all operations, which are declared once for the path.
    pub(crate) fn common(&self) -> Vec<&Parameter> {
        let Some((first, others)) = self.operations.split_first() else { return Vec::new() };
        let everywhere = |one: &&Parameter| others.iter().all(|other| other.parameters.contains(one));
        first.parameters.iter().filter(everywhere).collect()
    }
}

/// Returns `Batch` for `batch`, `RbacAuthorization` for `rbac.authorization.k8s.io`, `Core` for the core group.
pub(crate) fn pascal_group(group: &str) -> String {
    let group = if group.is_empty() { "core" } else { group.strip_suffix(".k8s.io").unwrap_or(group) };
    group.split('.').map(pascal).collect()
}

/// Capitalizes the first letter.
pub(crate) fn pascal(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect()
}

/// Returns the noun with its article: `a Pod`, `an Event`.
pub(crate) fn with_article(noun: &Str) -> String {
    let vowel = noun.starts_with(['A', 'E', 'I', 'O', 'U', 'a', 'e', 'i', 'o', 'u']);
    format!("{} {noun}", if vowel { "an" } else { "a" })
}
