//! Server-side apply: its rules as tables, its laws as properties.

#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod laws;
mod notation;
mod story;
mod typed;
mod writes;
