//! PolicyRule: one rule of a role.

use apimachinery::{Str, Value};

use crate::attributes::Resource;
use crate::{Attributes, Target};

const ALL: &str = "*";

/// A PolicyRule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Verbs, or `*`.
    pub verbs: Vec<Str>,
    /// API groups, or `*`.
    pub api_groups: Vec<Str>,
    /// Resources, `resource/subresource`, `*/subresource`, or `*`.
    pub resources: Vec<Str>,
    /// Object names; empty for all.
    pub resource_names: Vec<Str>,
    /// Paths, with a trailing `*` for a prefix.
    pub non_resource_urls: Vec<Str>,
}

impl Rule {
    /// Parses the rules of a Role or ClusterRole.
    pub fn all_from_object(role: &Value) -> Vec<Self> {
        role.list_at(&["rules"]).iter().map(Self::from_object).collect()
    }

    pub fn from_object(rule: &Value) -> Self {
        let strings = |key| {
            let items = rule.get(key).and_then(Value::as_array).unwrap_or_default();
            items.iter().filter_map(Value::as_str).map(Str::from).collect()
        };
        Self {
            verbs: strings("verbs"),
            api_groups: strings("apiGroups"),
            resources: strings("resources"),
            resource_names: strings("resourceNames"),
            non_resource_urls: strings("nonResourceURLs"),
        }
    }

    /// Whether this rule allows the request.
    pub fn permits(&self, attributes: &Attributes<'_>) -> bool {
        has(&self.verbs, attributes.verb)
            && match &attributes.target {
                Target::Resource(resource) => self.covers_resource(resource),
                Target::Path(path) => self.non_resource_urls.iter().any(|pattern| matches_path(pattern, path)),
            }
    }

    fn covers_resource(&self, resource: &Resource<'_>) -> bool {
        has(&self.api_groups, resource.group)
            && self.resources.iter().any(|pattern| matches_resource(pattern, resource))
            && (self.resource_names.is_empty() || self.resource_names.iter().any(|name| name == resource.name))
    }
}

/// Whether `list` contains `word` or `*`.
pub(super) fn has(list: &[Str], word: &str) -> bool {
    list.iter().any(|have| have == ALL || have == word)
}

/// Whether `path` equals `pattern`, or has the prefix before its trailing `*`.
pub(super) fn matches_path(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix(ALL) {
        Some(prefix) => path.starts_with(prefix.trim_end_matches('*')),
        None => pattern == path,
    }
}

fn matches_resource(pattern: &str, resource: &Resource<'_>) -> bool {
    if pattern == ALL {
        return true;
    }
    match pattern.split_once('/') {
        None => resource.subresource.is_empty() && pattern == resource.resource,
        Some((of, subresource)) => {
            !resource.subresource.is_empty()
                && subresource == resource.subresource
                && (of == ALL || of == resource.resource)
        }
    }
}
