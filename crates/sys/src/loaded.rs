//! What the dynamic loader put into this process.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The loader and the libraries that this program runs with, by the paths under which the loader found them; none of them if
/// it is linked statically.
pub fn loaded_objects() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    // SAFETY: the callback runs only during the call, in this thread, and the pointer that it is given is to `found`, which
    // nobody else uses meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(visit), std::ptr::from_mut(&mut found).cast()) };
    found
}

/// Adds the name of an object. The program itself has none, and what the kernel maps has no path.
unsafe extern "C" fn visit(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    found: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the loader passes a description that is valid during the call, and the pointer given to `dl_iterate_phdr`.
    let (name, found) = unsafe { ((*info).dlpi_name, &mut *found.cast::<Vec<PathBuf>>()) };
    if name.is_null() {
        return 0;
    }
    // SAFETY: a name of the loader's is a terminated string that lives as long as the object is loaded.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    if name.starts_with(b"/") {
        found.push(PathBuf::from(OsStr::from_bytes(name)));
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_loaded_is_there_to_be_loaded_again() {
        for path in loaded_objects() {
            assert!(path.is_absolute() && path.exists(), "{}", path.display());
        }
    }
}
