//! Loading of seccomp filters without setting no-new-privileges, which every safe wrapper does.

use std::io;

/// One instruction of a classic BPF filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SockFilter {
    /// The opcode.
    pub code: u16,
    /// Instructions to skip if the condition is true.
    pub jt: u8,
    /// Instructions to skip if the condition is false.
    pub jf: u8,
    /// The operand.
    pub k: u32,
}

/// Filters this thread's system calls from now on; requires CAP_SYS_ADMIN or no-new-privileges.
pub fn load_seccomp(program: &[SockFilter]) -> io::Result<()> {
    let too_long = |_| io::Error::from_raw_os_error(libc::EINVAL);
    let length = u16::try_from(program.len()).map_err(too_long)?;
    let mut filter: Vec<libc::sock_filter> =
        program.iter().map(|one| libc::sock_filter { code: one.code, jt: one.jt, jf: one.jf, k: one.k }).collect();
    let mut description = libc::sock_fprog { len: length, filter: filter.as_mut_ptr() };
    // SAFETY: the description points to `length` instructions that live until the call returns; the kernel copies and
    // checks them, and writes nothing.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, std::ptr::from_mut(&mut description))
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
