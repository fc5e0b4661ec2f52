//! Tests of the handler over sockets, with a real API server.
#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod forwarding;
mod page;
mod sessions;
mod support;
