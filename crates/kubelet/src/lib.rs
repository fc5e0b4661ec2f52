//! The node's agent: pods from the API server, containers through CRI.
//!
//! ```text
//!   API server ──watch──> pods ──> one worker a pod: observe ──> plan ──> execute ──> CRI
//!                                        ^                                   │
//!        status, once per change <───────┴──── events, timers, probes <──────┘
//! ```
//!
//! What decides is pure: [`plan`] says what to do next for a pod, [`status`] what to say of it, and the modules around them
//! put a pod into CRI's words. What does knows no rules.

pub mod backoff;
pub mod container;
pub mod dns;
pub mod environment;
pub mod observed;
pub mod plan;
pub mod pod;
pub mod resources;
pub mod sandbox;
pub mod security;
pub mod status;
