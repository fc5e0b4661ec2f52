//! Execution of an action with its preceding side effect.

use std::sync::Arc;

use apimachinery::Value;
use client::Error;
use controller::{Action, SideEffect, SideEffects};

use crate::Driver;
use crate::effect::Effect;
use crate::execute::execute;

/// An action failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The server rejected the request or did not respond.
    #[error(transparent)]
    Request(#[from] Error),
    /// The side effect before the action failed.
    #[error("{side_effect} failed: {message}")]
    SideEffect {
        /// A description of the side effect.
        side_effect: String,
        message: String,
    },
}

impl Failure {
    /// Returns the client's error, if a request was sent.
    pub(crate) const fn client_error(&self) -> Option<&Error> {
        match self {
            Self::Request(error) => Some(error),
            Self::SideEffect { .. } => None,
        }
    }
}

/// Executes one action, its side effect first.
pub(crate) async fn execute_action(driver: &Driver, action: &Action) -> Result<Option<Effect>, Failure> {
    let Action::WithSideEffect { side_effect, into, then } = action else {
        return Ok(execute(&driver.client, &driver.events, &driver.manager, action).await?);
    };
    let made = run(driver, side_effect)
        .await
        .map_err(|message| Failure::SideEffect { side_effect: side_effect.to_string(), message })?;
    let then = then.as_ref().clone().with(into, made);
    Ok(execute(&driver.client, &driver.events, &driver.manager, &then).await?)
}

/// Performs a side effect on a blocking thread, because it reads files and computes.
async fn run(driver: &Driver, side_effect: &SideEffect) -> Result<Value, String> {
    let Some(side_effects) = driver.caches.configs().of::<Arc<dyn SideEffects>>() else {
        return Err("this process cannot perform side effects".to_owned());
    };
    let (side_effects, side_effect) = (Arc::clone(side_effects), side_effect.clone());
    match tokio::task::spawn_blocking(move || side_effects.run(&side_effect)).await {
        Ok(done) => done,
        Err(error) => Err(error.to_string()),
    }
}
