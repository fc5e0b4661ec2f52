//! Nodes without containers: pods become Running and Ready as a kubelet would report them.
//!
//! [`node`] and [`life`] decide what nodes and pods say; `run` watches pods and says it. What the containers of a pod do is up to
//! its annotation `hollow.knarr.dev/does` (`run`, `notready`, `succeed`, `fail` or `fail:CODE`), or else to an image of one of these
//! names, such as `hollow/fail:3`; or else pods that are restarted run, and others succeed at once.

pub mod life;
pub mod node;
mod run;

pub use run::{Nodes, Settings};
