//! Audit policy: the level and stages recorded for each request.

mod validate;

use std::fmt;
use std::sync::OnceLock;

use api::catalogue::{self, Catalogue};
use apimachinery::{Str, Value, field};

use crate::request::{Attributes, Target};

const FACTS: &str = include_str!("policy.txt");

/// The audit level of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The request is not recorded.
    #[default]
    None,
    /// User, request and result, without objects.
    Metadata,
    /// Also the request object.
    Request,
    /// Also the response object.
    RequestResponse,
}

/// A stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The request has arrived.
    RequestReceived,
    /// The response headers of a long-running request were sent.
    ResponseStarted,
    /// The response was sent completely.
    ResponseComplete,
    /// The handler panicked.
    Panic,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages(u8);

/// The policy's decision for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditDecision {
    pub level: Level,
    /// Stages at which no event is recorded.
    pub omit_stages: Stages,
    /// Whether managedFields are removed from recorded objects.
    pub omit_managed_fields: bool,
}

/// An audit policy. The first rule that matches a request applies.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    rules: Vec<Rule>,
    otherwise: AuditDecision,
}

/// Reasons why a policy file is invalid.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed decoding: {0}")]
    Read(#[from] api::config::Error),
    /// Validation failed.
    #[error("{}", field::aggregate(.0).unwrap_or_default())]
    Invalid(field::Errors),
    /// The policy has no rules and would record nothing.
    #[error("loaded illegal policy with 0 rules")]
    NoRules,
}

/// A policy with the warning about its file.
#[derive(Debug)]
pub struct ParsedPolicy {
    pub policy: Policy,
    /// Unknown or duplicate fields; the server logs them and continues.
    pub warning: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
struct Rule {
    verdict: AuditDecision,
    users: Vec<Str>,
    groups: Vec<Str>,
    verbs: Vec<Str>,
    namespaces: Vec<Str>,
    resources: Vec<GroupResources>,
    paths: Vec<Str>,
}

#[derive(Clone, Debug, PartialEq)]
struct GroupResources {
    group: Str,
    resources: Vec<Str>,
    names: Vec<Str>,
}

impl Policy {
    /// Parses and validates a policy file.
    pub fn parse(bytes: &[u8]) -> Result<ParsedPolicy, Error> {
        let (_, object, slip) = api::config::read_leniently(facts(), bytes)?;
        let findings = validate::policy(&object);
        if !findings.is_empty() {
            return Err(Error::Invalid(findings));
        }
        let otherwise = AuditDecision {
            level: Level::None,
            omit_stages: stages(&object),
            omit_managed_fields: object.get("omitManagedFields").and_then(Value::as_bool).unwrap_or(false),
        };
        let rules: Vec<Rule> =
            object.list_at(&["rules"]).iter().map(|rule| Rule::from_value(rule, otherwise)).collect();
        if rules.is_empty() {
            return Err(Error::NoRules);
        }
        let warning =
            slip.map(|slip| format!("Audit policy contains errors, falling back to lenient decoding: {slip}"));
        Ok(ParsedPolicy { policy: Self { rules, otherwise }, warning })
    }

    /// Returns the decision for a request.
    pub fn evaluate(&self, attributes: &Attributes<'_>) -> AuditDecision {
        self.rules.iter().find(|rule| rule.matches(attributes)).map_or(self.otherwise, |rule| rule.verdict)
    }
}

impl Rule {
    fn from_value(value: &Value, policy: AuditDecision) -> Self {
        let omits_fields = value.get("omitManagedFields").and_then(Value::as_bool);
        Self {
            verdict: AuditDecision {
                level: value.str_at(&["level"]).and_then(Level::from_name).unwrap_or_default(),
                omit_stages: policy.omit_stages.with_all(stages(value)),
                omit_managed_fields: omits_fields.unwrap_or(policy.omit_managed_fields),
            },
            users: strings(value, "users"),
            groups: strings(value, "userGroups"),
            verbs: strings(value, "verbs"),
            namespaces: strings(value, "namespaces"),
            resources: value.list_at(&["resources"]).iter().map(GroupResources::from_value).collect(),
            paths: strings(value, "nonResourceURLs"),
        }
    }

    fn matches(&self, attributes: &Attributes<'_>) -> bool {
        let user = attributes.user;
        if !allows(&self.users, &user.username) || !allows(&self.verbs, attributes.verb) {
            return false;
        }
        if !self.groups.is_empty() && !user.groups.iter().any(|group| self.groups.contains(group)) {
            return false;
        }
        let of_resources = !self.namespaces.is_empty() || !self.resources.is_empty();
        match attributes.target {
            Target::Resource { group, resource, subresource, namespace, name, .. } => {
                let listed = || self.resources.iter().any(|list| list.matches(group, resource, subresource, name));
                if of_resources {
                    allows(&self.namespaces, namespace) && (self.resources.is_empty() || listed())
                } else {
                    self.paths.is_empty()
                }
            }
            Target::Path(_) if of_resources => false,
            Target::Path(path) => self.paths.is_empty() || self.paths.iter().any(|rule| path_matches(rule, path)),
        }
    }
}

impl GroupResources {
    fn from_value(value: &Value) -> Self {
        Self {
            group: value.text_at(&["group"]).into(),
            resources: strings(value, "resources"),
            names: strings(value, "resourceNames"),
        }
    }

    fn matches(&self, group: &str, resource: &str, subresource: &str, name: &str) -> bool {
        self.group == group
            && (self.resources.is_empty()
                || allows(&self.names, name)
                    && self.resources.iter().any(|rule| resource_matches(rule, resource, subresource)))
    }
}

/// Matches `pods` (the resource itself), `pods/log` (a subresource), `pods/*` (the resource and all subresources),
/// `*/scale` (that subresource of any resource) and `*` (everything).
fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    match rule.split_once('/') {
        None => rule == "*" || (rule == resource && subresource.is_empty()),
        Some((of, "*")) if of == resource => true,
        Some((of, rule_subresource)) => {
            !subresource.is_empty() && rule_subresource == subresource && (of == "*" || of == resource)
        }
    }
}

fn path_matches(rule: &str, path: &str) -> bool {
    rule == "*"
        || rule == path
        || rule.strip_suffix('*').is_some_and(|stem| path.starts_with(stem.trim_end_matches('*')))
}

/// Whether a list contains a name; an empty list matches every name.
fn allows(list: &[Str], name: &str) -> bool {
    list.is_empty() || list.iter().any(|have| have == name)
}

impl Level {
    pub const ALL: [Self; 4] = [Self::None, Self::Metadata, Self::Request, Self::RequestResponse];

    /// Returns the name in policies and events.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

impl Stage {
    pub const ALL: [Self; 4] = [Self::RequestReceived, Self::ResponseStarted, Self::ResponseComplete, Self::Panic];

    /// Returns the name in policies and events.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.name() == name)
    }
}

impl Stages {
    pub const fn has(self, stage: Stage) -> bool {
        self.0 & (1 << stage as u8) != 0
    }

    /// Returns the set with an additional stage.
    #[must_use]
    pub const fn with(self, stage: Stage) -> Self {
        Self(self.0 | 1 << stage as u8)
    }

    const fn with_all(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

fn stages(value: &Value) -> Stages {
    let stages = value.list_at(&["omitStages"]).iter().filter_map(|stage| Stage::from_name(stage.as_str()?));
    stages.fold(Stages::default(), Stages::with)
}

fn strings(value: &Value, field: &str) -> Vec<Str> {
    value.list_at(&[field]).iter().filter_map(Value::as_str).map(Str::from).collect()
}

fn facts() -> &'static Catalogue {
    static CATALOGUE: OnceLock<Catalogue> = OnceLock::new();
    CATALOGUE.get_or_init(|| catalogue::read(FACTS))
}

impl fmt::Display for Level {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

#[cfg(test)]
mod tests;
