//! `knarr licenses`: the licences of the third-party software in this binary.

use clap::{ArgMatches, Command};
use flate2::read::DeflateDecoder;

use crate::output;

/// `THIRD_PARTY_LICENSES`, compressed by the build script.
static LICENSES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/licenses.deflate"));

/// It takes none.
pub fn arguments(command: Command) -> Command {
    command
}

/// Prints the text.
pub fn run(_: &ArgMatches) -> anyhow::Result<()> {
    output::copy(&mut DeflateDecoder::new(LICENSES));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_licences_of_the_binary_are_those_of_the_file() {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut DeflateDecoder::new(LICENSES), &mut text).unwrap();
        assert_eq!(text, include_str!("../../../THIRD_PARTY_LICENSES"));
        assert!(text.contains("\npathrs "), "its licence asks for a notice");
    }
}
