//! Worker: a forked process that calls the OCI runtime, so that the shim neither blocks nor crashes.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;

use cgroups::Cgroup;
use jiff::Timestamp;
use libcontainer::container::builder::ContainerBuilder;
use libcontainer::syscall::syscall::SyscallType;
use nix::sys::signal::SigSet;
use nix::unistd::Pid;
use oci_spec::runtime::{
    Capability, LinuxCapabilities, LinuxNamespaceType, LinuxSeccomp, PosixRlimitBuilder, Process, Spec,
};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::{Deserialize, Serialize};
use sys::{ForkResult, fork};

use super::procfs;
use crate::exec_namespaces::Entering;
use crate::executor::Payload;
use crate::protocol::Start;
use crate::stdio;
use crate::{devices, private, seccomp};

/// Standard streams of the started process.
pub(super) struct Streams {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// The I/O of the started process.
pub(super) enum Io<'a> {
    Streams(Streams),
    /// A terminal, which is sent to this socket.
    Terminal(&'a Path),
}

/// A report of a worker, sent as a line of JSON. The reports end when the process runs and `execve` closes the pipe.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Report {
    Started(StartedProcess),
    Failed { error: String },
}

/// A started process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StartedProcess {
    pub pid: i32,
    /// Taken before the process runs, since it may exit before its start is reported.
    pub at_nanos: i64,
    pub warnings: Vec<String>,
}

/// A running worker.
pub(super) struct Worker {
    pub pid: Pid,
    report: File,
    received: Vec<u8>,
}

type WorkError = Box<dyn std::error::Error>;

impl Worker {
    /// Starts a container.
    pub(super) fn start(start: &Start, io: Io<'_>) -> io::Result<Worker> {
        spawn(&start.dir, |report| match &start.runtime {
            None => create(start, io, report),
            Some(runtime) => create_by(runtime, start, io),
        })
    }

    /// Runs a process in a container.
    pub(super) fn exec(start: &Start, process: &Process, io: Io<'_>) -> io::Result<Worker> {
        spawn(&start.dir, |report| match &start.runtime {
            None => enter(start, process, io, report),
            Some(runtime) => enter_by(runtime, start, process, io),
        })
    }

    pub(super) fn report_fd(&self) -> &File {
        &self.report
    }

    /// Reads available reports; returns the outcome once it is known.
    pub(super) fn poll(&mut self) -> Option<Report> {
        let mut buffer = [0; 4096];
        loop {
            match self.report.read(&mut buffer) {
                Ok(0) => return Some(self.outcome()),
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Some(Report::Failed { error: error.to_string() }),
            }
        }
    }

    /// Returns the outcome; a failure takes precedence, even after the start.
    fn outcome(&self) -> Report {
        let text = String::from_utf8_lossy(&self.received);
        let reports: Vec<Report> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let is_failure = |report: &Report| matches!(report, Report::Failed { .. });
        let at = reports.iter().position(is_failure).or_else(|| reports.len().checked_sub(1));
        let nothing = || Report::Failed { error: "the OCI runtime exited without a message".to_owned() };
        at.and_then(|at| reports.into_iter().nth(at)).unwrap_or_else(nothing)
    }
}

fn spawn(dir: &Path, work: impl FnOnce(&Rc<RefCell<File>>) -> Result<StartedProcess, WorkError>) -> io::Result<Worker> {
    let (from, to) = pipe_with(PipeFlags::CLOEXEC)?;
    match fork().map_err(io::Error::other)? {
        ForkResult::Parent(pid) => {
            rustix::io::ioctl_fionbio(&from, true)?;
            let pid = Pid::from_raw(pid.as_raw_nonzero().get());
            Ok(Worker { pid, report: File::from(from), received: Vec::new() })
        }
        ForkResult::Child => {
            drop(from);
            // The shim blocks signals and reads them from a descriptor; other programs expect to receive them.
            let _ = SigSet::empty().thread_set_mask();
            let report = Rc::new(RefCell::new(File::from(to)));
            let complaints = listen(dir);
            let outcome = match catch_unwind(AssertUnwindSafe(|| work(&report))) {
                Ok(Ok(started)) => Report::Started(started),
                Ok(Err(error)) => Report::Failed { error: with_complaint(chain(error.as_ref()), &complaints) },
                Err(_) => Report::Failed { error: "the OCI runtime panicked".to_owned() },
            };
            let _ = fs::remove_file(&complaints);
            let line = serde_json::to_string(&outcome).expect("a report is JSON");
            let _ = writeln!(report.borrow_mut(), "{line}");
            std::process::exit(0)
        }
    }
}

/// Redirects the library's log to a file: the library returns only the outermost error of the container's process and
/// logs the rest.
fn listen(dir: &Path) -> PathBuf {
    let path = dir.join(format!("complaints-{}", std::process::id()));
    if let Ok(file) = private::create(&path) {
        let subscriber = tracing_subscriber::fmt()
            .with_writer(std::sync::Mutex::new(file))
            .with_max_level(tracing::Level::ERROR)
            .with_ansi(false)
            .without_time()
            .with_level(false)
            .with_target(false)
            .finish();
        // No other subscriber was set in this process.
        let _ = tracing::subscriber::set_global_default(subscriber);
    }
    path
}

/// Adds the first logged error, which is nearest to the cause.
fn with_complaint(error: String, complaints: &Path) -> String {
    let text = fs::read_to_string(complaints).unwrap_or_default();
    let _ = fs::remove_file(complaints);
    with_cause(error, text.lines().next().unwrap_or_default().trim())
}

/// Adds a cause to an error, unless the error contains the cause, with or without its prefix.
fn with_cause(error: String, cause: &str) -> String {
    let inner = cause.split_once(": ").map_or(cause, |(_, inner)| inner);
    if cause.is_empty() || error.contains(cause) || error.contains(inner) { error } else { format!("{error}: {cause}") }
}

/// Formats an error and its causes in one line, without repetitions.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let message = next.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = next.source();
    }
    text
}

fn create(start: &Start, io: Io<'_>, report: &Rc<RefCell<File>>) -> Result<StartedProcess, WorkError> {
    let bundle = start.dir.join("bundle");
    let mut spec = Spec::load(bundle.join("config.json"))?;
    let mut warnings = Vec::new();
    let filter = spec.linux().as_ref().and_then(|linux| linux.seccomp().clone());
    let payload = adapt(spec.process_mut().as_mut().ok_or("no process")?, filter.as_ref(), report, &mut warnings)?;
    if let Some(linux) = spec.linux_mut() {
        linux.set_seccomp(None);
    }
    if let Some(root) = spec.root_mut()
        && root.path().is_relative()
    {
        let path = bundle.join(root.path());
        root.set_path(path);
    }
    restrict_devices(start, &spec)?;
    // The library reads the bundle again for every exec, so it gets a bundle without the parts that this worker
    // handles.
    let inner = start.dir.join("inner");
    private::create_dir(&inner)?;
    private::write(&inner.join("config.json"), &serde_json::to_vec(&spec)?)?;
    let owner = stream_owner(&spec, spec.process().as_ref().ok_or("no process")?)?;
    let builder = builder(start, io, payload, owner)?;
    let mut container = builder.as_init(inner).with_systemd(false).with_detach(true).build()?;
    let pid = container.pid().ok_or("the container has no process")?.as_raw();
    if let Err(error) = procfs::check(pid, &spec) {
        Cgroup::at(&start.cgroup).kill();
        return Err(error.into());
    }
    let at_nanos = super::nanos(Timestamp::now());
    container.start()?;
    Ok(StartedProcess { pid, at_nanos, warnings })
}

fn restrict_devices(start: &Start, spec: &Spec) -> Result<(), WorkError> {
    let resources = spec.linux().as_ref().and_then(|linux| linux.resources().as_ref());
    let rules = resources.and_then(|resources| resources.devices().as_deref()).unwrap_or_default();
    Ok(devices::restrict(&Cgroup::at(&start.cgroup), rules)?)
}

fn enter(
    start: &Start,
    requested: &Process,
    io: Io<'_>,
    report: &Rc<RefCell<File>>,
) -> Result<StartedProcess, WorkError> {
    let spec = Spec::load(start.dir.join("bundle/config.json"))?;
    let filter = spec.linux().as_ref().and_then(|linux| linux.seccomp().clone());
    let mut process = requested.clone();
    let mut warnings = Vec::new();
    let mut payload = adapt(&mut process, filter.as_ref(), report, &mut warnings)?;
    if let Some(users) = user_namespace(&spec) {
        // Overrides the adaptations above: user and capabilities are set inside the user namespace.
        let mut adjusted = requested.clone();
        let entering = Entering::take(&mut adjusted, users)?;
        let loads = !payload.filters.is_empty() && entering.loads_by_privilege();
        payload.drop_admin = loads && !entering.administrates();
        payload.entering = Some(Rc::new(entering));
        process.set_user(adjusted.user().clone());
        process.set_capabilities(adjusted.capabilities().clone());
        process.set_no_new_privileges(Some(false));
    }
    let file = start.dir.join(format!("exec-{}.json", std::process::id()));
    private::write(&file, &serde_json::to_vec(&process)?)?;
    let at_nanos = super::nanos(Timestamp::now());
    let owner = stream_owner(&spec, requested)?;
    let builder = builder(start, io, payload, owner)?;
    let built = builder
        .as_tenant()
        .with_detach(true)
        .with_process(Some(&file))
        .with_no_new_privs(process.no_new_privileges().unwrap_or(false))
        .build();
    fs::remove_file(&file)?;
    let pid = built?.as_raw();
    Ok(StartedProcess { pid, at_nanos, warnings })
}

/// Returns the user namespace that a container joined, if any.
fn user_namespace(spec: &Spec) -> Option<&Path> {
    let namespaces = spec.linux().as_ref()?.namespaces().as_ref()?;
    let users = namespaces.iter().find(|one| one.typ() == LinuxNamespaceType::User)?;
    users.path().as_deref()
}

/// Returns the host user that owns the standard streams of a process.
fn stream_owner(spec: &Spec, process: &Process) -> io::Result<Option<u32>> {
    stdio::host_uid(process.user().uid(), user_namespace(spec))
}

/// Configures the library for a process whose streams belong to `owner`.
fn builder(start: &Start, io: Io<'_>, mut payload: Payload, owner: Option<u32>) -> Result<ContainerBuilder, WorkError> {
    let builder =
        ContainerBuilder::new(start.id.clone(), SyscallType::default()).with_root_path(start.dir.join("state"))?;
    Ok(match io {
        Io::Streams(streams) => {
            let Streams { stdin, stdout, stderr } = streams;
            stdio::set_owners([&stdin, &stdout, &stderr], owner)?;
            builder.with_executor(payload).with_stdin(stdin).with_stdout(stdout).with_stderr(stderr)
        }
        Io::Terminal(socket) => {
            payload.terminal = Some(Rc::new(stdio::serve_terminal(owner)?));
            builder.with_executor(payload).with_console_socket(Some(socket))
        }
    })
}

/// Adapts a process specification to the library and to this host; settings that cannot be applied become warnings.
fn adapt(
    process: &mut Process,
    filter: Option<&LinuxSeccomp>,
    report: &Rc<RefCell<File>>,
    warnings: &mut Vec<String>,
) -> Result<Payload, WorkError> {
    clamp(process, warnings)?;
    let filters = filter.map(seccomp::compile).transpose()?.unwrap_or_default();
    let privileged_load = !filters.is_empty() && process.no_new_privileges() != Some(true);
    let drop_admin = privileged_load && keep_admin(process);
    Ok(Payload { filters: Rc::new(filters), drop_admin, entering: None, terminal: None, report: Rc::clone(report) })
}

/// Adds CAP_SYS_ADMIN, which loading a filter needs until the last step. Returns whether it was missing.
fn keep_admin(process: &mut Process) -> bool {
    let mut capabilities = process.capabilities().clone().unwrap_or_else(|| {
        let mut none = LinuxCapabilities::default();
        for set in [LinuxCapabilities::set_bounding, LinuxCapabilities::set_inheritable, LinuxCapabilities::set_ambient]
        {
            set(&mut none, Some(HashSet::new()));
        }
        none
    });
    let with = |set: &Option<HashSet<Capability>>| {
        let mut set = set.clone().unwrap_or_default();
        let added = set.insert(Capability::SysAdmin);
        (Some(set), added)
    };
    let (effective, added) = with(capabilities.effective());
    let (permitted, _) = with(capabilities.permitted());
    capabilities.set_effective(effective);
    capabilities.set_permitted(permitted);
    process.set_capabilities(Some(capabilities));
    added
}

/// Limits hard limits and OOM scores to the allowed values, since changing them needs CAP_SYS_RESOURCE.
fn clamp(process: &mut Process, warnings: &mut Vec<String>) -> Result<(), WorkError> {
    if caps::has_cap(None, caps::CapSet::Effective, caps::Capability::CAP_SYS_RESOURCE)? {
        return Ok(());
    }
    let own: i32 = fs::read_to_string("/proc/self/oom_score_adj")?.trim().parse()?;
    if let Some(requested) = process.oom_score_adj()
        && requested < own
    {
        warnings.push(format!("OOM score {requested} needs CAP_SYS_RESOURCE, {own} is used"));
        process.set_oom_score_adj(Some(own));
    }
    let mut limits = process.rlimits().clone().unwrap_or_default();
    for limit in &mut limits {
        let Some(hard) = hard_limit(&format!("{:?}", limit.typ())) else { continue };
        if limit.hard() > hard {
            warnings.push(format!("{:?} of {} needs CAP_SYS_RESOURCE, {hard} is used", limit.typ(), limit.hard()));
            *limit = PosixRlimitBuilder::default().typ(limit.typ()).hard(hard).soft(limit.soft().min(hard)).build()?;
        }
    }
    if !limits.is_empty() {
        process.set_rlimits(Some(limits));
    }
    Ok(())
}

/// Returns this process's hard limit by the OCI name (`PosixRlimitNofile`), from `/proc/self/limits`.
fn hard_limit(name: &str) -> Option<u64> {
    let label = match name.strip_prefix("PosixRlimit")?.to_ascii_lowercase().as_str() {
        "cpu" => "Max cpu time",
        "fsize" => "Max file size",
        "data" => "Max data size",
        "stack" => "Max stack size",
        "core" => "Max core file size",
        "rss" => "Max resident set",
        "nproc" => "Max processes",
        "nofile" => "Max open files",
        "memlock" => "Max locked memory",
        "as" => "Max address space",
        "locks" => "Max file locks",
        "sigpending" => "Max pending signals",
        "msgqueue" => "Max msgqueue size",
        "nice" => "Max nice priority",
        "rtprio" => "Max realtime priority",
        "rttime" => "Max realtime timeout",
        _ => return None,
    };
    let table = fs::read_to_string("/proc/self/limits").ok()?;
    let line = table.lines().find_map(|line| line.strip_prefix(label))?;
    match line.split_whitespace().nth(1)? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

fn create_by(runtime: &Path, start: &Start, io: Io<'_>) -> Result<StartedProcess, WorkError> {
    let pid_file = start.dir.join("pid");
    let mut command = oci(runtime, start);
    command.arg("create").arg("--bundle").arg(start.dir.join("bundle")).arg("--pid-file").arg(&pid_file);
    run(command, &start.id, io)?;
    let mut start_command = oci(runtime, start);
    start_command.arg("start").arg(&start.id).stdin(Stdio::null());
    let at_nanos = super::nanos(Timestamp::now());
    run_command(start_command)?;
    Ok(StartedProcess { pid: fs::read_to_string(pid_file)?.trim().parse()?, at_nanos, warnings: Vec::new() })
}

fn enter_by(runtime: &Path, start: &Start, process: &Process, io: Io<'_>) -> Result<StartedProcess, WorkError> {
    let unique = std::process::id();
    let (pid_file, file) = (start.dir.join(format!("pid-{unique}")), start.dir.join(format!("exec-{unique}.json")));
    private::write(&file, &serde_json::to_vec(process)?)?;
    let at_nanos = super::nanos(Timestamp::now());
    let mut command = oci(runtime, start);
    command.args(["exec", "--detach", "--process"]).arg(&file).arg("--pid-file").arg(&pid_file);
    let outcome = run(command, &start.id, io);
    fs::remove_file(&file)?;
    outcome?;
    let pid = fs::read_to_string(&pid_file)?.trim().parse()?;
    fs::remove_file(&pid_file)?;
    Ok(StartedProcess { pid, at_nanos, warnings: Vec::new() })
}

fn oci(runtime: &Path, start: &Start) -> Command {
    let mut command = Command::new(runtime);
    command.arg("--root").arg(start.dir.join("state")).arg("--log").arg(start.dir.join("runtime.log"));
    command
}

/// Runs an OCI runtime with the container's streams as its own, so its errors are read from its log file.
fn run(mut command: Command, id: &str, io: Io<'_>) -> Result<(), WorkError> {
    match io {
        Io::Streams(streams) => {
            command.stdin(streams.stdin).stdout(streams.stdout).stderr(streams.stderr);
        }
        Io::Terminal(socket) => {
            command.arg("--console-socket").arg(socket).stdin(Stdio::null());
        }
    }
    command.arg(id);
    run_command(command)
}

fn run_command(mut command: Command) -> Result<(), WorkError> {
    let log = command.get_args().skip_while(|arg| *arg != "--log").nth(1).map(|path| Path::new(path).to_owned());
    if command.status()?.success() {
        return Ok(());
    }
    let text = log.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
    Err(text.lines().last().unwrap_or("the OCI runtime failed without a message").to_owned().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_contains_its_cause_once() {
        let check = |error: &str, cause: &str, expect: &str| assert_eq!(with_cause(error.to_owned(), cause), expect);
        let missing = "exec: \"/nope\": stat /nope: no such file or directory";
        let error = format!("failed to create container: {missing}");
        check(&error, &format!("failed to initialize container process: {missing}"), &error);
        check(&error, missing, &error);
        check(&error, "", &error);
        check(
            "failed to create container",
            "failed to mount /v: EINVAL",
            "failed to create container: failed to mount /v: EINVAL",
        );
        check("failed to create container", "EPERM", "failed to create container: EPERM");
    }
}
