//! What is written down about requests: who asked for what, when, and what came of it.
//!
//! A [`Policy`] decides for each request how much is written. A [`Trail`] accompanies the request and makes an [`Event`] of each of
//! its stages. Events are cut to size ([`truncate`]), gathered ([`batch`]) and printed ([`log`]). What reads the policy, writes
//! the log or calls a webhook is not here; what it must do is.
//!
//! Nothing is redacted in an object that is written down: what is confidential (secrets, tokens, token reviews) is kept out by
//! a policy that writes such requests at the level Metadata, at which no object is written at all.

pub mod batch;
pub mod event;
pub mod log;
pub mod options;
pub mod policy;
pub mod request;
pub mod trail;
pub mod truncate;

pub use event::Event;
pub use policy::{Level, Policy, Stage, Verdict};
pub use request::{Attributes, Target, User};
pub use trail::Trail;
