//! Audit: records of API requests, their users and results.
//!
//! A [`Policy`] decides for each request how much is recorded. A [`Trail`] accompanies the request and creates an
//! [`Event`] at each of its stages. Events are truncated ([`truncate`]), batched ([`batch`]) and formatted ([`log`]).
//! This crate performs no I/O: reading the policy, writing the log and calling webhooks are done elsewhere.
//!
//! Objects in events are not redacted. A policy must record requests with confidential objects (secrets, tokens, token
//! reviews) at the level Metadata, which records no objects.

pub mod batch;
pub mod event;
pub mod log;
pub mod options;
pub mod policy;
pub mod request;
pub mod trail;
pub mod truncate;

pub use event::Event;
pub use policy::{AuditDecision, Level, Policy, Stage};
pub use request::{Attributes, Target, User};
pub use trail::Trail;
