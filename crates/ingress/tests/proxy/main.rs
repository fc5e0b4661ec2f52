//! The proxy over real sockets: routing, forwarding, TLS, limits and replaced tables.
#![expect(clippy::unwrap_used, reason = "tests may panic")]

mod endpoints;
mod forwarding;
mod hardening;
mod http1;
mod lifecycle;
mod memory;
mod support;
mod tls;
