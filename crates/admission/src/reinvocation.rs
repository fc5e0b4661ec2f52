//! Reinvocation of mutating webhooks and policies after later changes (`reinvocationPolicy`).
//!
//! ```text
//! first round: all ─(one changed the object)─> second round: those with IfNeeded that saw another object
//! ```

use std::collections::BTreeSet;

use apimachinery::Value;

/// The reinvocation state of one request, for policies or for webhooks.
#[derive(Debug, Default)]
pub struct Reinvocation {
    second: bool,
    changed: bool,
    /// IDs called since the last change that have the policy IfNeeded.
    called: BTreeSet<String>,
    required: BTreeSet<String>,
    last: Option<Value>,
}

/// The `reinvocationPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReinvocationPolicy {
    Never,
    /// Called again if another webhook or policy changed the object.
    IfNeeded,
}

impl ReinvocationPolicy {
    /// Returns the `reinvocationPolicy` of a webhook or policy.
    pub fn of(holder: &Value) -> Self {
        match holder.str_at(&["reinvocationPolicy"]) {
            Some("IfNeeded") => Self::IfNeeded,
            _ => Self::Never,
        }
    }
}

impl Reinvocation {
    pub const fn is_second(&self) -> bool {
        self.second
    }

    /// Whether the object was changed.
    pub const fn has_changed(&self) -> bool {
        self.changed
    }

    /// Starts the second round.
    pub const fn start_second_round(&mut self) {
        self.second = true;
    }

    /// Resumes with the object. If it was changed in between, all IDs that were called are due again.
    pub fn resume(&mut self, object: &Value) {
        if self.second && self.last.as_ref().is_some_and(|last| last != object) {
            self.require_all();
        }
    }

    /// Whether a webhook or policy is to be called now.
    pub fn wants(&self, id: &str) -> bool {
        !self.second || self.required.contains(id)
    }

    /// Records a call.
    pub fn record_call(&mut self, id: &str, again: ReinvocationPolicy, changed: bool) {
        if changed {
            self.changed = true;
            self.require_all();
        }
        if again == ReinvocationPolicy::IfNeeded {
            self.called.insert(id.to_owned());
        }
    }

    /// Completes a round with its resulting object.
    pub fn finish(&mut self, object: &Value) {
        self.last = Some(object.clone());
    }

    fn require_all(&mut self) {
        self.required.append(&mut self.called);
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    #[test]
    fn only_if_needed_callers_are_reinvoked_after_a_change() {
        let mut again = Reinvocation::default();
        again.resume(&value!({"a": 0}));
        again.record_call("a", ReinvocationPolicy::IfNeeded, false);
        again.record_call("b", ReinvocationPolicy::Never, true);
        again.record_call("c", ReinvocationPolicy::IfNeeded, false);
        again.finish(&value!({"a": 1}));
        assert!(again.has_changed());
        again.start_second_round();
        again.resume(&value!({"a": 1}));
        assert_eq!(["a", "b", "c"].map(|id| again.wants(id)), [true, false, false]);
    }

    #[test]
    fn changes_by_plugins_reinvoke_all_if_needed_callers() {
        let mut again = Reinvocation::default();
        again.record_call("a", ReinvocationPolicy::Never, false);
        again.record_call("b", ReinvocationPolicy::IfNeeded, false);
        again.finish(&value!({"a": 1}));
        assert!(!again.has_changed());
        again.start_second_round();
        again.resume(&value!({"a": 2}));
        assert_eq!(["a", "b"].map(|id| again.wants(id)), [false, true]);
    }
}
