//! What a controller is: it observes objects in a cache and decides on a plan; it does nothing itself.
//!
//! ```text
//!   cache ──observe──> observed ──plan──> Plan { actions, wake_at, waiting } ──> executed by the driver
//!     ^                                                                                   │
//!     └──────────────────────────── the next observation is the report ───────────────────┘
//! ```
//!
//! The laws of a plan: it is one safe step, right whatever becomes of its other actions; preconditions travel with each action;
//! time is an argument and waking a result; a status is written only if it differs; an empty plan that is not done says
//! why. [`testing`] checks them over any world.

mod action;
mod cache;
mod config;
mod errand;
pub mod everything;
pub mod kinds;
mod plan;
pub mod testing;

use machinery::time::Time;
use machinery::{Key, Value};

pub use action::{Action, EventType, Patch, Preconditions, Propagation, Regarding, Told};
pub use cache::{Answer, Answers, Ask, Cache, Objects, Refusal, Shown, index_by, orphans_of};
pub use config::Configs;
pub use errand::{Errand, Errands, Order};
pub use plan::Plan;

/// A control loop of Kubernetes: what it looks at, and what it decides.
pub trait Controller: 'static {
    /// Everything the decision may depend on, and nothing else.
    type Observed<'a>;

    /// Its name, as flags, logs and field managers have it.
    const NAME: &'static str;
    /// The kinds it may look at: `pods`, `replicasets.apps`. The first is what its keys are of.
    const READS: &'static [&'static str];
    /// The kinds and subresources it may write: `pods`, `replicasets.apps/status`; `*` for objects of every kind.
    const WRITES: &'static [&'static str];

    /// Which keys an object of a kind in `READS` concerns. Asked about an object as it was and as it is, whenever it changed.
    fn concerns(cache: &Cache, kind: &str, object: &Value, keys: &mut Vec<Key>);

    /// Whether a change of an object of a kind in `READS` can make a difference at all. Nodes say every few seconds that they are
    /// well: whoever looks at all pods for a node does not want to hear of that.
    fn matters(_kind: &str, _old: &Value, _new: &Value) -> bool {
        true
    }

    /// What to ask the server for before deciding, where what counts has no watch, such as metrics. Called again with the answers
    /// until nothing new is asked for.
    fn asks(_cache: &Cache, _key: &Key, _now: Time) -> Vec<Ask> {
        Vec::new()
    }

    /// What there is to decide on for a key; `None` if there is nothing.
    fn observe<'a>(cache: &'a Cache, key: &Key) -> Option<Self::Observed<'a>>;

    /// The whole of the controller's judgement: no I/O, no clock, no randomness.
    fn plan(observed: &Self::Observed<'_>, now: Time) -> Plan;
}

/// Observes and plans in one go; nothing to decide is an empty plan.
pub fn decide<C: Controller>(cache: &Cache, key: &Key, now: Time) -> Plan {
    C::observe(cache, key).map(|observed| C::plan(&observed, now)).unwrap_or_default()
}
