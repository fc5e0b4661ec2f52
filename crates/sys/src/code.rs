//! Resident pages of the executable's code.

use std::io;

/// Drops the mapped pages of this executable's code, and returns the number of bytes they span. Code that still runs is
/// mapped again from the page cache on its next use, so that only the used pages remain resident.
pub fn release_code() -> io::Result<usize> {
    let program = std::env::current_exe()?;
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let mut released = 0;
    for (start, end) in maps.lines().filter_map(|line| code_of(line, program.to_str()?)) {
        // SAFETY: the range is a private file mapping that the kernel just listed, executable and not writable, so no
        // page of it differs from the file. Dropping such pages has no visible effect: the next access reads them from
        // the file again.
        let result = unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_DONTNEED) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        released += end - start;
    }
    Ok(released)
}

/// Returns the address range of a line of `/proc/self/maps`, if it is code of the executable.
fn code_of(line: &str, program: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    if fields.next()? != "r-xp" || fields.nth(3)? != program {
        return None;
    }
    let parse = |text| usize::from_str_radix(text, 16).ok();
    Some((parse(start)?, parse(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_the_executable_is_released_and_it_keeps_running() {
        let check = |line: &str, expect: Option<(usize, usize)>| assert_eq!(code_of(line, "/bin/it"), expect, "{line}");
        check("1000-3000 r-xp 00001000 fe:00 123      /bin/it", Some((0x1000, 0x3000)));
        check("1000-3000 r--p 00001000 fe:00 123      /bin/it", None);
        check("1000-3000 rwxp 00001000 fe:00 123      /bin/it", None);
        check("1000-3000 r-xp 00001000 fe:00 123      /lib/libc.so.6", None);
        check("1000-3000 r-xp 00000000 00:00 0", None);
        assert!(release_code().expect("/proc/self/maps is readable") > 0);
        assert!(release_code().expect("a second release succeeds") > 0);
    }
}
