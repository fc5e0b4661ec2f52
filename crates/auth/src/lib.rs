//! Authentication and authorization as pure functions: identities, and authorizers of rules and attributes.
//!
//! The API server authenticates a connection into a [`User`], describes the request as [`Attributes`], and queries a
//! [`Chain`] of authorizers for a [`Decision`]. No code in this crate reads a socket, a file or a clock.
//!
//! # Invariants
//!
//! - A user cannot grant permissions that the user does not have. *Enforced by*
//!   `covered_rules_allow_no_additional_request`.
//! - A service account token is invalid after its bound object is deleted. *Enforced by*
//!   `token_is_invalid_after_its_bound_object`.
//! - The Node authorizer relates a node to exactly the objects that its current pods lead to. *Enforced by*
//!   `relations_match_the_existing_objects`.

pub mod abac;
pub mod access_review;
pub mod attributes;
pub mod authorization_config;
pub mod bearer;
pub mod bootstrap_token;
pub mod cache;
pub mod chain;
mod config_file;
mod escape;
mod expression;
mod extra_key;
pub mod headers;
pub mod impersonation;
pub mod jwt;
pub mod keys;
pub mod node;
pub mod oidc;
pub mod rbac;
pub mod request_header;
pub mod rules_review;
pub mod service_account;
pub mod token_file;
pub mod token_review;
pub mod user;
pub mod x509;

pub use attributes::{Attributes, OwnedAttributes, Resource, Target};
pub use chain::{AlwaysAllow, AlwaysDeny, Authorizer, Chain, Decision, PrivilegedGroup};
pub use user::User;
