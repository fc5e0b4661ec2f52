//! Flow schemas: classification of requests into priority levels and flows.
//!
//! A schema is parsed once. Matching compares borrowed strings and does not allocate.

use apimachinery::meta::Meta;
use apimachinery::{Str, Value};

use crate::request::{Digest, Target};

/// Upstream's default of matchingPrecedence.
const PRECEDENCE_DEFAULT: i64 = 1000;

/// A parsed FlowSchema.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSchema {
    pub name: Str,
    /// Empty for a substituted mandatory schema.
    pub uid: Str,
    /// The priority level of its requests.
    pub level: Str,
    /// The matching schema with the lowest number is used.
    pub precedence: i64,
    /// The attribute that separates flows.
    pub distinguisher: Option<Distinguisher>,
    rules: Vec<Rule>,
}

/// The attribute that separates the flows of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distinguisher {
    /// One flow per user.
    ByUser,
    /// One flow per namespace.
    ByNamespace,
}

#[derive(Clone, Debug, PartialEq)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Clone, Debug, PartialEq)]
enum Subject {
    User(Str),
    Group(Str),
    ServiceAccount { namespace: Str, name: Str },
}

#[derive(Clone, Debug, PartialEq)]
struct ResourceRule {
    verbs: Names,
    groups: Names,
    resources: Names,
    namespaces: Names,
    cluster_scope: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct PathRule {
    verbs: Names,
    paths: Vec<Str>,
}

/// A list of names, or `*` alone for all.
#[derive(Clone, Debug, PartialEq)]
enum Names {
    All,
    List(Vec<Str>),
}

impl FlowSchema {
    /// Parses a FlowSchema object. Absent or malformed parts match nothing; validation has rejected them.
    pub fn from_object(object: &Value) -> Self {
        let meta = Meta::of(object);
        let spec = object.get("spec").unwrap_or(&Value::Null);
        Self {
            name: meta.name().into(),
            uid: meta.uid().into(),
            level: text(spec, &["priorityLevelConfiguration", "name"]),
            precedence: spec.get("matchingPrecedence").and_then(Value::as_int).unwrap_or(PRECEDENCE_DEFAULT),
            distinguisher: match spec.str_at(&["distinguisherMethod", "type"]) {
                Some("ByUser") => Some(Distinguisher::ByUser),
                Some("ByNamespace") => Some(Distinguisher::ByNamespace),
                _ => None,
            },
            rules: spec.list_at(&["rules"]).iter().map(Rule::from_value).collect(),
        }
    }

    pub fn matches(&self, digest: &Digest<'_>) -> bool {
        self.rules.iter().any(|rule| rule.matches(digest))
    }

    /// Returns the flow distinguisher of a request.
    pub fn distinguish<'a>(&self, digest: &Digest<'a>) -> &'a str {
        match self.distinguisher {
            Some(Distinguisher::ByUser) => digest.user,
            Some(Distinguisher::ByNamespace) => digest.namespace(),
            None => "",
        }
    }

    /// Returns the sort key: precedence, then name.
    pub(crate) fn order(&self) -> (i64, &str) {
        (self.precedence, &self.name)
    }
}

impl Rule {
    fn from_value(value: &Value) -> Self {
        Self {
            subjects: value.list_at(&["subjects"]).iter().filter_map(Subject::from_value).collect(),
            resources: value.list_at(&["resourceRules"]).iter().map(ResourceRule::from_value).collect(),
            paths: value.list_at(&["nonResourceRules"]).iter().map(PathRule::from_value).collect(),
        }
    }

    fn matches(&self, digest: &Digest<'_>) -> bool {
        self.subjects.iter().any(|subject| subject.matches(digest))
            && match digest.target {
                Target::Path(path) => self.paths.iter().any(|rule| rule.matches(digest.verb, path)),
                Target::Resource { .. } => self.resources.iter().any(|rule| rule.matches(digest)),
            }
    }
}

impl Subject {
    fn from_value(value: &Value) -> Option<Self> {
        match value.get("kind")?.as_str()? {
            "User" => Some(Self::User(text(value, &["user", "name"]))),
            "Group" => Some(Self::Group(text(value, &["group", "name"]))),
            "ServiceAccount" => Some(Self::ServiceAccount {
                namespace: text(value, &["serviceAccount", "namespace"]),
                name: text(value, &["serviceAccount", "name"]),
            }),
            _ => None,
        }
    }

    fn matches(&self, digest: &Digest<'_>) -> bool {
        match self {
            Self::User(name) => name == "*" || name == digest.user,
            Self::Group(name) => name == "*" || digest.groups.contains(name),
            Self::ServiceAccount { namespace, name } => {
                let account = digest.user.strip_prefix("system:serviceaccount:");
                let account = account.and_then(|rest| rest.strip_prefix(namespace.as_str())?.strip_prefix(':'));
                account.is_some_and(|account| name == "*" || name == account)
            }
        }
    }
}

impl ResourceRule {
    fn from_value(value: &Value) -> Self {
        Self {
            verbs: Names::from_value(value, "verbs"),
            groups: Names::from_value(value, "apiGroups"),
            resources: Names::from_value(value, "resources"),
            namespaces: Names::from_value(value, "namespaces"),
            cluster_scope: value.get("clusterScope").and_then(Value::as_bool).unwrap_or(false),
        }
    }

    fn matches(&self, digest: &Digest<'_>) -> bool {
        let Target::Resource { group, resource, subresource, namespace } = digest.target else { return false };
        self.verbs.has(digest.verb)
            && self.resources.has_subresource(resource, subresource)
            && self.groups.has(group)
            && if namespace.is_empty() { self.cluster_scope } else { self.namespaces.has(namespace) }
    }
}

impl PathRule {
    fn from_value(value: &Value) -> Self {
        let paths = value.list_at(&["nonResourceURLs"]).iter().filter_map(Value::as_str).map(Str::from).collect();
        Self { verbs: Names::from_value(value, "verbs"), paths }
    }

    fn matches(&self, verb: &str, path: &str) -> bool {
        self.verbs.has(verb) && self.paths.iter().any(|rule| path_matches(rule, path))
    }
}

/// Whether a path rule matches: `/a` matches `/a` and everything below, `/a/*` only what is below, `*` everything.
fn path_matches(rule: &str, path: &str) -> bool {
    if rule == "*" || rule == path {
        return true;
    }
    let stem = rule.strip_suffix('*').unwrap_or(rule);
    let stem = stem.strip_suffix('/').unwrap_or(stem);
    path.strip_prefix(stem).is_some_and(|rest| rest.starts_with('/'))
}

impl Names {
    fn from_value(value: &Value, field: &str) -> Self {
        let names: Vec<Str> = value.list_at(&[field]).iter().filter_map(Value::as_str).map(Str::from).collect();
        if names.as_slice() == ["*"] { Self::All } else { Self::List(names) }
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::List(names) => names.iter().any(|have| have == name),
        }
    }

    /// Whether the list contains `resource/subresource`.
    fn has_subresource(&self, resource: &str, subresource: &str) -> bool {
        if subresource.is_empty() {
            return self.has(resource);
        }
        let is = |have: &Str| {
            have.strip_prefix(resource).and_then(|rest| rest.strip_prefix('/')).is_some_and(|rest| rest == subresource)
        };
        match self {
            Self::All => true,
            Self::List(names) => names.iter().any(is),
        }
    }
}

fn text(value: &Value, keys: &[&str]) -> Str {
    value.text_at(keys).into()
}

#[cfg(test)]
mod tests {
    use apimachinery::{Object, value};

    use super::*;

    fn schema(rule: &Value) -> FlowSchema {
        FlowSchema::from_object(&value!({"metadata": {"name": "x"}, "spec": {"rules": [(rule.clone())]}}))
    }

    fn pods<'a>(namespace: &'a str, subresource: &'a str) -> Target<'a> {
        Target::Resource { group: "", resource: "pods", subresource, namespace }
    }

    #[test]
    fn subject_is_a_user_a_group_or_a_service_account() {
        let everything = value!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]}]);
        let check = |subject: Value, user: &str, groups: &[&str], expect: bool| {
            let groups: Vec<Str> = groups.iter().map(|group| Str::from(*group)).collect();
            let digest = Digest { user, groups: &groups, verb: "get", target: pods("a", "") };
            let rule = value!({"subjects": [(subject.clone())], "resourceRules": (everything.clone())});
            assert_eq!(schema(&rule).matches(&digest), expect, "{subject} {user}");
        };
        check(value!({"kind": "User", "user": {"name": "ann"}}), "ann", &[], true);
        check(value!({"kind": "User", "user": {"name": "ann"}}), "bob", &[], false);
        check(value!({"kind": "User", "user": {"name": "*"}}), "bob", &[], true);
        check(value!({"kind": "User"}), "bob", &[], false);
        check(value!({"kind": "Group", "group": {"name": "g"}}), "bob", &["f", "g"], true);
        check(value!({"kind": "Group", "group": {"name": "g"}}), "g", &["f"], false);
        let account = |name: &str| {
            let account: Object = [("namespace", "kube-system"), ("name", name)].into_iter().collect();
            value!({"kind": "ServiceAccount", "serviceAccount": account})
        };
        check(account("*"), "system:serviceaccount:kube-system:x", &[], true);
        check(account("*"), "system:serviceaccount:kube-system-2:x", &[], false);
        check(account("x"), "system:serviceaccount:kube-system:x", &[], true);
        check(account("x"), "system:serviceaccount:kube-system:xy", &[], false);
        check(account("x"), "kube-system:x", &[], false);
    }

    #[test]
    fn resource_rule_matches_verb_group_resource_and_namespace() {
        let check = |rule: Value, verb: &str, target: Target<'_>, expect: bool| {
            let subjects = value!([{"kind": "Group", "group": {"name": "*"}}]);
            let rule = value!({"subjects": subjects, "resourceRules": [rule]});
            let digest = Digest { user: "u", groups: &[], verb, target };
            assert_eq!(schema(&rule).matches(&digest), expect, "{rule} {verb} {target:?}");
        };
        let rule = |resources: &[&str], cluster_scope: bool, namespaces: &[&str]| {
            let list = |names: &[&str]| Value::Array(names.iter().map(|name| Value::from(*name)).collect());
            value!({
                "verbs": ["get", "list"], "apiGroups": [""], "resources": (list(resources)),
                "clusterScope": cluster_scope, "namespaces": (list(namespaces)),
            })
        };
        check(rule(&["pods"], false, &["*"]), "get", pods("a", ""), true);
        check(rule(&["pods"], false, &["*"]), "get", pods("", ""), false);
        check(rule(&["pods"], true, &[]), "get", pods("", ""), true);
        check(rule(&["pods"], true, &[]), "get", pods("a", ""), false);
        check(rule(&["pods"], true, &["b", "a"]), "list", pods("a", ""), true);
        check(rule(&["pods"], true, &["*"]), "create", pods("a", ""), false);
        check(rule(&["pods"], true, &["*"]), "get", pods("a", "log"), false);
        check(rule(&["pods/log"], true, &["*"]), "get", pods("a", "log"), true);
        check(rule(&["pods/logs"], true, &["*"]), "get", pods("a", "log"), false);
        check(rule(&["*"], true, &["*"]), "get", pods("a", "log"), true);
        check(rule(&["pods"], true, &["*"]), "get", Target::Path("/pods"), false);
    }

    #[test]
    fn path_rule_matches_paths_below() {
        let check =
            |rule: &str, path: &str, expect: bool| assert_eq!(path_matches(rule, path), expect, "{rule} {path}");
        check("/healthz", "/healthz", true);
        check("/healthz", "/healthz/ping", true);
        check("/healthz", "/healthzz", false);
        check("/healthz/*", "/healthz/ping", true);
        check("/healthz/*", "/healthz", false);
        check("*", "/anything", true);
        check("/", "/anything", true);
    }
}
