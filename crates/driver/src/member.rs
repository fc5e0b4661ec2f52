//! A controller without its type, so that many of them stand in one list.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use reconcile::Controller;
use reconcile::everything::Sweeper;

use crate::{Driver, run, sweep};

/// One controller of a list.
#[derive(Clone, Copy)]
pub struct Member {
    /// Who its events come from.
    pub component: &'static str,
    /// The kinds it looks at.
    pub reads: &'static [&'static str],
    run: fn(Arc<Driver>, usize) -> Running,
}

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Member {
    /// The member that the controller `C` is.
    pub fn of<C: Controller>() -> Self {
        Self { component: C::NAME, reads: C::READS, run: |driver, workers| Box::pin(run::<C>(driver, workers)) }
    }

    /// The member that the sweeper `S` is.
    pub fn sweeper<S: Sweeper>() -> Self {
        Self { component: S::NAME, reads: &[], run: |driver, workers| Box::pin(sweep::<S>(driver, workers)) }
    }

    /// Runs it as [`fn@run`] does.
    pub fn run(&self, driver: Arc<Driver>, workers: usize) -> impl Future<Output = ()> + Send + use<> {
        (self.run)(driver, workers)
    }
}
