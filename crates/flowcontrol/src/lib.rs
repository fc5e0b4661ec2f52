//! API priority and fairness: admission, queuing and rejection of requests.
//!
//! A request is classified by the first matching [`flow_schema::FlowSchema`], which names a priority level. A level has a
//! number of seats, and a request takes some of them while it executes. A request without a seat waits in one of the
//! queues dealt to its flow. The queues are served fairly ([`queues`]). Every ten seconds levels lend seats to each
//! other by demand ([`allocation`]).
//!
//! [`FlowControl`] is a state machine: the caller reports events with their time and gets the resulting decisions. No
//! code in this crate reads a clock or waits.
//!
//! # Invariants
//!
//! - Every waiting request is eventually served. Exempt requests never wait. Seats and queues are bounded. *Enforced
//!   by* `every_waiting_request_is_eventually_served`, `exempt_requests_never_wait`,
//!   `seats_stay_within_the_limit_and_queues_are_bounded`.

pub mod allocation;
pub mod bootstrap;
pub mod control;
pub mod dealer;
pub mod demand;
pub mod dropped;
pub mod flow_schema;
pub mod inflight;
pub mod level;
pub mod metrics;
pub mod moment;
pub mod queues;
pub mod request;
pub mod work;

pub use control::{Arrival, Classification, DequeueResult, FlowControl, Outcome, Ticket};
pub use moment::Moment;
pub use request::{Digest, Target};
pub use work::{Estimate, Work};
