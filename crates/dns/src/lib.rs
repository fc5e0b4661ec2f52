//! The cluster's DNS: answers from a projection of services and endpoint slices.
//!
//! [`zone`] is what is known of the cluster, kept true by [`feed`]; [`mod@answer`] decides what a question is answered;
//! [`message`] makes bytes of bytes; [`serve`] does the talking and [`forward`] asks others about the rest of the world.
//! [`clients`] decides who is answered.

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
