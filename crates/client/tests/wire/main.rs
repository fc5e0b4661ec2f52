//! Wire tests of the client against a scripted server over TCP and TLS.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod cache;
mod credentials;
mod requests;
mod server;
