//! Taints of nodes and tolerations of pods.

use api::view;
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
    operator: Str,
    value: Str,
    effect: Str,
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

    const fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

impl Taint {
    /// Condenses a taint; `None` if its effect is unknown.
    pub fn new(value: &Value) -> Option<Self> {
        let view::Taint { key, value, effect } = view::Taint::of(value);
        Some(Self { key: key.into(), value: value.into(), effect: Effect::parse(effect)? })
    }

    pub fn view(&self) -> view::Taint<'_> {
        view::Taint { key: &self.key, value: &self.value, effect: self.effect.as_str() }
    }

    /// Whether the taint rejects pods that do not tolerate it.
    pub const fn repels(&self) -> bool {
        !matches!(self.effect, Effect::PreferNoSchedule)
    }
}

impl Toleration {
    pub fn new(value: &Value) -> Self {
        let view::Toleration { key, operator, value, effect } = view::Toleration::of(value);
        Self { key: key.into(), operator: operator.into(), value: value.into(), effect: effect.into() }
    }

    pub fn tolerates(&self, taint: view::Taint<'_>) -> bool {
        let Self { key, operator, value, effect } = self;
        view::Toleration { key, operator, value, effect }.tolerates(taint)
    }

    /// Whether the toleration applies to `PreferNoSchedule` taints.
    pub fn is_about_preference(&self) -> bool {
        matches!(self.effect.as_str(), "" | "PreferNoSchedule")
    }
}
