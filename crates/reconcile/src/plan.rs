//! What a controller decided: actions to take, when to look again, and what it waits for.

use std::fmt;

use machinery::Value;
use machinery::time::Time;

use crate::Action;

/// One safe step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// What to do. Each is right whatever becomes of the others; they are begun in this order.
    pub actions: Vec<Action>,
    /// Look again at this time even if nothing changes.
    pub wake_at: Option<Time>,
    /// Why there is nothing to do although not all is as it should be.
    pub waiting: Option<String>,
    /// What the next look at the same key is reminded of, if all actions took place; if not it is reminded of what this one was. Lost with
    /// the process: nothing may depend on it but how soon things happen.
    pub remember: Option<Value>,
}

impl Plan {
    /// A plan of one action.
    pub fn of(action: Action) -> Self {
        Self { actions: vec![action], ..Self::default() }
    }

    /// Nothing to do now, because of this.
    pub fn waiting(why: impl Into<String>) -> Self {
        Self { waiting: Some(why.into()), ..Self::default() }
    }

    /// Adds an action.
    pub fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Looks again at `time` at the latest.
    pub fn wake(&mut self, time: Time) {
        self.wake_at = Some(self.wake_at.map_or(time, |have| have.min(time)));
    }

    /// Nothing to do, nothing to wait for.
    pub fn is_done(&self) -> bool {
        self.actions.is_empty() && self.wake_at.is_none() && self.waiting.is_none()
    }
}

/// One line an action, then what is waited for.
impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for action in &self.actions {
            writeln!(out, "{action}")?;
        }
        if let Some(time) = self.wake_at {
            writeln!(out, "wake at {time}")?;
        }
        if let Some(why) = &self.waiting {
            writeln!(out, "waiting: {why}")?;
        }
        Ok(())
    }
}
