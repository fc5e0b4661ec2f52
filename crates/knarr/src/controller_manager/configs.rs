//! What controllers are told at start, from the flags.

use anyhow::Result;
use reconcile::Configs;

use super::flags::Flags;

/// One line for each controller that has something to be told.
pub fn of(_flags: &Flags) -> Result<Configs> {
    Ok(Configs::default())
}
