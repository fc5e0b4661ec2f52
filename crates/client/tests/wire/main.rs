//! The client against a real server over TCP and TLS that answers as each test says, step by step.

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod cache;
mod credentials;
mod requests;
mod server;
