//! The limit of open files.

use std::io;
use std::sync::OnceLock;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};

/// The limit that this process was started with, if it was raised.
static INHERITED: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit of open files to the hard limit. Most shells set a soft limit of 1024, which the clients of one
/// server could use up for all components of the process.
pub fn raise_open_files() -> io::Result<()> {
    let limit = *INHERITED.get_or_init(|| getrlimit(Resource::Nofile));
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?)
}

/// Gives a child process the limit that this process was started with: programs in containers may not expect a higher one.
pub fn restore_open_files(child: u32) -> io::Result<()> {
    let Some(inherited) = INHERITED.get() else { return Ok(()) };
    let child = i32::try_from(child).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    prlimit(Some(child), Resource::Nofile, *inherited)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn limit_is_raised_to_the_hard_limit_and_restored_for_a_child() {
        let hard = getrlimit(Resource::Nofile).maximum;
        let started = Rlimit { current: Some(256), maximum: hard };
        setrlimit(Resource::Nofile, started).unwrap();
        raise_open_files().unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current, hard);
        // It reads a pipe that stays open until the end of the test.
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let of_child = |child: u32| {
            let text = std::fs::read_to_string(format!("/proc/{child}/limits")).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
            line.split_whitespace().next().unwrap().to_owned()
        };
        assert_ne!(of_child(child.id()), "256", "a child inherits the raised limit");
        restore_open_files(child.id()).unwrap();
        assert_eq!(of_child(child.id()), "256");
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
