//! Headers of the files in layers.

use tar::{EntryType, Header};

/// Returns the header of a file that belongs to root and has no time, so that equal content has an equal digest.
pub(crate) fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header
}
