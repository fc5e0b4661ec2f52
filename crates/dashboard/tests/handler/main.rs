//! Tests of the handler over sockets, with a real API server.
#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod forwarding;
mod page;
mod sessions;
mod support;
