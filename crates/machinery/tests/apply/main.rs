//! Server-side apply: its rules as tables, its laws as properties.

mod laws;
mod notation;
mod story;
mod typed;
mod writes;
