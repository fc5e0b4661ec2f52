//! Execution of an action with its preceding side effect.

use std::sync::Arc;

use apimachinery::Value;
use client::Error;
use controller::{Action, SideEffect, SideEffects};

use crate::Driver;
use crate::execute::{Effect, execute};

/// An action failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The server rejected the request or did not respond.
    #[error(transparent)]
    Refused(#[from] Error),
    /// The side effect before the action failed.
    #[error("{errand} failed: {why}")]
    SideEffect {
        /// A description of the side effect.
        errand: String,
        why: String,
    },
}

impl Failure {
    /// Returns the client's error, if a request was sent.
    pub const fn refused(&self) -> Option<&Error> {
        match self {
            Self::Refused(error) => Some(error),
            Self::SideEffect { .. } => None,
        }
    }
}

/// Executes one action, its side effect first.
pub async fn perform(driver: &Driver, action: &Action) -> Result<Option<Effect>, Failure> {
    let Action::After { errand, into, then } = action else {
        return Ok(execute(&driver.client, &driver.events, &driver.manager, action).await?);
    };
    let made = run(driver, errand).await.map_err(|why| Failure::SideEffect { errand: errand.to_string(), why })?;
    let then = then.as_ref().clone().with(into, made);
    Ok(execute(&driver.client, &driver.events, &driver.manager, &then).await?)
}

/// Performs a side effect on a blocking thread, because it reads files and computes.
async fn run(driver: &Driver, errand: &SideEffect) -> Result<Value, String> {
    let Some(errands) = driver.caches.configs().of::<Arc<dyn SideEffects>>() else {
        return Err("this process cannot perform side effects".to_owned());
    };
    let (errands, errand) = (Arc::clone(errands), errand.clone());
    match tokio::task::spawn_blocking(move || errands.run(&errand)).await {
        Ok(done) => done,
        Err(error) => Err(error.to_string()),
    }
}
