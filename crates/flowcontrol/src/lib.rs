//! API priority and fairness: which requests run, which wait, which are sent away, and for how long.
//!
//! A request is classified by the first [`rules::FlowSchema`] that matches it, which names a priority level. A level has a
//! number of seats; a request takes some of them while it runs. What finds no seat waits in one of the queues that its flow
//! was dealt, and the queues are served so that each flow gets its share ([`queues`]). Every ten seconds levels lend seats to
//! each other by what they needed ([`allocation`]).
//!
//! [`FlowControl`] is a step machine: it is told what happens and when, and answers with what to do. Nothing here
//! reads a clock, and nothing waits.

pub mod allocation;
pub mod bootstrap;
pub mod control;
pub mod dealer;
pub mod demand;
pub mod dropped;
pub mod inflight;
pub mod level;
pub mod metrics;
pub mod moment;
pub mod queues;
pub mod request;
pub mod rules;
pub mod work;

pub use control::{Arrival, Classification, FlowControl, Leave, Outcome, Ticket};
pub use moment::Moment;
pub use request::{Digest, Target};
pub use work::{Estimate, Work};
