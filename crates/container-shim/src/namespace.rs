//! The pause process, which holds a sandbox's namespaces.
//!
//! The process is a fork of the shim without `execve`: it starts immediately and shares the shim's memory. It has an
//! empty root directory and no privileges, and only reaps children.

use std::fs;
use std::io;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use cgroups::Cgroup;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Gid, Pid, Uid, setgroups, setresgid, setresuid, setsid};
use rustix::pipe::{PipeFlags, pipe_with};
use sys::{ForkResult, fork};

use crate::protocol::{IdMap, Sandbox};

/// UID and GID of the process, which needs no permissions.
const NOBODY: u32 = 65535;

/// Starts the process. It uses `dir` as a mount point until it has changed its root directory.
pub(crate) fn start(sandbox: &Sandbox, dir: &Path) -> io::Result<Pid> {
    let (from_child, to_parent) = pipe_with(PipeFlags::CLOEXEC)?;
    let (from_parent, to_child) = pipe_with(PipeFlags::CLOEXEC)?;
    let child = match fork().map_err(io::Error::other)? {
        ForkResult::Child => {
            drop((from_child, to_child));
            let mut report = fs::File::from(to_parent);
            let outcome = first(sandbox, dir, &mut report, fs::File::from(from_parent));
            if let Err(error) = outcome {
                // If this fails too, the error cannot be reported.
                let _ = writeln!(report, "{error}");
            }
            std::process::exit(1)
        }
        ForkResult::Parent(child) => Pid::from_raw(child.as_raw_nonzero().get()),
    };
    drop((to_parent, from_parent));
    let mut child_output = fs::File::from(from_child);
    if let Some(users) = &sandbox.users {
        expect_line(&mut child_output, "mapped?")?;
        fs::write(format!("/proc/{child}/uid_map"), lines(&users.uids))?;
        fs::write(format!("/proc/{child}/gid_map"), lines(&users.gids))?;
        fs::File::from(to_child).write_all(b"yes\n")?;
    }
    let mut text = String::new();
    child_output.read_to_string(&mut text)?;
    waitpid(child, None)?;
    text.trim().parse().map(Pid::from_raw).map_err(|_| io::Error::other(text.trim().to_owned()))
}

/// Runs in the first child: enters the namespaces and forks the process that stays.
fn first(sandbox: &Sandbox, dir: &Path, report: &mut fs::File, mut reply: fs::File) -> io::Result<()> {
    setsid()?;
    Cgroup::at(&sandbox.cgroup).create_with(std::process::id())?;
    if sandbox.users.is_some() {
        unshare(CloneFlags::CLONE_NEWUSER)?;
        report.write_all(b"mapped?\n")?;
        expect_line(&mut reply, "yes")?;
        setresuid(Uid::from_raw(0), Uid::from_raw(0), Uid::from_raw(0))?;
        setresgid(Gid::from_raw(0), Gid::from_raw(0), Gid::from_raw(0))?;
    }
    let mut flags = CloneFlags::CLONE_NEWNS;
    for (enabled, flag) in [
        (sandbox.network, CloneFlags::CLONE_NEWNET),
        (sandbox.ipc, CloneFlags::CLONE_NEWIPC),
        (sandbox.uts, CloneFlags::CLONE_NEWUTS),
        (sandbox.pid, CloneFlags::CLONE_NEWPID),
    ] {
        flags.set(flag, enabled);
    }
    unshare(flags)?;
    if sandbox.network {
        sys::loopback_up()?;
    }
    if sandbox.uts && !sandbox.hostname.is_empty() {
        nix::unistd::sethostname(&sandbox.hostname)?;
    }
    for (name, value) in &sandbox.sysctls {
        set_sysctl(sandbox, name, value)?;
    }
    match fork().map_err(io::Error::other)? {
        ForkResult::Parent(pid) => {
            writeln!(report, "{}", pid.as_raw_nonzero())?;
            std::process::exit(0)
        }
        ForkResult::Child => {
            leave_the_file_system(dir)?;
            stay(sandbox.users.is_some())
        }
    }
}

/// Sets a sysctl of one of the sandbox's own namespaces.
fn set_sysctl(sandbox: &Sandbox, name: &str, value: &str) -> io::Result<()> {
    let path = sysctl_path(sandbox, name).map_err(io::Error::other)?;
    fs::write(&path, value).map_err(|error| io::Error::new(error.kind(), format!("sysctl {name}: {error}")))
}

/// Returns the file of a sysctl. Fails if the sysctl belongs to the host or to a namespace that the sandbox shares with
/// it.
///
/// As in sysctl(8), the first separator determines the notation of a name. With dots as separators, a slash stands for
/// a dot within a part.
fn sysctl_path(sandbox: &Sandbox, name: &str) -> Result<PathBuf, String> {
    let parts: Vec<String> = match name.find(['.', '/']).map(|at| name.as_bytes()[at]) {
        Some(b'.') => name.split('.').map(|part| part.replace('/', ".")).collect(),
        _ => name.split('/').map(str::to_owned).collect(),
    };
    if parts.iter().any(|part| part.is_empty() || part == "." || part == "..") {
        return Err(format!("sysctl {name:?} is not a valid name"));
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (namespace, is_own) = match parts.as_slice() {
        ["net", _, ..] => ("network", sandbox.network),
        ["fs", "mqueue", _] | ["kernel", "sem"] => ("IPC", sandbox.ipc),
        ["kernel", name] if name.starts_with("shm") || name.starts_with("msg") => ("IPC", sandbox.ipc),
        _ => return Err(format!("sysctl {name:?} is not namespaced: it would change the host")),
    };
    if !is_own {
        return Err(format!("sysctl {name:?} needs a {namespace} namespace of the pod's own"));
    }
    Ok(Path::new("/proc/sys").join(parts.join("/")))
}

/// Changes to an empty, read-only root, so that a container that shares the PID namespace finds no files through this
/// process.
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

/// Reaps children until SIGTERM or SIGINT. `visible` allows other processes of the user namespace to open the
/// namespaces of this process, which containers join.
fn stay(visible: bool) -> ! {
    let _ = nix::sys::prctl::set_name(c"pause");
    // Failures are harmless, since the process only waits.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// CVE-2022-0811: a sysctl of a pod could set `core_pattern`, which runs a program as root on the host.
    #[test]
    fn cve_2022_0811_only_sysctls_of_the_sandboxs_own_namespaces_are_set() {
        let own = Sandbox { network: true, ipc: true, ..Sandbox::default() };
        let check = |sandbox: &Sandbox, name: &str, expect: Option<&str>| {
            let path = sysctl_path(sandbox, name);
            assert_eq!(path.clone().ok().as_deref(), expect.map(Path::new), "{name}: {path:?}");
        };
        check(&own, "net.ipv4.ip_unprivileged_port_start", Some("/proc/sys/net/ipv4/ip_unprivileged_port_start"));
        check(&own, "net/ipv4/conf/eth0.100/forwarding", Some("/proc/sys/net/ipv4/conf/eth0.100/forwarding"));
        check(&own, "net.ipv4.conf.eth0/100.forwarding", Some("/proc/sys/net/ipv4/conf/eth0.100/forwarding"));
        check(&own, "kernel.shm_rmid_forced", Some("/proc/sys/kernel/shm_rmid_forced"));
        check(&own, "kernel.msgmax", Some("/proc/sys/kernel/msgmax"));
        check(&own, "kernel.sem", Some("/proc/sys/kernel/sem"));
        check(&own, "fs.mqueue.msg_max", Some("/proc/sys/fs/mqueue/msg_max"));
        for hostile in [
            "kernel.core_pattern",
            "kernel.modprobe",
            "vm.overcommit_memory",
            "fs.file-max",
            "kernel.shm_rmid_forced.x",
            "net",
            "",
            "/etc/passwd",
            "net/../kernel/core_pattern",
            "net/./x",
            "net..x",
            "net./..x",
            "kernel.shm/../core_pattern",
            "kernel.shm_rmid_forced+kernel.core_pattern",
        ] {
            check(&own, hostile, None);
        }
        let shared = Sandbox::default();
        check(&shared, "net.ipv4.ip_forward", None);
        check(&shared, "kernel.msgmax", None);
    }
}
