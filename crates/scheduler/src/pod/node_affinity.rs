//! Node affinity of a pod.

use api::view::{NodeSelectorOperator, NodeSelectorTerm};
use apimachinery::{Str, Value};

use super::clamp;

/// A preferred scheduling term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreferredTerm {
    pub weight: i32,
    pub term: NodeSelectorTerm,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAffinity {
    /// Alternatives, one of which must match; `None` if nothing is required.
    pub required: Option<Vec<NodeSelectorTerm>>,
    pub preferred: Vec<PreferredTerm>,
}

impl NodeAffinity {
    pub fn new(value: Option<&Value>) -> Self {
        let Some(value) = value else { return Self::default() };
        let required = value.get("requiredDuringSchedulingIgnoredDuringExecution").filter(|it| !it.is_null());
        Self {
            required: required.map(|it| it.list_at(&["nodeSelectorTerms"]).iter().map(NodeSelectorTerm::new).collect()),
            preferred: value
                .list_at(&["preferredDuringSchedulingIgnoredDuringExecution"])
                .iter()
                .map(|it| PreferredTerm {
                    weight: it.get("weight").and_then(Value::as_int).map_or(0, clamp),
                    term: NodeSelectorTerm::new(&it["preference"]),
                })
                .collect(),
        }
    }

    /// Converts a `NodeSelector` into required terms.
    pub fn requiring(selector: &Value) -> Self {
        let required = selector.list_at(&["nodeSelectorTerms"]).iter().map(NodeSelectorTerm::new).collect();
        Self { required: Some(required), preferred: Vec::new() }
    }

    /// Returns the names of the only nodes that can match, if every required term restricts the node name.
    pub fn named_nodes(&self) -> Option<Vec<&str>> {
        let mut names = Vec::new();
        for term in self.required.as_ref().filter(|terms| !terms.is_empty())? {
            let sets: Vec<_> = term.names.iter().filter(|it| it.operator == NodeSelectorOperator::In).collect();
            let first = sets.first()?;
            let in_all = |name: &&Str| sets.iter().all(|set| set.values.contains(name));
            names.extend(first.values.iter().filter(in_all).map(Str::as_str));
        }
        names.sort_unstable();
        names.dedup();
        Some(names)
    }
}
