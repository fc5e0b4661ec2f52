//! Plans: the actions, the wake-up time and the reason for waiting.

use std::fmt;

use apimachinery::Value;
use apimachinery::time::Time;

use crate::Action;

/// One safe step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The actions, started in this order. Each is correct whatever happens to the others.
    pub actions: Vec<Action>,
    /// Reconcile again at this time even without changes.
    pub wake_at: Option<Time>,
    /// The reason why there is no action although the desired state is not reached.
    pub waiting: Option<String>,
    /// The memory for the next plan of the same key, stored if all actions succeed; otherwise the previous memory is
    /// kept. Lost when the process exits, so it may only affect timing.
    pub remember: Option<Value>,
}

impl Plan {
    pub fn of(action: Action) -> Self {
        Self { actions: vec![action], ..Self::default() }
    }

    /// Returns a plan without actions that waits for this reason.
    pub fn waiting(reason: impl Into<String>) -> Self {
        Self { waiting: Some(reason.into()), ..Self::default() }
    }

    pub fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Reconciles again at `time` at the latest.
    pub fn wake(&mut self, time: Time) {
        self.wake_at = Some(self.wake_at.map_or(time, |have| have.min(time)));
    }

    /// Whether there is no action, no wake-up and no reason for waiting.
    pub fn is_done(&self) -> bool {
        self.actions.is_empty() && self.wake_at.is_none() && self.waiting.is_none()
    }
}

/// Formats one line per action, then the reason for waiting.
impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for action in &self.actions {
            writeln!(out, "{action}")?;
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
