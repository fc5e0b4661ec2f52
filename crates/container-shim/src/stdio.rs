//! Ownership of standard streams.
//!
//! A process that is not root opens `/dev/stdout` and `/dev/stderr` by name, and the kernel checks the owner of the
//! pipe or terminal.
//!
//! The worker creates the pipes and changes their owner before the process exists. A terminal is opened in the
//! container, by a process that has already dropped the privilege to change owners. That process sends the terminal to
//! a fork of the worker and waits. The worker itself cannot receive it, because the OCI runtime library returns only
//! when the container's process runs.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Uid, fchown, fstat};
use rustix::io::Errno;
use sys::{ForkResult, fork};

use crate::connection::{receive, send};

/// Timeout for a process to offer its terminal.
const OFFER_TIMEOUT: Duration = Duration::from_secs(30);
/// Major numbers of pseudo-terminals (`UNIX98_PTY_SLAVE_MAJOR` and the seven after it).
const PSEUDO_TERMINALS: std::ops::RangeInclusive<u32> = 136..=143;

/// The process's side of the terminal handover.
#[derive(Debug)]
pub(crate) struct TerminalOffer(UnixStream);

/// Forks a process that receives a terminal, changes its owner to `uid`, a user of the host, and exits.
pub(crate) fn serve_terminal(uid: Option<u32>) -> io::Result<TerminalOffer> {
    let (offer, socket) = UnixStream::pair()?;
    match fork().map_err(io::Error::other)? {
        ForkResult::Parent(_) => Ok(TerminalOffer(offer)),
        ForkResult::Child => {
            // With this end closed, the fork notices a process that exits before its offer.
            drop(offer);
            let outcome = take_offer(&socket, uid);
            std::process::exit(i32::from(outcome.is_err()))
        }
    }
}

impl TerminalOffer {
    /// Offers standard input, and returns when the terminal has its owner.
    pub(crate) fn make(&self) -> io::Result<()> {
        send(&self.0, b"t", &[rustix::stdio::stdin()])?;
        (&self.0).read_exact(&mut [0])
    }
}

fn take_offer(mut socket: &UnixStream, uid: Option<u32>) -> io::Result<()> {
    let timeout = Timespec::try_from(OFFER_TIMEOUT).map_err(io::Error::other)?;
    loop {
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut fds = Vec::new();
    // A process that exited before its offer reports the reason itself.
    if receive(socket, &mut [0], &mut fds)? == 0 {
        return Ok(());
    }
    if let (Some(terminal), Some(uid)) = (fds.first(), uid) {
        set_owner(terminal, uid)?;
    }
    socket.write_all(b"t")
}

/// Changes the owner of a pipe or pseudo-terminal to `uid`, a user of the host. Anything else, such as `/dev/null`,
/// keeps its owner.
///
/// If the kernel rejects the change, the stream stays usable by its descriptor, so that is not an error.
pub(crate) fn set_owner(stream: impl AsFd, uid: u32) -> io::Result<()> {
    let stat = fstat(&stream)?;
    let is_pipe_or_pty = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo => true,
        FileType::CharacterDevice => PSEUDO_TERMINALS.contains(&rustix::fs::major(stat.st_rdev)),
        _ => false,
    };
    if !is_pipe_or_pty || stat.st_uid == uid {
        return Ok(());
    }
    match fchown(stream, Some(Uid::from_raw(uid)), None) {
        Ok(()) | Err(Errno::INVAL | Errno::PERM | Errno::ROFS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Maps a container's user to the host with the user namespace `users`. `None` if the namespace does not map the user.
pub(crate) fn host_uid(uid: u32, users: Option<&Path>) -> io::Result<Option<u32>> {
    let Some(users) = users else { return Ok(Some(uid)) };
    // `users` is `/proc/<pid>/ns/user`; the mappings are in `/proc/<pid>/uid_map`.
    let process = users.parent().and_then(Path::parent).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(mapped(uid, &fs::read_to_string(process.join("uid_map"))?))
}

fn mapped(uid: u32, map: &str) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut numbers = line.split_whitespace().map_while(|word| word.parse::<u32>().ok());
        let (inside, outside, length) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let offset = uid.checked_sub(inside).filter(|offset| *offset < length)?;
        outside.checked_add(offset)
    })
}

/// Changes the owner of a process's standard streams, whose descriptors the worker still has.
pub(crate) fn set_owners(streams: [&OwnedFd; 3], uid: Option<u32>) -> io::Result<()> {
    let Some(uid) = uid else { return Ok(()) };
    streams.into_iter().try_for_each(|stream| set_owner(stream, uid))
}

#[cfg(test)]
mod tests {
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    #[test]
    fn container_user_is_mapped_to_the_host() {
        let check = |uid: u32, expect: Option<u32>| {
            assert_eq!(
                mapped(uid, "         0     200000      65536\n    100000       7          1\n"),
                expect,
                "{uid}"
            );
        };
        check(0, Some(200_000));
        check(33, Some(200_033));
        check(65_535, Some(265_535));
        check(65_536, None);
        check(100_000, Some(7));
        check(100_001, None);
        assert_eq!(host_uid(33, None).unwrap(), Some(33));
    }

    #[test]
    fn only_pipes_and_terminals_change_their_owner() {
        let own = rustix::process::geteuid().as_raw();
        let (_, to) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        set_owner(&to, own + 1).unwrap();
        let expect = if own == 0 { 1 } else { own };
        assert_eq!(fstat(&to).unwrap().st_uid, expect);
        let null = fs::File::open("/dev/null").unwrap();
        let before = fstat(&null).unwrap().st_uid;
        set_owner(&null, before + 1).unwrap();
        assert_eq!(fstat(&null).unwrap().st_uid, before);
    }
}
