//! Device filters of cgroup v2: BPF programs that the kernel runs before a process opens or creates a device node.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_ATTACH: libc::c_int = 8;
const BPF_PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const BPF_CGROUP_DEVICE: u32 = 6;
/// Programs of parent cgroups keep running, and a device must pass all of them.
const BPF_F_ALLOW_MULTI: u32 = 1 << 1;
/// The program calls no helper functions, so the kernel does not check this license.
const LICENSE: &std::ffi::CStr = c"Apache-2.0";

/// One BPF instruction, in the kernel's layout.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BpfInstruction {
    /// The opcode.
    pub code: u8,
    /// Destination register in the lower four bits, source register in the upper four.
    pub registers: u8,
    /// The offset of a jump or a load.
    pub offset: i16,
    /// The constant operand.
    pub immediate: i32,
}

/// The first fields of `union bpf_attr` for `BPF_PROG_LOAD`; the kernel treats omitted fields as zero.
#[repr(C)]
struct LoadAttributes {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buffer: u64,
    kernel_version: u32,
    flags: u32,
}

/// The first fields of `union bpf_attr` for `BPF_PROG_ATTACH`.
#[repr(C)]
struct AttachAttributes {
    target: u32,
    program: u32,
    attach_type: u32,
    flags: u32,
}

/// Loads a device filter. The kernel verifies the program, and frees it when it is neither open nor attached.
pub fn load_device_filter(program: &[BpfInstruction]) -> io::Result<OwnedFd> {
    let count = u32::try_from(program.len()).map_err(io::Error::other)?;
    let attributes = LoadAttributes {
        program_type: BPF_PROG_TYPE_CGROUP_DEVICE,
        instruction_count: count,
        instructions: program.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buffer: 0,
        kernel_version: 0,
        flags: 0,
    };
    // SAFETY: the attributes are a complete structure of the given length, and point to `count` instructions and a
    // terminated string, which live until the call returns; the kernel copies them and writes nothing.
    let fd = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, std::ptr::from_ref(&attributes), size_of::<LoadAttributes>())
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the descriptor was just created and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attaches a loaded device filter to a cgroup v2 directory. The filter stays until the cgroup is removed.
pub fn attach_device_filter(cgroup: impl AsFd, program: impl AsFd) -> io::Result<()> {
    let number = |fd: RawFd| u32::try_from(fd).map_err(io::Error::other);
    let attributes = AttachAttributes {
        target: number(cgroup.as_fd().as_raw_fd())?,
        program: number(program.as_fd().as_raw_fd())?,
        attach_type: BPF_CGROUP_DEVICE,
        flags: BPF_F_ALLOW_MULTI,
    };
    // SAFETY: the attributes are a complete structure of the given length, without pointers, and live until the call
    // returns.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_PROG_ATTACH, std::ptr::from_ref(&attributes), size_of::<AttachAttributes>())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
