//! Taints of nodes and the tolerations that pods bear them by.

use machinery::{Str, Value};

/// What a taint does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Keeps new pods away.
    NoSchedule,
    /// Keeps new pods away if there is a better node.
    PreferNoSchedule,
    /// Keeps new pods away and evicts those that run.
    NoExecute,
}

/// A mark on a node that keeps pods away.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Taint {
    /// Its key.
    pub key: Str,
    /// Its value.
    pub value: Str,
    /// What it does.
    pub effect: Effect,
}

/// What a pod bears.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Toleration {
    key: Str,
    compare: Compare,
    /// `None` for every effect.
    effect: Option<Effect>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Compare {
    Exists,
    Equal(Str),
    Less(Str),
    Greater(Str),
    /// An operator or effect that nobody knows: tolerates nothing.
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
    /// Condenses a taint; `None` if its effect is none that is known.
    pub fn new(value: &Value) -> Option<Self> {
        let text = |field: &str| value.str_at(&[field]).unwrap_or_default();
        Some(Self { key: text("key").into(), value: text("value").into(), effect: Effect::parse(text("effect"))? })
    }

    /// Whether it keeps pods away that do not tolerate it.
    pub const fn repels(&self) -> bool {
        !matches!(self.effect, Effect::PreferNoSchedule)
    }
}

impl Toleration {
    /// Condenses a toleration.
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

    /// Whether it bears a taint.
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

    /// Whether it speaks of taints that only ask to be avoided.
    pub fn is_about_preference(&self) -> bool {
        self.effect.is_none_or(|effect| effect == Effect::PreferNoSchedule)
    }
}
