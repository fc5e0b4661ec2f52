//! The controller interface: a controller observes cached objects and decides on a plan, without side effects.
//!
//! ```text
//!   cache ──observe──> observed ──plan──> Plan { actions, wake_at, waiting } ──> executed by the driver
//!     ^                                                                                   │
//!     └──────────────────────────── the next observation shows effects ───────────────────┘
//! ```
//!
//! A plan is one safe step: each action is correct whatever happens to the others. An action contains its
//! preconditions. The current time is an argument, and the next wake-up time is a result. A status is written only if
//! it differs. A plan without actions contains the reason for waiting, unless the desired state is reached. [`testing`]
//! checks these properties in generated clusters.

mod action;
mod cache;
pub mod object_graph;
mod plan;
mod side_effect;
pub mod testing;

use apimachinery::time::Time;
use apimachinery::{GroupResource, Key, Value};

/// The resources that controllers read and write, for actions.
pub use api::resources::versioned as kinds;

pub use action::{ANYTHING, Action, EventOnResult, EventType, Patch, Preconditions, Propagation, Regarding, Write};
pub use cache::{Answers, Cache, KindSnapshot, Objects, Rejection, ServerQuery, ServerResponse, index_by, orphans_of};
pub use plan::Plan;
pub use side_effect::{AfterEffect, Perform, Setup, SideEffect, no_side_effects};

/// A Kubernetes controller: the kinds it reads and writes, and its decisions.
pub trait Controller: 'static {
    /// All inputs of the decision.
    type Observed<'a>;
    /// The configuration, made from flags at start; `()` if there is none.
    type Config: Clone + Send + Sync + 'static;
    /// The side effects that its actions need; `Infallible` if there are none.
    type Effect: SideEffect;

    /// The name in flags, logs and field managers.
    const NAME: &'static str;
    /// The kinds it may read. Keys usually refer to the first.
    const READS: &'static [GroupResource];
    /// The resources it may write.
    const WRITES: &'static [Write];

    /// Adds the keys to reconcile after a change of an object of a kind in `READS`. Called with the old state and with
    /// the new state.
    fn affected_keys(cache: &Cache, kind: GroupResource, object: &Value, keys: &mut Vec<Key>);

    /// Whether a change of an object of a kind in `READS` is relevant. For example, a controller that reads all pods of
    /// a node should ignore the node's heartbeats.
    fn is_relevant_change(_kind: GroupResource, _old: &Value, _new: &Value) -> bool {
        true
    }

    /// Returns requests for data without a watch, such as metrics, that the decision needs. Called again with the
    /// responses until it returns no new request.
    fn queries(_cache: &Cache, _key: &Key, _now: Time) -> Vec<ServerQuery> {
        Vec::new()
    }

    /// Returns the inputs for a key; `None` if there is nothing to decide.
    fn observe<'a>(cache: &'a Cache, config: &'a Self::Config, key: &Key) -> Option<Self::Observed<'a>>;

    /// Decides on a plan, without I/O, clock or randomness.
    fn plan(observed: &Self::Observed<'_>, now: Time) -> Plan<Self::Effect>;
}

/// Observes and plans. Returns an empty plan if there is nothing to decide.
pub fn decide<C: Controller>(cache: &Cache, config: &C::Config, key: &Key, now: Time) -> Plan<C::Effect> {
    C::observe(cache, config, key).map(|observed| C::plan(&observed, now)).unwrap_or_default()
}
