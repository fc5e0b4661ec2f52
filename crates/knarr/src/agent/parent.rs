//! The parent process of an agent: the agent exits when its parent exits.
//!
//! A pidfd refers to the process. `PR_SET_PDEATHSIG` is not sufficient: the kernel sends that signal when the *thread*
//! that started the agent exits, and tokio terminates idle threads.

use std::os::fd::OwnedFd;
use std::thread;

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};

/// A running process that started this one.
pub(super) struct Parent(OwnedFd);

impl Parent {
    /// Fails if `id` is not the ID of the process that started this one, or if that process has exited.
    pub(super) fn open(id: i32) -> Result<Self> {
        let id = Pid::from_raw(id).context("the parent process has no ID")?;
        let process = pidfd_open(id, PidfdFlags::empty()).context("the parent process has exited")?;
        // Another process may have the ID by now.
        ensure!(getppid() == Some(id), "the parent process has exited");
        Ok(Self(process))
    }

    /// Calls `then` when the process has exited.
    pub(super) fn on_exit(self, then: impl FnOnce() + Send + 'static) -> Result<()> {
        let wait = move || {
            wait(&self.0);
            then();
        };
        thread::Builder::new().name("parent".to_owned()).spawn(wait).context("failed to start a thread")?;
        Ok(())
    }
}

fn wait(process: &OwnedFd) {
    while let Err(Errno::INTR) = poll(&mut [PollFd::new(process, PollFlags::IN)], None) {}
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_the_parent_process_can_be_followed() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(Parent::open(own).is_err(), "a process is not its own parent");
        assert!(Parent::open(0).is_err());
        let parent = getppid().unwrap().as_raw_pid();
        assert!(Parent::open(parent).is_ok());
    }

    #[test]
    fn exit_of_the_process_is_reported_and_exit_of_the_thread_that_started_it_is_not() {
        let mut child = thread::spawn(|| Command::new("sleep").arg("100").spawn().unwrap()).join().unwrap();
        let id = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        let (exited, reports) = mpsc::channel();
        Parent(pidfd_open(id, PidfdFlags::empty()).unwrap()).on_exit(move || exited.send(()).unwrap()).unwrap();
        assert_eq!(reports.try_recv(), Err(mpsc::TryRecvError::Empty));
        assert_eq!(child.try_wait().unwrap(), None);
        child.kill().unwrap();
        child.wait().unwrap();
        reports.recv_timeout(Duration::from_secs(30)).unwrap();
    }
}
