//! The process that holds a sandbox's namespaces.
//!
//! It is a fork of the shim that executes nothing else: no start of a program to wait for, and its memory is the shim's own,
//! shared. It has no root directory, no privileges, and only reaps.

use std::fs;
use std::io;
use std::io::{Read, Write};
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Gid, Pid, Uid, setgroups, setresgid, setresuid, setsid};
use rustix::pipe::{PipeFlags, pipe_with};
use sys::{Forked, fork};

use crate::cgroup::Cgroup;
use crate::protocol::{IdMap, Sandbox};

/// Nobody: the process needs no rights at all.
const NOBODY: u32 = 65535;

/// Starts the process; `dir` is a directory that may be used as a mount point meanwhile.
pub fn start(sandbox: &Sandbox, dir: &Path) -> io::Result<Pid> {
    Cgroup::at(&sandbox.cgroup).create()?;
    let (from_child, to_parent) = pipe_with(PipeFlags::CLOEXEC)?;
    let (from_parent, to_child) = pipe_with(PipeFlags::CLOEXEC)?;
    let child = match fork().map_err(io::Error::other)? {
        Forked::Child => {
            drop((from_child, to_child));
            let mut report = fs::File::from(to_parent);
            let outcome = first(sandbox, dir, &mut report, fs::File::from(from_parent));
            if let Err(error) = outcome {
                // Nobody is left to be told if this fails too.
                let _ = writeln!(report, "{error}");
            }
            std::process::exit(1)
        }
        Forked::Parent(child) => Pid::from_raw(child.as_raw_nonzero().get()),
    };
    drop((to_parent, from_parent));
    let mut answers = fs::File::from(from_child);
    if let Some(users) = &sandbox.users {
        expect_line(&mut answers, "mapped?")?;
        fs::write(format!("/proc/{child}/uid_map"), lines(&users.uids))?;
        fs::write(format!("/proc/{child}/gid_map"), lines(&users.gids))?;
        fs::File::from(to_child).write_all(b"yes\n")?;
    }
    let mut text = String::new();
    answers.read_to_string(&mut text)?;
    waitpid(child, None)?;
    text.trim().parse().map(Pid::from_raw).map_err(|_| io::Error::other(text.trim().to_owned()))
}

/// The first process: enters the namespaces and forks the one that stays.
fn first(sandbox: &Sandbox, dir: &Path, report: &mut fs::File, mut answer: fs::File) -> io::Result<()> {
    setsid()?;
    Cgroup::at(&sandbox.cgroup).join(std::process::id())?;
    if sandbox.users.is_some() {
        unshare(CloneFlags::CLONE_NEWUSER)?;
        report.write_all(b"mapped?\n")?;
        expect_line(&mut answer, "yes")?;
        setresuid(Uid::from_raw(0), Uid::from_raw(0), Uid::from_raw(0))?;
        setresgid(Gid::from_raw(0), Gid::from_raw(0), Gid::from_raw(0))?;
    }
    let mut flags = CloneFlags::CLONE_NEWNS;
    for (wanted, flag) in [
        (sandbox.network, CloneFlags::CLONE_NEWNET),
        (sandbox.ipc, CloneFlags::CLONE_NEWIPC),
        (sandbox.uts, CloneFlags::CLONE_NEWUTS),
        (sandbox.pid, CloneFlags::CLONE_NEWPID),
    ] {
        flags.set(flag, wanted);
    }
    unshare(flags)?;
    if sandbox.network {
        sys::loopback_up()?;
    }
    if sandbox.uts && !sandbox.hostname.is_empty() {
        nix::unistd::sethostname(&sandbox.hostname)?;
    }
    for (name, value) in &sandbox.sysctls {
        set_sysctl(name, value)?;
    }
    match fork().map_err(io::Error::other)? {
        Forked::Parent(pid) => {
            writeln!(report, "{}", pid.as_raw_nonzero())?;
            std::process::exit(0)
        }
        Forked::Child => {
            leave_the_file_system(dir)?;
            stay(sandbox.users.is_some())
        }
    }
}

/// A kernel parameter that belongs to one of the namespaces; the names are checked by whoever asks for them.
fn set_sysctl(name: &str, value: &str) -> io::Result<()> {
    let path = Path::new("/proc/sys").join(name.replace('.', "/"));
    if name.contains("..") || name.contains('/') && name.contains('.') {
        return Err(io::Error::other(format!("sysctl {name:?} is not a name")));
    }
    fs::write(&path, value).map_err(|error| io::Error::new(error.kind(), format!("sysctl {name}: {error}")))
}

/// An empty, read-only root: a container that shares the PID namespace finds nothing behind this process.
fn leave_the_file_system(dir: &Path) -> io::Result<()> {
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("tmpfs"), dir, Some("tmpfs"), flags, Some("size=0,mode=555"))?;
    nix::unistd::chdir(dir)?;
    nix::unistd::pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    Ok(())
}

/// Reaps until told to end. In a user namespace its own namespaces must be visible to that namespace's root, who joins them.
fn stay(visible: bool) -> ! {
    let _ = nix::sys::prctl::set_name(c"pause");
    // Each of these may be refused where it does not matter: the process does nothing but wait.
    let _ = setgroups(&[]);
    let _ = setresgid(Gid::from_raw(NOBODY), Gid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    let _ = setresuid(Uid::from_raw(NOBODY), Uid::from_raw(NOBODY), Uid::from_raw(NOBODY));
    let _ = nix::sys::prctl::set_dumpable(visible);
    sys::close_everything_and(|| {
        let mut signals = SigSet::empty();
        for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT] {
            signals.add(signal);
        }
        let _ = signals.thread_set_mask();
        loop {
            match signals.wait() {
                Ok(Signal::SIGCHLD) => {
                    while matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(status) if status != WaitStatus::StillAlive)
                    {
                    }
                }
                _ => std::process::exit(0),
            }
        }
    })
}

fn expect_line(from: &mut impl Read, expect: &str) -> io::Result<()> {
    let mut line = Vec::new();
    let mut byte = [0];
    while from.read(&mut byte)? == 1 && byte[0] != b'\n' && line.len() < 4096 {
        line.push(byte[0]);
    }
    let line = String::from_utf8_lossy(&line).into_owned();
    if line == expect { Ok(()) } else { Err(io::Error::other(line)) }
}

fn lines(maps: &[IdMap]) -> String {
    maps.iter().map(|map| format!("{} {} {}\n", map.inside, map.outside, map.length)).collect()
}
