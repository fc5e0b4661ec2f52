//! The last steps before a container's process runs: seccomp filters, dropping CAP_SYS_ADMIN, `execve`.

use std::cell::RefCell;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use caps::{CapSet, Capability};
use libcontainer::workload::{Executor, ExecutorError, ExecutorValidationError};
use oci_spec::runtime::Spec;
use sys::SockFilter;

use crate::exec_namespaces::Entering;
use crate::stdio::TerminalOffer;

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The steps that are left inside the container.
#[derive(Clone)]
pub(crate) struct Payload {
    /// Seccomp filters, loaded in this order.
    pub filters: Rc<Vec<Vec<SockFilter>>>,
    /// Whether CAP_SYS_ADMIN was kept only to load the filters.
    pub drop_admin: bool,
    /// The user namespace to enter, if the OCI runtime library does not enter it.
    pub entering: Option<Rc<Entering>>,
    /// Offers the terminal to the worker, which changes its owner to the process's user.
    pub terminal: Option<Rc<TerminalOffer>>,
    /// Receives a failure after the start; `execve` closes it.
    pub report: Rc<RefCell<File>>,
}

impl Executor for Payload {
    fn validate(&self, spec: &Spec) -> Result<(), ExecutorValidationError> {
        let (args, path) = command(spec);
        let program = args.first().ok_or_else(|| bad("no command is given".to_owned()))?;
        find(program, &path).map(|_| ()).map_err(bad)
    }

    fn exec(&self, spec: &Spec) -> Result<(), ExecutorError> {
        let error = match self.prepare().and_then(|()| execute(spec)) {
            Ok(never) => match never {},
            Err(error) => error,
        };
        let line = serde_json::json!({ "error": error.to_string() });
        // If this fails, the shim still sees the exit code.
        let _ = writeln!(self.report.borrow_mut(), "{line}");
        Err(ExecutorError::Execution(error.into()))
    }
}

impl Payload {
    fn prepare(&self) -> io::Result<()> {
        if let Some(terminal) = &self.terminal {
            terminal.make().map_err(|error| named("cannot hand over the terminal", &error))?;
        }
        if let Some(entering) = &self.entering {
            let keep = self.drop_admin.then_some(Capability::CAP_SYS_ADMIN);
            entering.enter(keep).map_err(|error| named("cannot enter the user namespace", &error))?;
        }
        for filter in self.filters.iter() {
            sys::load_seccomp(filter).map_err(|error| named("cannot load the seccomp filter", &error))?;
        }
        if self.drop_admin {
            for set in [CapSet::Effective, CapSet::Permitted] {
                caps::drop(None, set, Capability::CAP_SYS_ADMIN).map_err(io::Error::other)?;
            }
        }
        Ok(())
    }
}

fn execute(spec: &Spec) -> io::Result<std::convert::Infallible> {
    let (args, path) = command(spec);
    let program = args.first().ok_or_else(|| io::Error::other("no command is given"))?;
    let found = find(program, &path).map_err(io::Error::other)?;
    let text = |text: &str| CString::new(text).map_err(io::Error::other);
    let args: Vec<CString> = args.iter().map(|arg| text(arg)).collect::<io::Result<_>>()?;
    let file = text(&found.to_string_lossy())?;
    nix::unistd::execv(&file, &args).map_err(|error| named(&format!("exec {}", found.display()), &error.into()))
}

fn named(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

fn bad(message: String) -> ExecutorValidationError {
    ExecutorValidationError::ArgValidationError(message)
}

fn command(spec: &Spec) -> (Vec<String>, String) {
    let process = spec.process().as_ref();
    let args = process.and_then(|process| process.args().clone()).unwrap_or_default();
    let env = process.and_then(|process| process.env().clone()).unwrap_or_default();
    let path = env.iter().rev().find_map(|pair| pair.strip_prefix("PATH=")).unwrap_or(DEFAULT_PATH).to_owned();
    (args, path)
}

/// Finds an executable as a shell would. The error messages are those of other runtimes, since users search for them.
fn find(program: &str, path: &str) -> Result<PathBuf, String> {
    if program.contains('/') {
        return match executable(Path::new(program)) {
            Ok(()) => Ok(PathBuf::from(program)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(format!("exec: {program:?}: stat {program}: no such file or directory"))
            }
            Err(error) => Err(format!("exec: {program:?}: {}", reason(&error))),
        };
    }
    let mut denied = None;
    for dir in path.split(':') {
        let candidate = Path::new(if dir.is_empty() { "." } else { dir }).join(program);
        match executable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => denied = Some(error),
            Err(_) => {}
        }
    }
    Err(match denied {
        Some(error) => format!("exec: {program:?}: {}", reason(&error)),
        None => format!("exec: {program:?}: executable file not found in $PATH"),
    })
}

fn executable(path: &Path) -> io::Result<()> {
    let metadata = fs::metadata(path)?;
    let kind = metadata.file_type();
    if kind.is_dir() || kind.is_fifo() || kind.is_socket() || metadata.permissions().mode() & 0o111 == 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(())
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_found_as_in_a_shell() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        fs::write(dir.path().join("tool"), "").unwrap();
        assert_eq!(find("tool", path), Err("exec: \"tool\": permission denied".to_owned()));
        fs::set_permissions(dir.path().join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find("tool", &format!("/nonexistent:{path}")), Ok(dir.path().join("tool")));
        assert_eq!(find("other", path), Err("exec: \"other\": executable file not found in $PATH".to_owned()));
        let missing = find("/no/such", path);
        assert_eq!(missing, Err("exec: \"/no/such\": stat /no/such: no such file or directory".to_owned()));
    }
}
