//! Node affinity of a pod: terms over node labels and the node name.

use apimachinery::{Str, Value};

use super::{clamp, items};

/// Operator of a node selector requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    In,
    /// Also matches if the label is absent.
    NotIn,
    Exists,
    DoesNotExist,
    /// The label value is an integer greater than the given one.
    Gt,
    /// The label value is an integer less than the given one.
    Lt,
}

/// A node selector requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub key: Str,
    pub operator: Operator,
    pub values: Vec<Str>,
}

/// A node selector term: all requirements must match. A term without requirements matches no node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTerm {
    /// `matchExpressions`.
    pub labels: Vec<Requirement>,
    /// `matchFields` on `metadata.name`.
    pub names: Vec<Requirement>,
    /// Whether a requirement is invalid: the term matches no node.
    pub broken: bool,
}

/// A preferred scheduling term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreferredTerm {
    pub weight: i32,
    pub term: NodeTerm,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAffinity {
    /// Alternatives, one of which must match; `None` if nothing is required.
    pub required: Option<Vec<NodeTerm>>,
    pub preferred: Vec<PreferredTerm>,
}

impl NodeAffinity {
    pub fn new(value: Option<&Value>) -> Self {
        let Some(value) = value else { return Self::default() };
        let required = value.get("requiredDuringSchedulingIgnoredDuringExecution").filter(|it| !it.is_null());
        Self {
            required: required.map(|it| items(it, "nodeSelectorTerms").iter().map(NodeTerm::new).collect()),
            preferred: items(value, "preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .map(|it| PreferredTerm {
                    weight: it.get("weight").and_then(Value::as_int).map_or(0, clamp),
                    term: NodeTerm::new(&it["preference"]),
                })
                .collect(),
        }
    }

    /// Converts a `NodeSelector` into required terms.
    pub fn requiring(selector: &Value) -> Self {
        let required = items(selector, "nodeSelectorTerms").iter().map(NodeTerm::new).collect();
        Self { required: Some(required), preferred: Vec::new() }
    }

    /// Returns the names of the only nodes that can match, if every required term restricts the node name.
    pub fn named_nodes(&self) -> Option<Vec<&str>> {
        let mut names = Vec::new();
        for term in self.required.as_ref().filter(|terms| !terms.is_empty())? {
            let sets: Vec<_> = term.names.iter().filter(|it| it.operator == Operator::In).collect();
            let first = sets.first()?;
            let in_all = |name: &&Str| sets.iter().all(|set| set.values.contains(name));
            names.extend(first.values.iter().filter(in_all).map(Str::as_str));
        }
        names.sort_unstable();
        names.dedup();
        Some(names)
    }
}

impl NodeTerm {
    /// Whether the term has no requirement.
    pub const fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.names.is_empty() && !self.broken
    }

    fn new(value: &Value) -> Self {
        let mut term = Self::default();
        for (field, is_name) in [("matchExpressions", false), ("matchFields", true)] {
            for expression in items(value, field) {
                match Requirement::new(expression, is_name) {
                    Some(requirement) if is_name => term.names.push(requirement),
                    Some(requirement) => term.labels.push(requirement),
                    None => term.broken = true,
                }
            }
        }
        term
    }
}

impl Requirement {
    fn new(value: &Value, is_name: bool) -> Option<Self> {
        let operator = match value.str_at(&["operator"])? {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" if !is_name => Operator::Exists,
            "DoesNotExist" if !is_name => Operator::DoesNotExist,
            "Gt" if !is_name => Operator::Gt,
            "Lt" if !is_name => Operator::Lt,
            _ => return None,
        };
        let key: Str = value.str_at(&["key"])?.into();
        let values: Vec<Str> = items(value, "values").iter().filter_map(Value::as_str).map(Str::from).collect();
        let one_number = || matches!(values.as_slice(), [one] if one.parse::<i64>().is_ok());
        let right = match operator {
            _ if is_name => key == "metadata.name" && values.len() == 1,
            Operator::In | Operator::NotIn => !values.is_empty(),
            Operator::Exists | Operator::DoesNotExist => values.is_empty(),
            Operator::Gt | Operator::Lt => one_number(),
        };
        right.then_some(Self { key, operator, values })
    }
}
