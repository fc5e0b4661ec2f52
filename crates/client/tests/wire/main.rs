//! Wire tests of the client against a scripted server over TCP and TLS.

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod cache;
mod credentials;
mod requests;
mod server;
