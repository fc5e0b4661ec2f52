//! Taints of nodes and devices, and tolerations of pods and claims.

use apimachinery::Value;

use super::{Node, Pod, PodSpec};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taint<'a> {
    pub key: &'a str,
    pub value: &'a str,
    pub effect: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Toleration<'a> {
    /// Empty for all keys.
    pub key: &'a str,
    /// `Exists`, `Equal`, `Lt` or `Gt`; empty for `Equal`.
    pub operator: &'a str,
    pub value: &'a str,
    /// Empty for all effects.
    pub effect: &'a str,
}

impl<'a> Taint<'a> {
    pub fn of(taint: &'a Value) -> Self {
        Self { key: taint.text_at(&["key"]), value: taint.text_at(&["value"]), effect: taint.text_at(&["effect"]) }
    }
}

impl<'a> Toleration<'a> {
    pub fn of(toleration: &'a Value) -> Self {
        let text = |field| toleration.text_at(&[field]);
        Self { key: text("key"), operator: text("operator"), value: text("value"), effect: text("effect") }
    }

    /// Whether the toleration matches the taint. An unknown operator matches none.
    pub fn tolerates(self, taint: Taint<'_>) -> bool {
        if !self.effect.is_empty() && self.effect != taint.effect || !self.key.is_empty() && self.key != taint.key {
            return false;
        }
        let numbers = || Some((taint.value.parse::<i64>().ok()?, self.value.parse::<i64>().ok()?));
        match self.operator {
            "" | "Equal" => self.value == taint.value,
            "Exists" => true,
            "Lt" => numbers().is_some_and(|(value, bound)| value < bound),
            "Gt" => numbers().is_some_and(|(value, bound)| value > bound),
            _ => false,
        }
    }
}

impl Pod<'_> {
    /// Whether any toleration matches the taint.
    pub fn tolerates(self, taint: Taint<'_>) -> bool {
        self.pod_spec().tolerates(taint)
    }
}

impl PodSpec<'_> {
    /// Whether any toleration matches the taint.
    pub fn tolerates(self, taint: Taint<'_>) -> bool {
        self.list("tolerations").iter().any(|toleration| Toleration::of(toleration).tolerates(taint))
    }

    /// Whether all taints of the node with one of these effects are tolerated.
    pub fn tolerates_node(self, node: Node<'_>, effects: &[&str]) -> bool {
        node.taints().filter(|taint| effects.contains(&taint.effect)).all(|taint| self.tolerates(taint))
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn toleration_matches_key_value_and_effect() {
        let taint = value!({"key": "k", "value": "5", "effect": "NoSchedule"});
        let check = |toleration: Value, expect: bool| {
            assert_eq!(Toleration::of(&toleration).tolerates(Taint::of(&taint)), expect, "{toleration:?}");
        };
        check(value!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}), true);
        check(value!({"key": "k", "operator": "Exists"}), true);
        check(value!({"operator": "Exists", "effect": "NoSchedule"}), true);
        check(value!({"operator": "Exists"}), true);
        check(value!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), false);
        check(value!({"key": "k", "operator": "Exists", "effect": "Odd"}), false);
        check(value!({"key": "x", "operator": "Exists"}), false);
        check(value!({"key": "k", "operator": "Equal", "value": "5"}), true);
        check(value!({"key": "k", "value": "5"}), true);
        check(value!({"key": "k", "value": "6"}), false);
        check(value!({"key": "k"}), false);
        check(value!({"value": "5"}), true);
        check(value!({"value": "6"}), false);
        check(value!({"key": "k", "operator": "Lt", "value": "6"}), true);
        check(value!({"key": "k", "operator": "Lt", "value": "5"}), false);
        check(value!({"key": "k", "operator": "Gt", "value": "4"}), true);
        check(value!({"key": "k", "operator": "Gt", "value": "five"}), false);
        check(value!({"key": "k", "operator": "In", "value": "5"}), false);
    }

    #[test]
    fn node_is_tolerated_if_all_taints_with_the_effects_are() {
        let node = value!({"spec": {"taints": [
            {"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}, {"key": "c", "effect": "PreferNoSchedule"}]}});
        let check = |keys: &[&str], effects: &[&str], expect: bool| {
            let tolerations: Vec<Value> =
                keys.iter().map(|key| value!({"key": (*key), "operator": "Exists"})).collect();
            let spec = value!({"tolerations": tolerations});
            assert_eq!(PodSpec(&spec).tolerates_node(Node(&node), effects), expect, "{keys:?} {effects:?}");
        };
        check(&["a", "b"], &["NoSchedule", "NoExecute"], true);
        check(&["a"], &["NoSchedule", "NoExecute"], false);
        check(&["a"], &["NoSchedule"], true);
        check(&[], &["NoExecute"], false);
        check(&[], &[], true);
    }
}
