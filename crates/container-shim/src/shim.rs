//! The shim process of a sandbox: one thread with one event loop that never blocks.

mod launcher;
mod output;
mod procfs;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Instant;

use cgroups::Cgroup;
use jiff::Timestamp;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::connection::{Connection, Incoming};
use crate::log::Log;
use crate::namespace;
use crate::protocol::{EXIT, Exec, Exit, NETNS, READY, Reply, Request, SOCKET, Sandbox, Start, State};
use launcher::{Io, Report, StartedProcess, Streams, Worker};
use output::Output;

/// A shim failed.
#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    #[error("cannot {what}")]
    Io {
        /// Description of the failed operation.
        what: &'static str,
        #[source]
        source: io::Error,
    },
}

/// Runs a shim in its directory until it is shut down.
pub fn run(dir: &Path) -> Result<(), ShimError> {
    let failed = |what| move |source: io::Error| ShimError::Io { what, source };
    let mut shim = Shim::open(dir).map_err(failed("open the shim's socket"))?;
    io::stdout().write_all(READY).and_then(|()| io::stdout().flush()).map_err(failed("report readiness"))?;
    while !shim.done {
        shim.turn().map_err(failed("wait for events"))?;
    }
    Ok(())
}

struct Shim {
    dir: PathBuf,
    listener: UnixListener,
    signals: SignalFd,
    connections: BTreeMap<u64, Connection>,
    next: u64,
    followers: Vec<u64>,
    pause: Option<Pid>,
    containers: BTreeMap<String, ContainerState>,
    workers: BTreeMap<u64, Job>,
    execs: BTreeMap<i32, u64>,
    /// Exits of processes whose start no worker has reported yet: a process may exit before the report arrives.
    early: BTreeMap<i32, (i32, Timestamp)>,
    /// The connection that requested the shutdown.
    closing: Option<u64>,
    done: bool,
}

/// A container of the shim.
struct ContainerState {
    start: Start,
    pid: Option<Pid>,
    output: Output,
    exited: bool,
}

/// A worker, the connection it works for, and the process it starts.
struct Job {
    worker: Worker,
    connection: u64,
    console: Option<(UnixListener, PathBuf)>,
    goal: Goal,
}

enum Goal {
    Container(String),
    Exec,
}

/// The source of an event.
enum Source {
    Signals,
    Listener,
    Connection(u64),
    Worker(u64),
    Output(String),
}

impl Shim {
    fn open(dir: &Path) -> io::Result<Shim> {
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGCHLD);
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&mask), None)?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        nix::sys::prctl::set_child_subreaper(true)?;
        let _ = nix::sys::prctl::set_name(c"knarr-shim");
        // Socket paths are limited to 108 bytes, so the shim works in its directory.
        std::env::set_current_dir(dir)?;
        let listener = sys::listen_own(Path::new(SOCKET))?;
        listener.set_nonblocking(true)?;
        Ok(Shim {
            dir: dir.to_owned(),
            listener,
            signals,
            connections: BTreeMap::new(),
            next: 0,
            followers: Vec::new(),
            pause: None,
            containers: BTreeMap::new(),
            workers: BTreeMap::new(),
            execs: BTreeMap::new(),
            early: BTreeMap::new(),
            closing: None,
            done: false,
        })
    }

    fn turn(&mut self) -> io::Result<()> {
        for source in self.wait()? {
            match source {
                Source::Signals => {
                    self.reap();
                    self.close();
                }
                Source::Listener => self.accept(),
                Source::Connection(n) => self.read(n),
                Source::Worker(n) => self.report(n),
                Source::Output(id) => {
                    if let Some(container) = self.containers.get_mut(&id) {
                        container.output.pump();
                    }
                }
            }
        }
        Ok(())
    }

    /// Waits for events. The only timeout is that of attached clients that do not read.
    fn wait(&self) -> io::Result<Vec<Source>> {
        let mut sources = vec![Source::Signals, Source::Listener];
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
        for (n, connection) in &self.connections {
            sources.push(Source::Connection(*n));
            fds.push(PollFd::new(connection, PollFlags::IN));
        }
        for (n, job) in &self.workers {
            sources.push(Source::Worker(*n));
            fds.push(PollFd::new(job.worker.report_fd(), PollFlags::IN));
        }
        for (id, container) in &self.containers {
            for fd in container.output.wants() {
                sources.push(Source::Output(id.clone()));
                fds.push(fd);
            }
        }
        let deadline = self.containers.values().filter_map(|container| container.output.deadline()).min();
        let timeout = deadline.map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            Timespec { tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() }
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) => return Ok(sources.into_iter().filter(|one| matches!(one, Source::Output(_))).collect()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let woken: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        Ok(sources.into_iter().zip(woken).filter_map(|(source, woken)| woken.then_some(source)).collect())
    }

    fn accept(&mut self) {
        while let Ok((socket, _)) = self.listener.accept() {
            if let Ok(connection) = Connection::new(socket) {
                self.next += 1;
                self.connections.insert(self.next, connection);
            }
        }
    }

    fn read(&mut self, n: u64) {
        let Some(connection) = self.connections.get_mut(&n) else { return };
        match connection.read() {
            Incoming::Partial => {}
            Incoming::Request(request, fds) => self.handle(n, *request, fds),
            Incoming::Malformed(message) => {
                self.reply(n, &Reply::Failed { message }, None);
                self.connections.remove(&n);
            }
            Incoming::Closed => self.handle_disconnect(n),
        }
    }

    /// Handles a closed connection: kills the process of its exec.
    fn handle_disconnect(&mut self, n: u64) {
        self.connections.remove(&n);
        self.followers.retain(|follower| *follower != n);
        for (pid, _) in self.execs.iter().filter(|(_, connection)| **connection == n) {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
    }

    fn handle(&mut self, n: u64, request: Request, fds: Vec<OwnedFd>) {
        let done = |result: io::Result<()>| match result {
            Ok(()) => Reply::Done,
            Err(error) => Reply::Failed { message: error.to_string() },
        };
        let reply = match request {
            Request::Sandbox(sandbox) => self.sandbox(&sandbox),
            Request::Start(start) => match self.start(n, start) {
                Ok(()) => return,
                Err(error) => Reply::Failed { message: error.to_string() },
            },
            Request::Exec(exec) => match self.exec(n, exec, fds) {
                Ok(()) => return,
                Err(error) => Reply::Failed { message: error.to_string() },
            },
            Request::Attach { id } => return self.attach(n, &id, fds),
            Request::CloseStdin { id } => done(self.container(&id).map(|container| container.output.close_stdin())),
            Request::ReopenLog { id } => done(self.container(&id).and_then(|container| container.output.reopen_log())),
            Request::Signal { id, signal, all } => done(self.signal(&id, signal, all)),
            Request::Follow => {
                self.followers.push(n);
                Reply::State(self.state())
            }
            Request::Remove { id } => {
                self.containers.remove(&id);
                Reply::Done
            }
            Request::Shutdown => return self.shutdown(n),
        };
        self.reply(n, &reply, None);
    }

    fn state(&self) -> State {
        let running = self.containers.iter().filter(|(_, container)| !container.exited);
        let running = running.filter_map(|(id, container)| Some((id.clone(), container.pid?.as_raw()))).collect();
        State { pause: self.pause.map(Pid::as_raw), running }
    }

    fn sandbox(&mut self, sandbox: &Sandbox) -> Reply {
        let started = namespace::start(sandbox, &self.dir).and_then(|pid| {
            // A mount also holds the network namespace, so that it can be detached in order even if the process is
            // killed.
            if sandbox.network {
                fs::write(NETNS, "")?;
                let none: Option<&str> = None;
                mount(Some(format!("/proc/{pid}/ns/net").as_str()), NETNS, none, MsFlags::MS_BIND, none)?;
            }
            Ok(pid)
        });
        match started {
            Ok(pid) => {
                self.pause = Some(pid);
                Reply::Started { pid: pid.as_raw(), at_nanos: nanos(Timestamp::now()), warnings: Vec::new() }
            }
            Err(error) => Reply::Failed { message: format!("cannot start the sandbox: {error}") },
        }
    }

    fn start(&mut self, n: u64, start: Start) -> io::Result<()> {
        if self.containers.contains_key(&start.id) {
            return Err(io::Error::other(format!("container {} was started before", start.id)));
        }
        let log = start.log.as_deref().map(Log::open).transpose()?;
        let (output, worker, console) = if start.terminal {
            let (listener, path) = console_socket(self.next)?;
            let worker = Worker::start(&start, Io::Terminal(&self.dir.join(&path)))?;
            (Output::terminal(log), worker, Some((listener, path)))
        } else {
            let (out, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
            let (err, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
            let (stdin, input) = if start.stdin {
                let (stdin, input) = pipe_with(PipeFlags::CLOEXEC)?;
                (stdin, Some(input))
            } else {
                (OwnedFd::from(fs::File::open("/dev/null")?), None)
            };
            let worker = Worker::start(&start, Io::Streams(Streams { stdin, stdout, stderr }))?;
            (Output::pipes(out, err, input, log), worker, None)
        };
        let id = start.id.clone();
        self.containers.insert(id.clone(), ContainerState { start, pid: None, output, exited: false });
        self.work(Job { worker, connection: n, console, goal: Goal::Container(id) });
        Ok(())
    }

    fn exec(&mut self, n: u64, exec: Exec, fds: Vec<OwnedFd>) -> io::Result<()> {
        let next = self.next;
        let dir = self.dir.clone();
        let container = self.container(&exec.id)?;
        if container.exited || container.pid.is_none() {
            return Err(io::Error::other(format!("container {} is not running", exec.id)));
        }
        let process = serde_json::from_value(exec.process)?;
        let (worker, console) = if exec.terminal {
            let (listener, path) = console_socket(next)?;
            let worker = Worker::exec(&container.start, &process, Io::Terminal(&dir.join(&path)))?;
            (worker, Some((listener, path)))
        } else {
            let [stdin, stdout, stderr] =
                <[OwnedFd; 3]>::try_from(fds).map_err(|_| io::Error::other("an exec needs three descriptors"))?;
            (Worker::exec(&container.start, &process, Io::Streams(Streams { stdin, stdout, stderr }))?, None)
        };
        self.work(Job { worker, connection: n, console, goal: Goal::Exec });
        Ok(())
    }

    fn work(&mut self, job: Job) {
        self.next += 1;
        self.workers.insert(self.next, job);
    }

    /// Handles the report of a worker: its process started, or failed to start.
    fn report(&mut self, n: u64) {
        let Some(report) = self.workers.get_mut(&n).and_then(|job| job.worker.poll()) else { return };
        let job = self.workers.remove(&n).expect("the worker was found above");
        let master = job.console.and_then(|(listener, path)| {
            let master = terminal(&listener);
            let _ = fs::remove_file(path);
            master
        });
        match (report, job.goal) {
            (Report::Failed { error }, goal) => {
                if let Goal::Container(id) = goal {
                    self.containers.remove(&id);
                }
                self.reply(job.connection, &Reply::Failed { message: error }, None);
            }
            (Report::Started(StartedProcess { pid, at_nanos, warnings }), goal) => {
                let reply = Reply::Started { pid, at_nanos, warnings };
                self.reply(job.connection, &reply, master.as_ref().map(AsFd::as_fd));
                match goal {
                    Goal::Container(id) => self.started(&id, pid, master),
                    Goal::Exec => {
                        self.execs.insert(pid, job.connection);
                        if !self.connections.contains_key(&job.connection) {
                            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
                        }
                    }
                }
                if let Some((code, at)) = self.early.remove(&pid) {
                    self.handle_exit(pid, code, at);
                }
            }
        }
        if self.workers.is_empty() {
            self.early.clear();
        }
    }

    fn started(&mut self, id: &str, pid: i32, master: Option<OwnedFd>) {
        let Some(container) = self.containers.get_mut(id) else { return };
        container.pid = Some(Pid::from_raw(pid));
        if let Some(master) = master {
            let input = if container.start.stdin { master.try_clone().ok() } else { None };
            container.output.set_terminal(master, input);
        }
    }

    fn attach(&mut self, n: u64, id: &str, fds: Vec<OwnedFd>) {
        let mut fds = fds.into_iter();
        let (Some(container), Some(stdout)) = (self.containers.get_mut(id), fds.next()) else {
            return self.reply(n, &Reply::Failed { message: format!("container {id} is not running") }, None);
        };
        if container.output.is_finished() {
            return self.reply(n, &Reply::Failed { message: format!("container {id} has exited") }, None);
        }
        let stderr = fds.next();
        for fd in [Some(&stdout), stderr.as_ref()].into_iter().flatten() {
            let _ = rustix::io::ioctl_fionbio(fd, true);
        }
        container.output.attach(stdout, stderr);
        if let Some(connection) = self.connections.get(&n) {
            let _ = connection.reply(&Reply::Done, container.output.stdin());
        }
    }

    fn signal(&mut self, id: &str, signal: i32, all: bool) -> io::Result<()> {
        let container = self.container(id)?;
        if all {
            for pid in Cgroup::at(&container.start.cgroup).pids() {
                // The process may have exited already.
                let _ = send(pid, signal);
            }
        }
        match container.pid {
            Some(pid) if !container.exited => match send(pid.as_raw(), signal) {
                Err(error) if error.raw_os_error() == Some(Errno::ESRCH as i32) => Ok(()),
                done => done,
            },
            _ => Ok(()),
        }
    }

    fn reap(&mut self) {
        while let Ok(Some(_)) = self.signals.read_signal() {}
        let now = Timestamp::now();
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => self.handle_exit(pid.as_raw(), code, now),
                Ok(WaitStatus::Signaled(pid, signal, _)) => self.handle_exit(pid.as_raw(), 128 + signal as i32, now),
                Ok(WaitStatus::StillAlive) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    fn handle_exit(&mut self, pid: i32, code: i32, at: Timestamp) {
        if self.pause.map(Pid::as_raw) == Some(pid) {
            self.pause = None;
            return self.notify_followers(&Reply::SandboxExited);
        }
        if let Some(connection) = self.execs.remove(&pid) {
            self.reply(connection, &Reply::ExecExited { code }, None);
            return;
        }
        let own = self
            .containers
            .iter_mut()
            .find(|(_, container)| container.pid.map(Pid::as_raw) == Some(pid) && !container.exited);
        let Some((id, container)) = own else {
            if !self.workers.is_empty() && !self.workers.values().any(|job| job.worker.pid.as_raw() == pid) {
                self.early.insert(pid, (code, at));
            }
            return;
        };
        container.exited = true;
        let cgroup = Cgroup::at(&container.start.cgroup);
        let exit = Exit { code, at_nanos: nanos(at), oom: cgroup.oom_kills() > 0 };
        if container.start.shared_pids {
            cgroup.kill();
        }
        // Output written before the exit is in the log before the exit is reported.
        container.output.pump();
        let id = id.clone();
        if let Err(error) = write_exit(&container.start.dir, &exit) {
            eprintln!("cannot write the exit of {id}: {error}");
        }
        self.notify_followers(&Reply::Exited { id, exit });
    }

    /// Kills all processes. The reply is sent after they have exited, since only then their cgroups and namespaces are
    /// free.
    fn shutdown(&mut self, n: u64) {
        for container in self.containers.values().filter(|container| !container.exited) {
            Cgroup::at(&container.start.cgroup).kill();
        }
        if let Some(pid) = self.pause {
            let _ = kill(pid, Signal::SIGKILL);
        }
        self.closing = Some(n);
        self.close();
    }

    fn close(&mut self) {
        let over = self.pause.is_none()
            && self.containers.values().all(|container| container.exited || container.pid.is_none());
        if let Some(n) = self.closing.filter(|_| over) {
            self.reply(n, &Reply::Done, None);
            self.done = true;
        }
    }

    fn container(&mut self, id: &str) -> io::Result<&mut ContainerState> {
        self.containers
            .get_mut(id)
            .ok_or_else(|| io::Error::other(format!("container {id} does not belong to this shim")))
    }

    fn notify_followers(&mut self, event: &Reply) {
        for n in self.followers.clone() {
            self.reply(n, event, None);
        }
    }

    fn reply(&mut self, n: u64, reply: &Reply, fd: Option<BorrowedFd<'_>>) {
        if let Some(connection) = self.connections.get(&n)
            && connection.reply(reply, fd).is_err()
        {
            self.handle_disconnect(n);
        }
    }
}

fn send(pid: i32, signal: i32) -> io::Result<()> {
    rustix::process::Pid::from_raw(pid).map_or(Ok(()), |pid| sys::send_signal(pid, signal))
}

fn nanos(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX)
}

fn console_socket(n: u64) -> io::Result<(UnixListener, PathBuf)> {
    let path = PathBuf::from(format!("console-{n}.sock"));
    let _ = fs::remove_file(&path);
    let listener = UnixListener::bind(&path)?;
    listener.set_nonblocking(true)?;
    Ok((listener, path))
}

/// Receives the terminal, which was sent before the process ran: it is available now or never.
fn terminal(listener: &UnixListener) -> Option<OwnedFd> {
    let (socket, _) = listener.accept().ok()?;
    let mut fds = Vec::new();
    crate::connection::receive(&socket, &mut [0; 4096], &mut fds).ok()?;
    fds.into_iter().next()
}

/// Replaces the exit file atomically and syncs it before the exit is reported.
fn write_exit(dir: &Path, exit: &Exit) -> io::Result<()> {
    sys::replace_file(&dir.join(EXIT), &serde_json::to_vec(exit)?, 0o600)
}
