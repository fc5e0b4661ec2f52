//! Automation: `cargo xtask ci` is the gate.

fn main() {}
