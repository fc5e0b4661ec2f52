//! `create role`, `create clusterrole`, `create rolebinding` and `create clusterrolebinding`.

use std::collections::BTreeMap;

use apimachinery::{Object, Value, value};

use super::{Error, Name, put, texts, typed};

/// A value of `--resource`: `resource.group/subresource`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    pub group: String,
    pub resource: String,
    pub subresource: String,
}

/// The rule that the flags of `create role` describe.
#[derive(Clone, Debug, Default)]
pub struct Rule {
    pub verbs: Vec<String>,
    pub resources: Vec<Resource>,
    pub resource_names: Vec<String>,
    /// Only for cluster roles.
    pub non_resource_urls: Vec<String>,
}

/// Subjects of a binding.
#[derive(Clone, Copy, Debug, Default)]
pub struct Subjects<'a> {
    pub users: &'a [String],
    pub groups: &'a [String],
    /// `namespace:name`
    pub service_accounts: &'a [String],
}

/// A role with its warnings for the user.
#[derive(Clone, Debug)]
pub struct Role {
    pub object: Value,
    pub warnings: Vec<String>,
}

pub const GROUP: &str = "rbac.authorization.k8s.io";
const API_VERSION: &str = "rbac.authorization.k8s.io/v1";

const RESOURCE_VERBS: [&str; 14] = [
    "*",
    "get",
    "delete",
    "list",
    "create",
    "update",
    "patch",
    "watch",
    "proxy",
    "deletecollection",
    "use",
    "bind",
    "escalate",
    "impersonate",
];
const NON_RESOURCE_VERBS: [&str; 8] = ["*", "get", "post", "put", "delete", "patch", "head", "options"];

/// Verbs that apply to a few resources only, each with (group, resource).
const SPECIAL_VERBS: &[(&str, &[(&str, &str)])] = &[
    ("use", &[("policy", "podsecuritypolicies"), ("extensions", "podsecuritypolicies")]),
    ("bind", &[(GROUP, "roles"), (GROUP, "clusterroles")]),
    ("escalate", &[(GROUP, "roles"), (GROUP, "clusterroles")]),
    ("impersonate", &[("", "users"), ("", "serviceaccounts"), ("", "groups"), ("authentication.k8s.io", "userextras")]),
];

impl Resource {
    /// Parses `resource[.group][/subresource]`.
    pub fn parse(text: &str) -> Self {
        let (name, subresource) = text.split_once('/').unwrap_or((text, ""));
        let (resource, group) = name.split_once('.').unwrap_or((name, ""));
        Self { group: group.to_owned(), resource: resource.to_owned(), subresource: subresource.to_owned() }
    }
}

impl Rule {
    /// Makes a rule from flags. `*` stands for all verbs, or for all resources; duplicates are dropped.
    pub fn new(verbs: &[String], resources: &[String], resource_names: &[String], urls: &[String]) -> Self {
        let all = |verbs: &[String]| verbs.iter().any(|verb| verb == "*");
        let verbs = if all(verbs) { vec!["*".to_owned()] } else { unique(verbs) };
        let resources = if resources.iter().any(|resource| resource == "*") {
            vec![Resource::parse("*")]
        } else {
            resources.iter().map(|resource| Resource::parse(resource)).collect()
        };
        Self { verbs, resources, resource_names: unique(resource_names), non_resource_urls: unique(urls) }
    }
}

/// Returns a role. `find` returns the group and the plural name of a resource, from (group, name).
pub fn role<E: From<Error>>(
    name: Name<'_>,
    rule: &Rule,
    find: impl Fn(&str, &str) -> Result<(String, String), E>,
) -> Result<Role, E> {
    name.required()?;
    if rule.verbs.is_empty() {
        return Err(Error::new("at least one verb must be specified").into());
    }
    let warnings = verb_warnings(rule);
    if rule.resources.is_empty() {
        return Err(Error::new("at least one resource must be specified").into());
    }
    validate_resources(rule, &find)?;
    let mut object = name.object(API_VERSION, "Role");
    put(&mut object, &["rules"], policy_rules(rule, &find));
    Ok(Role { object: typed(object), warnings })
}

/// Returns a cluster role: one with rules, or one that aggregates others by a label selector.
pub fn cluster_role<E: From<Error>>(
    name: &str,
    rule: &Rule,
    aggregation: &[(String, String)],
    find: impl Fn(&str, &str) -> Result<(String, String), E>,
) -> Result<Role, E> {
    let name = Name { name, namespace: None };
    name.required()?;
    let mut object = name.object(API_VERSION, "ClusterRole");
    if !aggregation.is_empty() {
        let alone = rule.verbs.is_empty()
            && rule.resources.is_empty()
            && rule.resource_names.is_empty()
            && rule.non_resource_urls.is_empty();
        if !alone {
            return Err(Error::new(
                "aggregation rule must be specified without nonResourceURLs, verbs, resources or resourceNames",
            )
            .into());
        }
        let labels: Object = aggregation.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        put(&mut object, &["aggregationRule", "clusterRoleSelectors"], vec![value!({"matchLabels": labels})]);
        return Ok(Role { object: typed(object), warnings: Vec::new() });
    }
    if rule.verbs.is_empty() {
        return Err(Error::new("at least one verb must be specified").into());
    }
    if rule.resources.is_empty() && rule.non_resource_urls.is_empty() {
        return Err(Error::new("one of resource or nonResourceURL must be specified").into());
    }
    let warnings = if rule.resources.is_empty() { Vec::new() } else { verb_warnings(rule) };
    validate_resources(rule, &find)?;
    validate_urls(rule)?;
    put(&mut object, &["rules"], policy_rules(rule, &find));
    Ok(Role { object: typed(object), warnings })
}

/// Returns a role binding to a cluster role or a role, exactly one of which must be given.
pub fn role_binding(name: Name<'_>, cluster_role: &str, role: &str, subjects: Subjects<'_>) -> Result<Value, Error> {
    name.required()?;
    if cluster_role.is_empty() == role.is_empty() {
        return Err(Error::new("exactly one of clusterrole or role must be specified"));
    }
    let (kind, referred) = if role.is_empty() { ("ClusterRole", cluster_role) } else { ("Role", role) };
    binding(name.object(API_VERSION, "RoleBinding"), kind, referred, subjects)
}

/// Returns a cluster role binding.
pub fn cluster_role_binding(name: &str, cluster_role: &str, subjects: Subjects<'_>) -> Result<Value, Error> {
    let name = Name { name, namespace: None };
    binding(name.object(API_VERSION, "ClusterRoleBinding"), "ClusterRole", cluster_role, subjects)
}

fn binding(mut object: Value, kind: &str, referred: &str, subjects: Subjects<'_>) -> Result<Value, Error> {
    put(&mut object, &["roleRef"], value!({"apiGroup": GROUP, "kind": kind, "name": referred}));
    let mut list = Vec::new();
    list.extend(subjects.users.iter().map(|user| value!({"kind": "User", "apiGroup": GROUP, "name": (user.as_str())})));
    list.extend(
        subjects.groups.iter().map(|group| value!({"kind": "Group", "apiGroup": GROUP, "name": (group.as_str())})),
    );
    for account in subjects.service_accounts {
        let (namespace, name) = match account.split(':').collect::<Vec<_>>()[..] {
            [namespace, name] if !namespace.is_empty() && !name.is_empty() => (namespace, name),
            _ => return Err(Error::new("serviceaccount must be <namespace>:<name>")),
        };
        list.push(value!({"kind": "ServiceAccount", "namespace": namespace, "name": name}));
    }
    if !list.is_empty() {
        put(&mut object, &["subjects"], list);
    }
    Ok(typed(object))
}

fn unique(items: &[String]) -> Vec<String> {
    let mut retained: Vec<String> = Vec::new();
    for item in items {
        if !retained.contains(item) {
            retained.push(item.clone());
        }
    }
    retained
}

fn verb_warnings(rule: &Rule) -> Vec<String> {
    let odd = rule.verbs.iter().filter(|verb| !RESOURCE_VERBS.contains(&verb.as_str()));
    odd.map(|verb| format!("Warning: '{verb}' is not a standard resource verb")).collect()
}

fn validate_resources<E: From<Error>>(
    rule: &Rule,
    find: &impl Fn(&str, &str) -> Result<(String, String), E>,
) -> Result<(), E> {
    for requested in &rule.resources {
        if requested.resource.is_empty() {
            return Err(Error::new("resource must be specified if apiGroup/subresource specified").into());
        }
        if requested.resource == "*" {
            return Ok(());
        }
        let mut found = find(&requested.group, &requested.resource);
        let (group, resource) = match &found {
            Ok((group, resource)) => (group.clone(), resource.clone()),
            Err(_) => (requested.group.clone(), requested.resource.clone()),
        };
        for verb in &rule.verbs {
            let Some((_, allowed)) = SPECIAL_VERBS.iter().find(|(special, _)| special == verb) else { continue };
            if !allowed.contains(&(group.as_str(), resource.as_str())) {
                return Err(Error::new(format!("can not perform '{verb}' on '{resource}' in group '{group}'")).into());
            }
            // Some of these resources are virtual: discovery does not list them.
            found = Ok((group.clone(), resource.clone()));
        }
        found?;
    }
    Ok(())
}

fn validate_urls(rule: &Rule) -> Result<(), Error> {
    if rule.non_resource_urls.is_empty() {
        return Ok(());
    }
    if let Some(verb) = rule.verbs.iter().find(|verb| !NON_RESOURCE_VERBS.contains(&verb.as_str())) {
        return Err(Error::new(format!("invalid verb: '{verb}' for nonResourceURL")));
    }
    for url in rule.non_resource_urls.iter().filter(|url| *url != "*") {
        if !url.starts_with('/') {
            return Err(Error::new("nonResourceURL should start with /"));
        }
        if url.strip_suffix('*').unwrap_or(url).contains('*') {
            return Err(Error::new("nonResourceURL only supports wildcard matches when '*' is at the end"));
        }
    }
    Ok(())
}

/// Returns one rule per API group, and one for the non-resource URLs.
fn policy_rules<E>(rule: &Rule, find: &impl Fn(&str, &str) -> Result<(String, String), E>) -> Vec<Value> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for requested in &rule.resources {
        let (group, mut resource) = find(&requested.group, &requested.resource)
            .unwrap_or_else(|_| (requested.group.clone(), requested.resource.clone()));
        if !requested.subresource.is_empty() {
            resource = format!("{resource}/{}", requested.subresource);
        }
        let resources = groups.entry(group).or_default();
        if !resources.contains(&resource) {
            resources.push(resource);
        }
    }
    let mut rules = Vec::new();
    for (group, resources) in groups {
        rules.push(value!({
            "verbs": (texts(&rule.verbs)),
            "apiGroups": [group],
            "resources": (texts(resources)),
            "resourceNames": (texts(&rule.resource_names))
        }));
    }
    if !rule.non_resource_urls.is_empty() {
        rules.push(value!({"verbs": (texts(&rule.verbs)), "nonResourceURLs": (texts(&rule.non_resource_urls))}));
    }
    rules
}
