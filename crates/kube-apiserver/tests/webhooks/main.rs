//! Webhook tests: the API server as a client of real TLS servers in this process.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod access;
mod admission;
mod backend;
mod conversion;
mod custom;
mod decoding;
mod definitions;
mod hook;
mod plugins;
mod policies;
mod server;
mod wire;
