//! Type-erased controllers, for a list of all controllers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use apimachinery::GroupResource;
use controller::object_graph::GlobalController;
use controller::{Controller, Setup};

use crate::{Driver, run, run_global};

pub struct Member {
    /// The source component of events.
    pub component: &'static str,
    /// The kinds it reads.
    pub reads: &'static [GroupResource],
    run: Box<dyn Fn(Arc<Driver>, usize) -> Running + Send + Sync>,
}

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Member {
    pub fn of<C: Controller>(setup: Setup<C>) -> Self {
        let setup = Arc::new(setup);
        let run = move |driver, workers| -> Running { Box::pin(run::<C>(driver, Arc::clone(&setup), workers)) };
        Self { component: C::NAME, reads: C::READS, run: Box::new(run) }
    }

    pub fn global<S: GlobalController>() -> Self {
        let run = |driver, workers| -> Running { Box::pin(run_global::<S>(driver, workers)) };
        Self { component: S::NAME, reads: &[], run: Box::new(run) }
    }

    /// Runs the controller, see [`fn@run`].
    pub fn run(&self, driver: Arc<Driver>, workers: usize) -> impl Future<Output = ()> + Send + use<> {
        (self.run)(driver, workers)
    }
}
