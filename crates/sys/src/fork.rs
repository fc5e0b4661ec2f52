//! fork(2), restricted to single-threaded processes.

use std::fmt;
use std::io;

use rustix::process::Pid;

/// The process that returns from [`fork`].
#[derive(Debug)]
pub enum ForkResult {
    Child,
    /// The parent, with the PID of its child.
    Parent(Pid),
}

/// The process could not be forked.
#[derive(Debug)]
pub enum ForkError {
    /// The process has other threads: locks that they hold would stay locked in the child forever.
    Threads(usize),
    Os(io::Error),
}

impl fmt::Display for ForkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ForkError::Threads(count) => write!(f, "cannot fork: the process has {count} threads and must have one"),
            ForkError::Os(_) => f.write_str("cannot fork"),
        }
    }
}

impl std::error::Error for ForkError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ForkError::Threads(_) => None,
            ForkError::Os(error) => Some(error),
        }
    }
}

/// Forks if this process has a single thread.
pub fn fork() -> Result<ForkResult, ForkError> {
    let threads = std::fs::read_dir("/proc/self/task").map_err(ForkError::Os)?.count();
    if threads != 1 {
        return Err(ForkError::Threads(threads));
    }
    // SAFETY: with a single thread no other code holds a lock or is modifying shared memory, so the child may continue
    // like any process. No other thread can appear between the check and the call, since only this one could start it.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(ForkError::Os(io::Error::last_os_error())),
        0 => Ok(ForkResult::Child),
        pid => Ok(ForkResult::Parent(Pid::from_raw(pid).expect("fork returns the PID of the child"))),
    }
}

/// Closes every descriptor and never returns: for a forked process that only waits.
pub fn close_everything_and(wait: fn() -> std::convert::Infallible) -> ! {
    // SAFETY: closing descriptors that others own breaks them; here no such code runs any more, because `wait` never
    // returns and, as a plain function, has captured none.
    unsafe { libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, 0u32) };
    match wait() {}
}

/// Sends a signal by its number, including real-time signals, which safe wrappers omit.
pub fn send_signal(pid: Pid, signal: i32) -> io::Result<()> {
    // SAFETY: a plain system call without pointers; the kernel rejects an invalid signal number.
    let result = unsafe { libc::kill(pid.as_raw_nonzero().get(), signal) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
