//! The parent of the ApplySet: a ConfigMap with the kinds of the members, and with the state of the directory.

use std::collections::BTreeSet;
use std::fmt;

use apimachinery::meta::{Meta, MetaMut};
use apimachinery::{Key, Object, Resource, Str, Value, json, value};
use client::apply_set::{self, GroupKind};
use client::{Client, Error, ListOptions, Target};
use controller::kinds;

/// The field manager of the applied objects, the value of the parents' label, and the source of Events.
pub const MANAGER: &str = "knarr-manifests";
/// The key of the report in the data of the parent.
pub const REPORT: &str = "report";
/// The namespace of the parents.
const NAMESPACE: &str = "kube-system";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Maximum number of problems in a report, and length of each.
const PROBLEMS_MAX: usize = 100;
const MESSAGE_CHARS_MAX: usize = 1000;

/// A reason that a file or an object is not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The path in the directory; empty for the directory itself.
    pub file: String,
    /// Zero if the problem has no line.
    pub line: usize,
    /// Empty for the file as a whole.
    pub object: String,
    pub message: String,
    /// Whether the problem may disappear without a change of the directory.
    pub retry: bool,
}

/// The kinds and namespaces of the members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    pub kinds: BTreeSet<GroupKind>,
    pub namespaces: BTreeSet<Str>,
}

/// The state of the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub directory: String,
    pub files: usize,
    /// The number of objects that are applied.
    pub objects: usize,
    pub problems: Vec<Problem>,
    /// Objects of this directory that another directory applies.
    pub claims: BTreeSet<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.file.is_empty(), self.line) {
            (true, _) => {}
            (false, 0) => write!(out, "{}: ", self.file)?,
            (false, line) => write!(out, "{}:{line}: ", self.file)?,
        }
        if !self.object.is_empty() {
            write!(out, "{}: ", self.object)?;
        }
        out.write_str(&self.message)
    }
}

impl Scope {
    /// Returns the scope in the annotations of a parent.
    pub(crate) fn of(parent: &Value) -> Self {
        let annotation = |name: &str| parent.text_at(&["metadata", "annotations", name]);
        Self {
            kinds: apply_set::split(annotation(apply_set::CONTAINS_GROUP_KINDS)),
            namespaces: apply_set::split::<String>(annotation(apply_set::ADDITIONAL_NAMESPACES))
                .into_iter()
                .map(Str::from)
                .collect(),
        }
    }

    pub(crate) fn add(&mut self, kind: GroupKind, namespace: &Str) {
        self.kinds.insert(kind);
        if !namespace.is_empty() && *namespace != NAMESPACE {
            self.namespaces.insert(namespace.clone());
        }
    }

    pub(crate) fn contains(&self, other: &Self) -> bool {
        self.kinds.is_superset(&other.kinds) && self.namespaces.is_superset(&other.namespaces)
    }
}

impl Report {
    /// Returns the text in the parent. The number of problems is exact even if not all of them are in it.
    pub(crate) fn text(&self) -> String {
        let problem = |problem: &Problem| {
            let message: String = problem.message.chars().take(MESSAGE_CHARS_MAX).collect();
            let line = i64::try_from(problem.line).unwrap_or(0);
            value!({"file": (problem.file.as_str()), "line": line, "object": (problem.object.as_str()), "message": message})
        };
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let report = value!({
            "directory": (self.directory.as_str()),
            "files": (number(self.files)),
            "objects": (number(self.objects)),
            "problemCount": (number(self.problems.len())),
            "problems": (self.problems.iter().take(PROBLEMS_MAX).map(problem).collect::<Vec<_>>()),
            "claims": (self.claims.iter().map(|claim| Value::from(claim.as_str())).collect::<Vec<_>>()),
        });
        json::to_string(&report)
    }

    /// Returns the report in a parent; an empty object if it has none.
    pub(crate) fn parse(parent: &Value) -> Value {
        let report = json::parse(parent.text_at(&["data", REPORT]).as_bytes()).unwrap_or_default();
        if report.as_object().is_some() { report } else { Value::object() }
    }
}

/// Returns the resource and the key of the parent of a set.
pub(crate) fn parent_of(name: &str) -> (&'static Resource, Key) {
    (&kinds::CONFIG_MAPS, Key::new(NAMESPACE, name))
}

/// Returns the parent to apply.
pub(crate) fn parent(name: &str, scope: &Scope, report: &str) -> Value {
    let (resource, key) = parent_of(name);
    let mut parent = value!({
        "apiVersion": (resource.api_version()),
        "kind": (resource.kind.as_str()),
        "metadata": {"name": name, "namespace": (key.namespace.as_str())},
        "data": (Object::from_iter([(REPORT, report)])),
    });
    let mut meta = MetaMut::of(&mut parent).expect("the object has metadata");
    meta.set_label(apply_set::ID, &apply_set::id(resource, &key));
    meta.set_label(MANAGED_BY, MANAGER);
    meta.set_annotation(apply_set::TOOLING, concat!("knarr/v", env!("CARGO_PKG_VERSION")));
    meta.set_annotation(apply_set::CONTAINS_GROUP_KINDS, &apply_set::join(&scope.kinds));
    meta.set_annotation(apply_set::ADDITIONAL_NAMESPACES, &apply_set::join(&scope.namespaces));
    parent
}

/// Returns the label selector of the parents of all directories.
pub(crate) fn parents_selector() -> String {
    format!("{MANAGED_BY}={MANAGER}")
}

/// Returns the name of the ApplySet and the report of each directory.
pub async fn reports(client: &Client) -> Result<Vec<(String, Value)>, Error> {
    let report = |parent: &Value| (Meta::of(parent).name().to_owned(), Report::parse(parent));
    Ok(parents(client).await?.iter().map(report).collect())
}

/// Returns the parents of all directories.
pub(crate) async fn parents(client: &Client) -> Result<Vec<Value>, Error> {
    let options = ListOptions { label_selector: parents_selector(), ..ListOptions::default() };
    Ok(client.list_all(&Target::within(&kinds::CONFIG_MAPS, NAMESPACE), &options).await?.items)
}
