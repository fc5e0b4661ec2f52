//! Cgroups that systemd owns: slices and scopes, created, limited and stopped through systemd's private socket.
//!
//! systemd may remove cgroups and reset limits that it did not set. With the `systemd` cgroup driver, the cgroup of a
//! pod is therefore a slice. systemd does not delegate slices, so each sandbox has a delegated scope in the pod's
//! slice. The container runtime owns all cgroups below the scope.
//!
//! ```text
//! kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice   kubelet: limits of the pod
//!   knarr-SANDBOX.scope                                                     delegated, stops with its last process
//!     SANDBOX                                                               the process that holds the namespaces
//!     CONTAINER                                                             runtime: limits of the container
//! ```
//!
//! Other runtimes have a scope for each container. systemd removes a scope when its last process exits, and with it the
//! count of OOM kills that the runtime needs to report `OOMKilled`. Here the sandbox's process keeps the scope until
//! the pod is removed.
//!
//! Limits of a slice are written to its cgroup and then sent to systemd, which applies them again when it reloads its
//! units.

mod bus;
mod limits;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bus::{Bus, Property};

/// systemd's private socket, on which root can call systemd without a message bus.
const SOCKET: &str = "/run/systemd/private";
/// Directory that exists on a host whose init system is systemd.
const BOOTED: &str = "/run/systemd/system";
/// Timeout of a call to systemd, and of the job that it starts.
const TIMEOUT: Duration = Duration::from_secs(30);
/// systemd's value of a property without a limit.
const INFINITY: u64 = u64::MAX;

/// A request to systemd failed.
#[derive(Debug, thiserror::Error)]
pub enum SystemdError {
    /// The host runs another init system.
    #[error("systemd does not run on this host ({0} is missing)")]
    Absent(&'static str),
    /// The controllers are on cgroup v1.
    // DEVIATION: the systemd cgroup driver needs cgroup v2; upstream's works on v1 as well, if failCgroupV1 is false.
    #[error("the systemd cgroup driver needs cgroup v2; use the cgroupfs driver on this host")]
    CgroupV1,
    #[error("cannot talk to systemd")]
    Io(#[from] io::Error),
    #[error("systemd refuses: {name}: {message}")]
    Rejected {
        /// The D-Bus name of the error.
        name: String,
        message: String,
    },
    /// systemd accepted a job, and the job failed.
    #[error("the systemd job for {unit} ended with {result:?}")]
    Job {
        /// The unit to be started or stopped.
        unit: String,
        /// systemd's job result, such as `failed` or `timeout`.
        result: String,
    },
    /// A received message is not valid D-Bus, or does not have the expected arguments.
    #[error("systemd sent a malformed message")]
    Malformed,
}

impl From<SystemdError> for io::Error {
    fn from(error: SystemdError) -> Self {
        match error {
            SystemdError::Io(error) => io::Error::new(error.kind(), format!("cannot talk to systemd: {error}")),
            other => io::Error::other(other),
        }
    }
}

/// A client of the host's systemd.
#[derive(Clone, Debug)]
pub struct Systemd {
    socket: PathBuf,
}

impl Default for Systemd {
    fn default() -> Self {
        Self { socket: SOCKET.into() }
    }
}

impl Systemd {
    /// Returns a client. Fails unless the host's init system is systemd and the host uses cgroup v2.
    pub fn of_machine() -> Result<Self, SystemdError> {
        if !Path::new(BOOTED).is_dir() {
            return Err(SystemdError::Absent(BOOTED));
        }
        if !crate::Cgroup::is_unified() {
            return Err(SystemdError::CgroupV1);
        }
        Ok(Self::default())
    }

    /// Starts a slice; an existing one is kept.
    pub fn start_slice(&self, unit: &str) -> Result<(), SystemdError> {
        let properties = common_properties(format!("cgroup of {unit}"));
        let mut bus = self.connect()?;
        match bus.run_job("StartTransientUnit", &bus::start_transient_unit(unit, &properties)) {
            Err(SystemdError::Rejected { name, .. }) if name.ends_with(".UnitExists") => {
                bus.run_job("StartUnit", &bus::unit_and_mode(unit))
            }
            other => other,
        }
    }

    /// Starts a delegated scope below a slice, and moves a process into it.
    pub fn start_scope(&self, unit: &str, slice: &str, pid: u32) -> Result<(), SystemdError> {
        let mut properties = common_properties(format!("pod sandbox {unit}"));
        properties.extend([
            ("Slice", Property::Text(slice.to_owned())),
            ("PIDs", Property::Numbers(vec![pid])),
            ("Delegate", Property::Flag(true)),
            // Without this property, systemd sets its default limit.
            ("TasksMax", Property::Number(INFINITY)),
            ("CollectMode", Property::Text("inactive-or-failed".to_owned())),
        ]);
        self.connect()?.run_job("StartTransientUnit", &bus::start_transient_unit(unit, &properties))
    }

    /// Sets the unit's properties to the current limits of its cgroup in `dir`, so that systemd keeps them. CPU quotas
    /// are rounded up to whole percents.
    pub fn keep_limits(&self, unit: &str, dir: &Path) -> Result<(), SystemdError> {
        self.connect()?.call("SetUnitProperties", &bus::set_unit_properties(unit, &limits::read(dir)))
    }

    /// Stops a unit. Succeeds if the unit is not loaded.
    pub fn stop(&self, unit: &str) -> Result<(), SystemdError> {
        match self.connect()?.run_job("StopUnit", &bus::unit_and_mode(unit)) {
            Err(SystemdError::Rejected { name, .. }) if name.ends_with(".NoSuchUnit") => Ok(()),
            other => other,
        }
    }

    fn connect(&self) -> Result<Bus, SystemdError> {
        Bus::connect(&self.socket, TIMEOUT)
    }
}

/// Returns the properties of all units. The accounting properties make systemd enable the controllers.
fn common_properties(description: String) -> Vec<(&'static str, Property)> {
    let mut properties =
        vec![("Description", Property::Text(description)), ("DefaultDependencies", Property::Flag(false))];
    let accounting = ["CPUAccounting", "IOAccounting", "MemoryAccounting", "TasksAccounting"];
    properties.extend(accounting.map(|name| (name, Property::Flag(true))));
    properties
}

/// Returns the slice of a cgroup: `kubepods-burstable-pod_a.slice` for `/kubepods/burstable/pod-a`.
pub fn slice_of(path: &str) -> String {
    let parts: Vec<String> =
        path.split('/').filter(|part| !part.is_empty()).map(|part| part.replace('-', "_")).collect();
    if parts.is_empty() { "-.slice".to_owned() } else { format!("{}.slice", parts.join("-")) }
}

/// Returns the cgroup path of a slice: `/a.slice/a-b.slice` for `a-b.slice`. `None` if `slice` is not the name of a
/// slice.
pub fn path_of(slice: &str) -> Option<String> {
    let name = slice.strip_suffix(".slice")?;
    if name == "-" {
        return Some("/".to_owned());
    }
    if name.is_empty() || name.contains('/') || name.split('-').any(str::is_empty) {
        return None;
    }
    let mut path = String::new();
    for (at, _) in name.match_indices('-').chain([(name.len(), "")]) {
        path.push_str(&format!("/{}.slice", &name[..at]));
    }
    Some(path)
}

/// Returns the scope of a sandbox.
pub fn scope_of(sandbox: &str) -> String {
    format!("knarr-{sandbox}.scope")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn slices_are_named_and_placed_as_systemd_has_them() {
        let check = |path: &str, slice: &str, cgroup_path: &str| {
            assert_eq!(slice_of(path), slice);
            assert_eq!(path_of(slice).as_deref(), Some(cgroup_path));
        };
        check("/", "-.slice", "/");
        check("/kubepods", "kubepods.slice", "/kubepods.slice");
        check(
            "/kubepods/burstable/pod1234-5678",
            "kubepods-burstable-pod1234_5678.slice",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_5678.slice",
        );
        check("/a-b//kubepods/", "a_b-kubepods.slice", "/a_b.slice/a_b-kubepods.slice");
        for name in ["kubepods", ".slice", "a--b.slice", "-a.slice", "a-.slice", "a/b.slice", "../x.slice"] {
            assert_eq!(path_of(name), None, "{name}");
        }
    }

    #[test]
    fn host_without_systemd_or_cgroup_v2_is_rejected() {
        match Systemd::of_machine() {
            Err(SystemdError::Absent(path)) => assert!(!Path::new(path).exists()),
            Err(SystemdError::CgroupV1) => assert!(!crate::Cgroup::is_unified()),
            Err(other) => panic!("{other}"),
            Ok(_) => assert!(Path::new(BOOTED).is_dir()),
        }
    }

    #[test]
    fn only_scopes_are_delegated_and_systemd_errors_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let systemd = Systemd { socket: dir.path().join("private") };
        assert!(matches!(systemd.start_slice("a.slice"), Err(SystemdError::Io(_))));
        let exists = "org.freedesktop.systemd1.UnitExists";
        let calls = bus::tests::serve(
            &systemd.socket,
            &[&["done"], &[exists, "done"], &["org.example.No"], &["done"], &["done"], &["failed"]],
        );
        systemd.start_slice("kubepods-pod1.slice").unwrap();
        systemd.start_slice("kubepods-pod1.slice").unwrap();
        let error = systemd.start_slice("kubepods-pod1.slice").unwrap_err();
        assert_eq!(error.to_string(), "systemd refuses: org.example.No: because");
        systemd.start_scope("knarr-s.scope", "kubepods-pod1.slice", 77).unwrap();
        systemd.stop("kubepods-pod1.slice").unwrap();
        let failed = systemd.stop("kubepods-pod1.slice").unwrap_err();
        assert_eq!(failed.to_string(), "the systemd job for x.scope ended with \"failed\"");
        let calls: Vec<String> =
            calls.join().unwrap().iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect();
        let has = |call: usize, texts: &[&str]| {
            for text in texts {
                assert!(calls[call].contains(text), "{text} in call {call}");
            }
        };
        has(0, &["StartTransientUnit", "kubepods-pod1.slice", "CPUAccounting", "org.freedesktop.systemd1.Manager"]);
        assert!(!calls[0].contains("Delegate"), "systemd refuses to delegate a slice");
        has(2, &["StartUnit", "kubepods-pod1.slice"]);
        has(4, &["StartTransientUnit", "knarr-s.scope", "Slice", "kubepods-pod1.slice", "Delegate", "PIDs"]);
        has(5, &["StopUnit", "kubepods-pod1.slice"]);
    }

    #[test]
    fn systemd_learns_the_limits_that_the_kernel_has() {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path().join("group");
        fs::create_dir(&group).unwrap();
        fs::write(group.join("cpu.max"), "12345 100000\n").unwrap();
        fs::write(group.join("memory.max"), "67108864\n").unwrap();
        let systemd = Systemd { socket: dir.path().join("private") };
        let calls = bus::tests::serve(&systemd.socket, &[&[""]]);
        systemd.keep_limits("kubepods-pod1.slice", &group).unwrap();
        let call = calls.join().unwrap().remove(0);
        let text = String::from_utf8_lossy(&call);
        for name in
            ["SetUnitProperties", "kubepods-pod1.slice", "CPUQuotaPerSecUSec", "CPUQuotaPeriodUSec", "MemoryMax"]
        {
            assert!(text.contains(name), "{name}");
        }
        let has = |number: u64| call.windows(8).any(|bytes| bytes == number.to_le_bytes());
        assert!(has(67_108_864) && has(130_000) && has(100_000));
    }
}
