//! Type-erased controllers, for a list of all controllers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use controller::Controller;
use controller::object_graph::GlobalController;

use crate::{Driver, run, run_global};

#[derive(Clone, Copy)]
pub struct Member {
    /// The source component of events.
    pub component: &'static str,
    /// The kinds it reads.
    pub reads: &'static [&'static str],
    run: fn(Arc<Driver>, usize) -> Running,
}

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Member {
    pub fn of<C: Controller>() -> Self {
        Self { component: C::NAME, reads: C::READS, run: |driver, workers| Box::pin(run::<C>(driver, workers)) }
    }

    pub fn global<S: GlobalController>() -> Self {
        Self { component: S::NAME, reads: &[], run: |driver, workers| Box::pin(run_global::<S>(driver, workers)) }
    }

    /// Runs the controller, see [`fn@run`].
    pub fn run(&self, driver: Arc<Driver>, workers: usize) -> impl Future<Output = ()> + Send + use<> {
        (self.run)(driver, workers)
    }
}
