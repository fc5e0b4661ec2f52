//! `knarr licenses`: prints the licences of the third-party software in this binary.

use clap::{ArgMatches, Command};
use flate2::read::DeflateDecoder;

use crate::output;

/// `THIRD_PARTY_LICENSES`, compressed by the build script.
static LICENSES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/licenses.deflate"));

pub(crate) fn arguments(command: Command) -> Command {
    command
}

pub(crate) fn run(_: &ArgMatches) -> anyhow::Result<()> {
    output::copy(&mut DeflateDecoder::new(LICENSES));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_licences_equal_the_file() {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut DeflateDecoder::new(LICENSES), &mut text).unwrap();
        assert_eq!(text, include_str!("../../../THIRD_PARTY_LICENSES"));
        assert!(text.contains("\npathrs "), "its license requires a notice");
    }
}
