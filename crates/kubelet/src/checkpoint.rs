//! Checkpoint files: kubelet state that must survive a crash.

use std::io;
use std::path::Path;

use apimachinery::{Value, json};

use crate::admission::Rejection;

/// Mode of pod directories.
pub(crate) const DIR_MODE: u32 = 0o750;
const FILE_MODE: u32 = 0o600;

/// Writes a checkpoint, which survives a power failure once this returns. On failure the caller must not perform the
/// recorded action.
pub(crate) fn write(dir: &Path, name: &str, value: &Value) -> io::Result<()> {
    sys::create_dirs(dir, DIR_MODE)?;
    sys::replace_file(&dir.join(name), json::to_string(value).as_bytes(), FILE_MODE)
}

/// A pod whose allocation cannot be checkpointed is not admitted: after a crash its resources would be allocated twice.
impl From<io::Error> for Rejection {
    fn from(error: io::Error) -> Self {
        let message = format!("Allocate failed due to failed to write checkpoint: {error}, which is unexpected");
        Self { reason: "UnexpectedAdmissionError".to_owned(), message }
    }
}
