//! Groups that systemd manages: slices by name, made and ended by asking it over its private socket.
//!
//! systemd owns the tree of groups on its machines; whoever makes groups beside it may find them removed. A pod's group is a
//! slice that is delegated: what is below belongs to the runtime.

mod bus;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bus::{Bus, Property};

/// Where systemd speaks to root without a message bus.
const SOCKET: &str = "/run/systemd/private";
/// It is there on a machine that systemd started.
const MARK: &str = "/run/systemd/system";
/// How long systemd may take for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why systemd did not do something.
#[derive(Debug, thiserror::Error)]
pub enum SystemdError {
    /// It does not run here.
    #[error("systemd does not run on this machine ({0} is missing)")]
    Absent(&'static str),
    /// It cannot be reached.
    #[error("systemd cannot be asked")]
    Io(#[from] io::Error),
    /// It refuses.
    #[error("systemd refuses: {0}")]
    Refused(String),
    /// It says something that makes no sense.
    #[error("systemd says something that is no message")]
    Malformed,
}

/// The systemd of a machine.
#[derive(Clone, Debug)]
pub struct Systemd {
    socket: PathBuf,
}

impl Systemd {
    /// The machine's own, if it was started by one.
    pub fn of_machine() -> Result<Self, SystemdError> {
        if !Path::new(MARK).is_dir() {
            return Err(SystemdError::Absent(MARK));
        }
        Ok(Self { socket: SOCKET.into() })
    }

    /// Makes a slice whose groups are the caller's to arrange; one that is there already is kept.
    pub fn start_slice(&self, unit: &str) -> Result<(), SystemdError> {
        let properties = [
            ("Description", Property::Text(format!("group of {unit}"))),
            ("Delegate", Property::Flag(true)),
            ("DefaultDependencies", Property::Flag(false)),
            ("CPUAccounting", Property::Flag(true)),
            ("MemoryAccounting", Property::Flag(true)),
            ("TasksAccounting", Property::Flag(true)),
        ];
        let mut bus = Bus::connect(&self.socket, PATIENCE)?;
        match bus.call("StartTransientUnit", &bus::start_transient_unit(unit, &properties)) {
            Err(SystemdError::Refused(name)) if name.ends_with(".UnitExists") => Ok(()),
            other => other,
        }
    }

    /// Ends a slice; one that is not there has ended already.
    pub fn stop(&self, unit: &str) -> Result<(), SystemdError> {
        let mut bus = Bus::connect(&self.socket, PATIENCE)?;
        match bus.call("StopUnit", &bus::stop_unit(unit)) {
            Err(SystemdError::Refused(name)) if name.ends_with(".NoSuchUnit") => Ok(()),
            other => other,
        }
    }
}

/// The slice of a group: `/kubepods/burstable/pod-a` is `kubepods-burstable-pod_a.slice`.
pub fn slice_of(path: &str) -> String {
    let parts: Vec<String> =
        path.split('/').filter(|part| !part.is_empty()).map(|part| part.replace('-', "_")).collect();
    if parts.is_empty() { "-.slice".to_owned() } else { format!("{}.slice", parts.join("-")) }
}

/// Where a slice's group is: `a-b.slice` is at `/a.slice/a-b.slice`. `None` if it is no slice's name.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_named_and_placed_as_systemd_has_them() {
        let check = |path: &str, slice: &str, place: &str| {
            assert_eq!(slice_of(path), slice);
            assert_eq!(path_of(slice).as_deref(), Some(place));
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
    fn a_machine_without_systemd_says_so() {
        match Systemd::of_machine() {
            Err(error) => {
                assert_eq!(error.to_string(), "systemd does not run on this machine (/run/systemd/system is missing)");
            }
            Ok(_) => assert!(Path::new(MARK).is_dir()),
        }
    }

    #[test]
    fn systemd_is_asked_for_a_slice_and_its_refusals_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let systemd = Systemd { socket: dir.path().join("private") };
        assert!(matches!(systemd.start_slice("a.slice"), Err(SystemdError::Io(_))));
        let seen =
            bus::tests::answer(&systemd.socket, &["", "org.freedesktop.systemd1.UnitExists", "org.example.No", ""]);
        systemd.start_slice("kubepods-pod1.slice").unwrap();
        systemd.start_slice("kubepods-pod1.slice").unwrap();
        let refused = systemd.start_slice("kubepods-pod1.slice").unwrap_err();
        assert_eq!(refused.to_string(), "systemd refuses: org.example.No");
        systemd.stop("kubepods-pod1.slice").unwrap();
        let seen: Vec<String> =
            seen.join().unwrap().iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect();
        for text in ["StartTransientUnit", "kubepods-pod1.slice", "Delegate", "org.freedesktop.systemd1.Manager"] {
            assert!(seen[0].contains(text), "{text}");
        }
        assert!(seen[3].contains("StopUnit") && seen[3].contains("kubepods-pod1.slice"));
    }
}
