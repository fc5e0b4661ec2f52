//! Controller runtime: executes the plans of controllers as API requests.
//!
//! One watch per kind feeds the [`Caches`] that all controllers share. For each controller, [`run()`] keeps a [`queue`]
//! of keys, observes and plans one key at a time, and executes the plan. A key is not observed again before the caches
//! contain what was written for it (write barrier), so that no controller acts on outdated objects.

pub mod caches;
mod census;
pub mod clock;
pub mod election;
mod errand;
pub mod events;
mod execute;
mod member;
pub mod queue;
pub mod reviews;
mod run;
mod sweep;

pub use caches::Caches;
pub use census::Census;
pub use member::Member;
pub use run::{Driver, run};
pub use sweep::sweep;
