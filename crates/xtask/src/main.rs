//! Automation: `cargo xtask ci` is the gate.

mod catalogue;

fn main() -> anyhow::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("catalogue") => catalogue::run(),
        _ => anyhow::bail!("usage: cargo xtask catalogue [types.json]"),
    }
}
