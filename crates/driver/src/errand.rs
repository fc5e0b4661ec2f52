//! Carries out an action together with what is to be done before it.

use std::sync::Arc;

use client::Error;
use machinery::Value;
use reconcile::{Action, Errand, Errands};

use crate::Driver;
use crate::execute::{Effect, execute};

/// Why an action did not take place.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The server refused it, or nobody answered.
    #[error(transparent)]
    Refused(#[from] Error),
    /// What was to be done before it was not done.
    #[error("{errand} failed: {why}")]
    Errand {
        /// What it was.
        errand: String,
        /// Why.
        why: String,
    },
}

impl Failure {
    /// What the server said, if it was asked.
    pub const fn refused(&self) -> Option<&Error> {
        match self {
            Self::Refused(error) => Some(error),
            Self::Errand { .. } => None,
        }
    }
}

/// Carries out one action, its errand first.
pub async fn perform(driver: &Driver, action: &Action) -> Result<Option<Effect>, Failure> {
    let Action::After { errand, into, then } = action else {
        return Ok(execute(&driver.client, &driver.events, &driver.manager, action).await?);
    };
    let made = run(driver, errand).await.map_err(|why| Failure::Errand { errand: errand.to_string(), why })?;
    let then = then.as_ref().clone().with(into, made);
    Ok(execute(&driver.client, &driver.events, &driver.manager, &then).await?)
}

/// Errands read files and compute: they run where nothing else waits for them.
async fn run(driver: &Driver, errand: &Errand) -> Result<Value, String> {
    let Some(errands) = driver.caches.configs().of::<Arc<dyn Errands>>() else {
        return Err("nobody runs errands here".to_owned());
    };
    let (errands, errand) = (Arc::clone(errands), errand.clone());
    match tokio::task::spawn_blocking(move || errands.run(&errand)).await {
        Ok(done) => done,
        Err(error) => Err(error.to_string()),
    }
}
