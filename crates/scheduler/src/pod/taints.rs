//! Taints of nodes and tolerations of pods.

use apimachinery::{Str, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Rejects new pods.
    NoSchedule,
    /// Lowers the score of the node for new pods.
    PreferNoSchedule,
    /// Rejects new pods and evicts running ones.
    NoExecute,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Taint {
    pub key: Str,
    pub value: Str,
    pub effect: Effect,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Toleration {
    key: Str,
    compare: Compare,
    /// `None` matches every effect.
    effect: Option<Effect>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Compare {
    Exists,
    Equal(Str),
    Less(Str),
    Greater(Str),
    /// Unknown operator or effect: tolerates no taint.
    Never,
}

impl Effect {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "NoSchedule" => Some(Self::NoSchedule),
            "PreferNoSchedule" => Some(Self::PreferNoSchedule),
            "NoExecute" => Some(Self::NoExecute),
            _ => None,
        }
    }
}

impl Taint {
    /// Condenses a taint; `None` if its effect is unknown.
    pub fn new(value: &Value) -> Option<Self> {
        let text = |field: &str| value.str_at(&[field]).unwrap_or_default();
        Some(Self { key: text("key").into(), value: text("value").into(), effect: Effect::parse(text("effect"))? })
    }

    /// Whether the taint rejects pods that do not tolerate it.
    pub const fn repels(&self) -> bool {
        !matches!(self.effect, Effect::PreferNoSchedule)
    }
}

impl Toleration {
    pub fn new(value: &Value) -> Self {
        let text = |field: &str| Str::from(value.str_at(&[field]).unwrap_or_default());
        let name = text("effect");
        let effect = Effect::parse(&name);
        let compare = match text("operator").as_str() {
            _ if !name.is_empty() && effect.is_none() => Compare::Never,
            "" | "Equal" => Compare::Equal(text("value")),
            "Exists" => Compare::Exists,
            "Lt" => Compare::Less(text("value")),
            "Gt" => Compare::Greater(text("value")),
            _ => Compare::Never,
        };
        Self { key: text("key"), compare, effect }
    }

    pub fn tolerates(&self, taint: &Taint) -> bool {
        if self.effect.is_some_and(|effect| effect != taint.effect) || !self.key.is_empty() && self.key != taint.key {
            return false;
        }
        let numbers = |bound: &Str| Some((taint.value.parse::<i64>().ok()?, bound.parse::<i64>().ok()?));
        match &self.compare {
            Compare::Exists => true,
            Compare::Equal(value) => *value == taint.value,
            Compare::Less(bound) => numbers(bound).is_some_and(|(value, bound)| value < bound),
            Compare::Greater(bound) => numbers(bound).is_some_and(|(value, bound)| value > bound),
            Compare::Never => false,
        }
    }

    /// Whether the toleration applies to `PreferNoSchedule` taints.
    pub fn is_about_preference(&self) -> bool {
        self.effect.is_none_or(|effect| effect == Effect::PreferNoSchedule)
    }
}
