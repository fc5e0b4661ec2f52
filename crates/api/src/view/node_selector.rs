//! Node selector terms: requirements on the labels and the name of a node.

use apimachinery::{Object, Str, Value};

use super::{Node, PodSpec};

/// Operator of a node selector requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeSelectorOperator {
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
pub struct NodeSelectorRequirement {
    pub key: Str,
    pub operator: NodeSelectorOperator,
    pub values: Vec<Str>,
}

/// A node selector term: all requirements must match. A term without requirements matches no node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSelectorTerm {
    /// `matchExpressions`.
    pub labels: Vec<NodeSelectorRequirement>,
    /// `matchFields` on `metadata.name`.
    pub names: Vec<NodeSelectorRequirement>,
    /// Whether a requirement is invalid: the term matches no node.
    pub broken: bool,
}

impl NodeSelectorTerm {
    /// Whether the term has no requirement.
    pub const fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.names.is_empty() && !self.broken
    }

    /// Whether a node with this name and these labels matches.
    pub fn matches<'l>(&self, name: &str, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        !self.is_empty()
            && !self.broken
            && self.labels.iter().all(|requirement| requirement.matches(label(&requirement.key)))
            && self.names.iter().all(|requirement| requirement.matches(Some(name)))
    }

    pub fn new(value: &Value) -> Self {
        let mut term = Self::default();
        for (field, is_name) in [("matchExpressions", false), ("matchFields", true)] {
            for expression in value.list_at(&[field]) {
                match NodeSelectorRequirement::new(expression, is_name) {
                    Some(requirement) if is_name => term.names.push(requirement),
                    Some(requirement) => term.labels.push(requirement),
                    None => term.broken = true,
                }
            }
        }
        term
    }
}

impl NodeSelectorRequirement {
    /// Whether the requirement holds for the value of the label; `None` if the node does not have it.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let among = value.is_some_and(|value| self.values.iter().any(|one| one == value));
        let numbers = || Some((value?.parse::<i64>().ok()?, self.values.first()?.parse::<i64>().ok()?));
        match self.operator {
            NodeSelectorOperator::In => among,
            NodeSelectorOperator::NotIn => !among,
            NodeSelectorOperator::Exists => value.is_some(),
            NodeSelectorOperator::DoesNotExist => value.is_none(),
            NodeSelectorOperator::Gt => numbers().is_some_and(|(value, bound)| value > bound),
            NodeSelectorOperator::Lt => numbers().is_some_and(|(value, bound)| value < bound),
        }
    }

    fn new(value: &Value, is_name: bool) -> Option<Self> {
        let operator = match value.str_at(&["operator"])? {
            "In" => NodeSelectorOperator::In,
            "NotIn" => NodeSelectorOperator::NotIn,
            "Exists" if !is_name => NodeSelectorOperator::Exists,
            "DoesNotExist" if !is_name => NodeSelectorOperator::DoesNotExist,
            "Gt" if !is_name => NodeSelectorOperator::Gt,
            "Lt" if !is_name => NodeSelectorOperator::Lt,
            _ => return None,
        };
        let key: Str = value.str_at(&["key"])?.into();
        let values: Vec<Str> = value.list_at(&["values"]).iter().filter_map(Value::as_str).map(Str::from).collect();
        let one_number = || matches!(values.as_slice(), [one] if one.parse::<i64>().is_ok());
        let right = match operator {
            _ if is_name => key == "metadata.name" && values.len() == 1,
            NodeSelectorOperator::In | NodeSelectorOperator::NotIn => !values.is_empty(),
            NodeSelectorOperator::Exists | NodeSelectorOperator::DoesNotExist => values.is_empty(),
            NodeSelectorOperator::Gt | NodeSelectorOperator::Lt => one_number(),
        };
        right.then_some(Self { key, operator, values })
    }
}

impl PodSpec<'_> {
    /// Whether the node matches the nodeSelector and the required node affinity.
    pub fn selects(self, node: Node<'_>) -> bool {
        const REQUIRED: [&str; 3] = ["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
        let meta = node.meta();
        let selector = self.0.get("nodeSelector").and_then(Value::as_object);
        let mut selected = selector.into_iter().flat_map(Object::iter);
        selected.all(|(key, value)| meta.label(key) == value.as_str())
            && self.0.at(&REQUIRED).filter(|required| !required.is_null()).is_none_or(|required| {
                let mut terms = required.list_at(&["nodeSelectorTerms"]).iter().map(NodeSelectorTerm::new);
                terms.any(|term| term.matches(meta.name(), |key| meta.label(key)))
            })
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    /// Parses a requirement: `zone In a,b`, where `name` is the field of the node's name.
    fn term(requirements: &[&str]) -> Value {
        let (mut labels, mut names) = (Vec::new(), Vec::new());
        for text in requirements {
            let mut words = text.split(' ');
            let (key, operator) = (words.next().unwrap(), words.next().unwrap());
            let values: Vec<Value> =
                words.next().into_iter().flat_map(|list| list.split(',')).map(Value::from).collect();
            let (list, key) = if key == "name" { (&mut names, "metadata.name") } else { (&mut labels, key) };
            list.push(value!({"key": key, "operator": operator, "values": values}));
        }
        value!({"matchExpressions": labels, "matchFields": names})
    }

    fn affinity(terms: &[&[&str]]) -> Value {
        let terms: Vec<Value> = terms.iter().map(|requirements| term(requirements)).collect();
        value!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
    }

    fn selects(spec: &Value) -> bool {
        let node = value!({"metadata": {"name": "n1", "labels": {"zone": "a", "size": "5", "word": "x"}}});
        PodSpec(spec).selects(Node(&node))
    }

    #[test]
    fn term_matches_if_all_its_requirements_do() {
        let check = |requirements: &[&str], expect: bool| {
            let spec = value!({"affinity": (affinity(&[requirements]))});
            assert_eq!(selects(&spec), expect, "{requirements:?}");
        };
        check(&[], false);
        check(&["zone In b,a"], true);
        check(&["zone In b"], false);
        check(&["absent In a"], false);
        check(&["zone NotIn b"], true);
        check(&["zone NotIn a"], false);
        check(&["absent NotIn a"], true);
        check(&["zone Exists"], true);
        check(&["absent Exists"], false);
        check(&["absent DoesNotExist"], true);
        check(&["zone DoesNotExist"], false);
        check(&["size Gt 4"], true);
        check(&["size Gt 5"], false);
        check(&["size Lt 6"], true);
        check(&["word Lt 6"], false);
        check(&["absent Lt 6"], false);
        check(&["zone In a", "size Gt 5"], false);
        check(&["name In n1"], true);
        check(&["name In n2"], false);
        check(&["name NotIn n2"], true);
        check(&["name In n1", "zone In b"], false);
    }

    #[test]
    fn invalid_requirement_matches_no_node() {
        let check = |requirement: &str| {
            let spec = value!({"affinity": (affinity(&[&[requirement]]))});
            assert!(!selects(&spec), "{requirement}");
        };
        check("zone In");
        check("absent NotIn");
        check("zone Exists a");
        check("absent DoesNotExist a");
        check("size Gt 1,2");
        check("size Gt one");
        check("zone Has a");
        check("name In n1,n2");
        check("name Exists");
    }

    #[test]
    fn one_of_the_terms_and_the_node_selector_must_match() {
        let check = |selector: Value, terms: &[&[&str]], expect: bool| {
            let spec = value!({"nodeSelector": selector, "affinity": (affinity(terms))});
            assert_eq!(selects(&spec), expect, "{spec:?}");
        };
        check(value!({}), &[], false);
        check(value!({}), &[&["zone In b"], &["zone In a"]], true);
        check(value!({}), &[&["zone Has b"], &["zone In a"]], true);
        check(value!({"zone": "a"}), &[&["zone Exists"]], true);
        check(value!({"zone": "b"}), &[&["zone Exists"]], false);
        assert!(selects(&value!({})));
        assert!(selects(&value!({"nodeSelector": {"zone": "a"}})));
        assert!(!selects(&value!({"nodeSelector": {"absent": "a"}})));
    }
}
