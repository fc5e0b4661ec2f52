//! The policy: how much is written down about which requests, and at which stages.

mod validate;

use std::fmt;
use std::sync::OnceLock;

use api::catalogue::{self, Catalogue};
use machinery::{Str, Value, field};

use crate::request::{Attributes, Target};

const FACTS: &str = include_str!("policy.txt");

/// How much is written down about a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing.
    #[default]
    None,
    /// Who asked for what and what came of it, without any object.
    Metadata,
    /// Also the object that was sent.
    Request,
    /// Also the object that was answered.
    RequestResponse,
}

/// When something is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The request has arrived.
    RequestReceived,
    /// The head of the answer was sent, of requests that run long.
    ResponseStarted,
    /// The answer was sent.
    ResponseComplete,
    /// The server stumbled.
    Panic,
}

/// A set of stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages(u8);

/// What the policy says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How much is written down.
    pub level: Level,
    /// At which stages nothing is.
    pub omit_stages: Stages,
    /// Whether objects are written without their managed fields.
    pub omit_managed_fields: bool,
}

/// An audit policy: the first rule that matches a request counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    rules: Vec<Rule>,
    otherwise: Verdict,
}

/// Why a file is no policy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("failed decoding: {0}")]
    Read(#[from] api::config::Error),
    /// It says what makes no sense.
    #[error("{}", field::aggregate(.0).unwrap_or_default())]
    Invalid(field::Errors),
    /// It has no rules, and so would write nothing.
    #[error("loaded illegal policy with 0 rules")]
    NoRules,
}

/// A policy, and what is odd about its file.
#[derive(Debug)]
pub struct Parsed {
    /// The policy.
    pub policy: Policy,
    /// Fields that are unknown or given twice. The server says so and goes on.
    pub warning: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
struct Rule {
    verdict: Verdict,
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
    /// Reads and validates the file.
    pub fn parse(bytes: &[u8]) -> Result<Parsed, Error> {
        let (_, object, slip) = api::config::read_leniently(facts(), bytes)?;
        let findings = validate::policy(&object);
        if !findings.is_empty() {
            return Err(Error::Invalid(findings));
        }
        let otherwise = Verdict {
            level: Level::None,
            omit_stages: stages(&object),
            omit_managed_fields: object.get("omitManagedFields").and_then(Value::as_bool).unwrap_or(false),
        };
        let rules: Vec<Rule> = items(&object, "rules").iter().map(|rule| Rule::from_value(rule, otherwise)).collect();
        if rules.is_empty() {
            return Err(Error::NoRules);
        }
        let warning =
            slip.map(|slip| format!("Audit policy contains errors, falling back to lenient decoding: {slip}"));
        Ok(Parsed { policy: Self { rules, otherwise }, warning })
    }

    /// What is to be written down about a request.
    pub fn evaluate(&self, attributes: &Attributes<'_>) -> Verdict {
        self.rules.iter().find(|rule| rule.matches(attributes)).map_or(self.otherwise, |rule| rule.verdict)
    }
}

impl Rule {
    fn from_value(value: &Value, policy: Verdict) -> Self {
        let omits_fields = value.get("omitManagedFields").and_then(Value::as_bool);
        Self {
            verdict: Verdict {
                level: value.str_at(&["level"]).and_then(Level::from_name).unwrap_or_default(),
                omit_stages: policy.omit_stages.with_all(stages(value)),
                omit_managed_fields: omits_fields.unwrap_or(policy.omit_managed_fields),
            },
            users: strings(value, "users"),
            groups: strings(value, "userGroups"),
            verbs: strings(value, "verbs"),
            namespaces: strings(value, "namespaces"),
            resources: items(value, "resources").iter().map(GroupResources::from_value).collect(),
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
            group: value.str_at(&["group"]).unwrap_or_default().into(),
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

/// `pods` is the resource itself, `pods/log` a part of it, `pods/*` it and all its parts, `*/scale` that part of any, `*`
/// everything.
fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    match rule.split_once('/') {
        None => rule == "*" || (rule == resource && subresource.is_empty()),
        Some((of, "*")) if of == resource => true,
        Some((of, part)) => !subresource.is_empty() && part == subresource && (of == "*" || of == resource),
    }
}

fn path_matches(rule: &str, path: &str) -> bool {
    rule == "*"
        || rule == path
        || rule.strip_suffix('*').is_some_and(|stem| path.starts_with(stem.trim_end_matches('*')))
}

/// A list without entries allows everything.
fn allows(list: &[Str], name: &str) -> bool {
    list.is_empty() || list.iter().any(|have| have == name)
}

impl Level {
    /// All levels, in their order.
    pub const ALL: [Self; 4] = [Self::None, Self::Metadata, Self::Request, Self::RequestResponse];

    /// The name in policies and events.
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
    /// All stages, in their order.
    pub const ALL: [Self; 4] = [Self::RequestReceived, Self::ResponseStarted, Self::ResponseComplete, Self::Panic];

    /// The name in policies and events.
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
    /// Whether the stage is in the set.
    pub const fn has(self, stage: Stage) -> bool {
        self.0 & (1 << stage as u8) != 0
    }

    /// The set with one stage more.
    #[must_use]
    pub const fn with(self, stage: Stage) -> Self {
        Self(self.0 | 1 << stage as u8)
    }

    const fn with_all(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

fn stages(value: &Value) -> Stages {
    let stages = items(value, "omitStages").iter().filter_map(|stage| Stage::from_name(stage.as_str()?));
    stages.fold(Stages::default(), Stages::with)
}

fn strings(value: &Value, field: &str) -> Vec<Str> {
    items(value, field).iter().filter_map(Value::as_str).map(Str::from).collect()
}

fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).unwrap_or_default()
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
