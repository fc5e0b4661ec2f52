//! Files in which the kubelet keeps what it must still know after a crash.

use std::io;
use std::path::Path;

use machinery::{Value, json};

use crate::admission::Refusal;

/// The mode of the directories of pods.
pub const DIR_MODE: u32 = 0o750;
const FILE_MODE: u32 = 0o600;

/// Writes a checkpoint. When this returns, it survives a power failure; if it fails, what it is about must not happen.
pub fn write(dir: &Path, name: &str, value: &Value) -> io::Result<()> {
    sys::create_dirs(dir, DIR_MODE)?;
    sys::replace_file(&dir.join(name), json::to_string(value).as_bytes(), FILE_MODE)
}

/// A pod whose resources cannot be written down is not admitted: after a crash they would be given away twice.
impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        let message = format!("Allocate failed due to failed to write checkpoint: {error}, which is unexpected");
        Self { reason: "UnexpectedAdmissionError".to_owned(), message }
    }
}
