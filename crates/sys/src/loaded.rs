//! Shared objects that the dynamic loader mapped into this process.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Returns the paths of the loader and the shared libraries of this process, as the loader found them; empty if the
/// executable is statically linked.
pub fn loaded_objects() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    // SAFETY: the callback runs only during the call, on this thread, and receives a pointer to `found`, which no other
    // code uses meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(visit), std::ptr::from_mut(&mut found).cast()) };
    found
}

/// Adds the path of an object. The executable itself has no name, and objects mapped by the kernel have no path.
unsafe extern "C" fn visit(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    found: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the loader passes a description that is valid during the call, and the pointer given to
    // `dl_iterate_phdr`.
    let (name, found) = unsafe { ((*info).dlpi_name, &mut *found.cast::<Vec<PathBuf>>()) };
    if name.is_null() {
        return 0;
    }
    // SAFETY: the loader's name is a terminated string that lives as long as the object is loaded.
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
    fn loaded_objects_exist_on_disk() {
        for path in loaded_objects() {
            assert!(path.is_absolute() && path.exists(), "{}", path.display());
        }
    }
}
