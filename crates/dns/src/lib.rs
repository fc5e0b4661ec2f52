//! The cluster DNS server: answers from a projection of services and endpoint slices.
//!
//! [`zone`] is the projection, updated by [`feed`]. [`mod@answer`] computes the answer to a query. [`message`] decodes
//! and encodes messages. [`serve`] handles the sockets, and [`forward`] queries other resolvers for external names.
//! [`clients`] restricts access.
//!
//! # Invariants
//!
//! - Names resolve as the DNS specification requires. An incomplete zone denies no name. No bytes cause a panic.
//!   *Enforced by* `names_resolve_as_specified`, `incomplete_zone_denies_no_name`, `no_bytes_cause_a_panic`.

pub mod answer;
pub mod clients;
pub mod feed;
pub mod forward;
pub mod message;
pub mod metrics;
pub mod serve;
pub mod zone;

pub use answer::{Answer, answer};
pub use zone::Zone;
