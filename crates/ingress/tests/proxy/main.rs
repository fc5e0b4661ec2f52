//! The proxy over real sockets: routing, forwarding, TLS, limits and replaced tables.
#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod forwarding;
mod hardening;
mod lifecycle;
mod memory;
mod support;
mod tls;
