//! Side effects of a plan that are not API writes. A plan contains them as values; [`Perform`] performs them.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use apimachinery::Value;

use crate::{Action, Controller};

/// A side effect that a controller's actions need, such as a signature. `Infallible` is the type of a controller
/// without side effects.
pub trait SideEffect: Clone + fmt::Debug + fmt::Display + PartialEq + Send + Sync + 'static {}

impl<T: Clone + fmt::Debug + fmt::Display + PartialEq + Send + Sync + 'static> SideEffect for T {}

/// Performs a side effect and returns its result or an error message. Each side effect must be repeatable after an
/// interruption.
pub type Perform<E> = Arc<dyn Fn(&E) -> Result<Value, String> + Send + Sync>;

/// An action that is executed after a side effect succeeded.
#[derive(Clone, Debug, PartialEq)]
pub struct AfterEffect<E> {
    /// The side effect, which must succeed first.
    pub effect: E,
    /// The path in the written object for the result of the side effect; empty for none.
    pub into: &'static [&'static str],
    pub action: Action,
}

/// The configuration of a controller and the code that performs its side effects.
pub struct Setup<C: Controller> {
    pub config: C::Config,
    pub perform: Perform<C::Effect>,
}

impl<E> AfterEffect<E> {
    /// Returns the action with the result of the side effect.
    pub fn action_with(&self, result: Value) -> Action {
        if self.into.is_empty() { self.action.clone() } else { self.action.clone().with(self.into, result) }
    }
}

/// Formats one line, like an action.
impl<E: fmt::Display> fmt::Display for AfterEffect<E> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}, then {}", self.effect, self.action)
    }
}

impl<C: Controller<Effect = Infallible>> Setup<C> {
    /// Configures a controller without side effects.
    pub fn new(config: C::Config) -> Self {
        Self { config, perform: no_side_effects() }
    }
}

impl<C: Controller> Clone for Setup<C> {
    fn clone(&self) -> Self {
        Self { config: self.config.clone(), perform: Arc::clone(&self.perform) }
    }
}

/// The default configuration. Side effects fail.
impl<C: Controller<Config: Default>> Default for Setup<C> {
    fn default() -> Self {
        Self { config: C::Config::default(), perform: Arc::new(|_| Err("side effects are not configured".to_owned())) }
    }
}

/// Returns the code that performs the side effects of a controller that has none.
pub fn no_side_effects() -> Perform<Infallible> {
    Arc::new(|effect| match *effect {})
}
