//! Plans: the actions, the wake-up time and the reason for waiting.

use std::convert::Infallible;
use std::fmt;

use apimachinery::Value;
use apimachinery::time::Time;

use crate::{Action, AfterEffect};

/// One safe step.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan<E = Infallible> {
    /// The actions, started in this order. Each is correct whatever happens to the others.
    pub actions: Vec<Action>,
    /// Further actions, each of which needs a side effect first.
    pub after_effects: Vec<AfterEffect<E>>,
    /// Reconcile again at this time even without changes.
    pub wake_at: Option<Time>,
    /// The reason why there is no action although the desired state is not reached.
    pub waiting: Option<String>,
    /// The memory for the next plan of the same key, stored if all actions succeed; otherwise the previous memory is
    /// kept. Lost when the process exits, so it may only affect timing.
    pub remember: Option<Value>,
}

impl<E> Default for Plan<E> {
    fn default() -> Self {
        Self { actions: Vec::new(), after_effects: Vec::new(), wake_at: None, waiting: None, remember: None }
    }
}

impl<E> Plan<E> {
    pub fn of(action: Action) -> Self {
        Self { actions: vec![action], ..Self::default() }
    }

    /// Returns a plan of one action after a side effect.
    pub fn after(effect: E, into: &'static [&'static str], action: Action) -> Self {
        Self { after_effects: vec![AfterEffect { effect, into, action }], ..Self::default() }
    }

    /// Returns a plan without actions that waits for this reason.
    pub fn waiting(reason: impl Into<String>) -> Self {
        Self { waiting: Some(reason.into()), ..Self::default() }
    }

    pub fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Returns all actions in the order in which they are started, with the side effect that each needs first.
    pub fn steps(&self) -> impl Iterator<Item = (&Action, Option<&AfterEffect<E>>)> {
        let after = self.after_effects.iter().map(|after| (&after.action, Some(after)));
        self.actions.iter().map(|action| (action, None)).chain(after)
    }

    /// Reconciles again at `time` at the latest.
    pub fn wake(&mut self, time: Time) {
        self.wake_at = Some(self.wake_at.map_or(time, |have| have.min(time)));
    }

    /// Whether there is no action, no wake-up and no reason for waiting.
    pub fn is_done(&self) -> bool {
        self.steps().next().is_none() && self.wake_at.is_none() && self.waiting.is_none()
    }
}

/// Formats one line per action, then the reason for waiting.
impl<E: fmt::Display> fmt::Display for Plan<E> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for action in &self.actions {
            writeln!(out, "{action}")?;
        }
        for after in &self.after_effects {
            writeln!(out, "{after}")?;
        }
        if let Some(time) = self.wake_at {
            writeln!(out, "wake at {time}")?;
        }
        if let Some(reason) = &self.waiting {
            writeln!(out, "waiting: {reason}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;
    use crate::kinds;

    #[test]
    fn plan_starts_actions_before_those_that_need_a_side_effect() {
        let pod = value!({"metadata": {"namespace": "a", "name": "web", "uid": "u"}});
        let mut plan = Plan::after("sign x", &["status"], Action::delete(&kinds::PODS, &pod));
        plan.push(Action::delete(&kinds::NODES, &value!({"metadata": {"name": "n"}})));
        assert_eq!(plan.to_string(), "delete nodes n\nsign x, then delete pods a/web\n");
        let order: Vec<(String, bool)> =
            plan.steps().map(|(action, after)| (action.writes(), after.is_some())).collect();
        assert_eq!(order, [("nodes".to_owned(), false), ("pods".to_owned(), true)]);
        assert!(!plan.is_done() && Plan::<&str>::default().is_done());
    }
}
