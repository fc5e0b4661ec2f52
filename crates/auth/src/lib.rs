//! Who asks and whether they may: identities, and authorizers as pure functions of rules and attributes.
//!
//! The API server authenticates a connection into a [`User`], describes the request as [`Attributes`], and asks a
//! [`Chain`] of authorizers for a [`Decision`]. Nothing here reads a socket, a file or a clock.

pub mod abac;
pub mod attributes;
pub mod chain;
pub mod rbac;
pub mod service_account;
pub mod token_file;
pub mod user;

pub use attributes::{Attributes, Resource, Target};
pub use chain::{AlwaysAllow, AlwaysDeny, Authorizer, Chain, Decision, Privileged};
pub use user::User;
