//! What runs controllers: the only place where their plans become requests.
//!
//! One watch per kind feeds [`Caches`] that all controllers share. For each controller, [`run()`] keeps a [`queue`] of keys, lets the
//! controller observe and plan for one key at a time, and carries the plan out. It does not observe a key again before
//! the caches show what was written for it, so that no controller acts twice on what it has not seen yet.

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
