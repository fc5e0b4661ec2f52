//! The policy of credential plugins: which executables of a kubeconfig may run.

use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// The credential plugins that a user allows. A kubeconfig of unknown origin may name any executable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PluginPolicy {
    #[default]
    AllowAll,
    DenyAll,
    /// The names or absolute paths of executables. A name is resolved by `PATH`.
    Allowlist(Vec<String>),
}

/// A policy is invalid. The policy protects the user, so no default replaces it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginPolicyError {
    #[error("unknown plugin policy: {0:?}")]
    Unknown(String),
    /// The policy has a list that it does not use.
    #[error("misconfigured credential plugin allowlist: plugin policy is {0:?} but allowlist is non-nil")]
    UnusedList(String),
    #[error("credential plugin policy set to \"Allowlist\", but allowlist is unspecified")]
    NoList,
    #[error("credential plugin policy set to \"Allowlist\", but allowlist is empty; use \"DenyAll\" policy instead")]
    EmptyList,
    #[error("misconfigured credential plugin allowlist: empty allowlist entry #{0}")]
    EmptyEntry(usize),
    #[error("non-normalized file path: {path:?} vs {clean:?}")]
    NotNormalized {
        path: String,
        /// The same path without `.`, `..` and repeated separators.
        clean: String,
    },
}

/// A policy does not allow an executable.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginDenied {
    #[error("plugin {0:?} not allowed: policy set to \"DenyAll\"")]
    All(String),
    /// The executable is not on the allowlist.
    #[error("plugin path {0:?} is not permitted by the credential plugin allowlist")]
    NotListed(String),
    /// The executable cannot be compared with the allowlist.
    #[error(
        "plugin path {0:?} cannot be resolved for credential plugin allowlist check: executable file not found in $PATH"
    )]
    Unresolved(String),
}

impl PluginPolicy {
    /// Returns the policy with a name, which is empty for the default, and its list.
    pub fn new(name: &str, list: Option<Vec<String>>) -> Result<Self, PluginPolicyError> {
        match (name, list) {
            ("" | "AllowAll", None) => Ok(Self::AllowAll),
            ("DenyAll", None) => Ok(Self::DenyAll),
            ("" | "AllowAll" | "DenyAll", Some(_)) => Err(PluginPolicyError::UnusedList(name.to_owned())),
            ("Allowlist", None) => Err(PluginPolicyError::NoList),
            ("Allowlist", Some(list)) if list.is_empty() => Err(PluginPolicyError::EmptyList),
            ("Allowlist", Some(list)) => {
                for (at, entry) in list.iter().enumerate() {
                    let clean = clean(Path::new(entry)).display().to_string();
                    if entry.is_empty() {
                        return Err(PluginPolicyError::EmptyEntry(at + 1));
                    }
                    if clean != *entry {
                        return Err(PluginPolicyError::NotNormalized { path: entry.clone(), clean });
                    }
                }
                Ok(Self::Allowlist(list))
            }
            _ => Err(PluginPolicyError::Unknown(name.to_owned())),
        }
    }

    /// Returns the executable to run. With a list it is the resolved path, so that the checked file is the one that
    /// runs.
    pub(crate) fn permit(&self, command: &Path, search_path: &[PathBuf]) -> Result<PathBuf, PluginDenied> {
        let list = match self {
            Self::AllowAll => return Ok(command.to_owned()),
            Self::DenyAll => return Err(PluginDenied::All(clean(command).display().to_string())),
            Self::Allowlist(list) => list,
        };
        let command = clean(command);
        let Some(resolved) = resolve(&command, search_path) else {
            return Err(PluginDenied::Unresolved(command.display().to_string()));
        };
        let matches = |entry: &String| {
            let entry = Path::new(entry);
            entry == command || entry == resolved || resolve(entry, search_path).is_some_and(|entry| entry == resolved)
        };
        if list.iter().any(matches) {
            return Ok(resolved);
        }
        Err(PluginDenied::NotListed(resolved.display().to_string()))
    }
}

/// Returns the path of an executable as a shell finds it.
fn resolve(command: &Path, search_path: &[PathBuf]) -> Option<PathBuf> {
    let executable = |file: &Path| {
        std::fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    if command.components().count() > 1 {
        return executable(command).then(|| command.to_owned());
    }
    search_path.iter().map(|directory| directory.join(command)).find(|file| executable(file))
}

/// Removes `.` and `..` from a path without access to the file system.
fn clean(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if out.file_name().is_some() => {
                out.pop();
            }
            Component::ParentDir if out.has_root() => {}
            other => out.push(other),
        }
    }
    if out.as_os_str().is_empty() { PathBuf::from(".") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_permits_listed_executables_only() {
        let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for directory in [&directory, &other] {
            let file = directory.path().join("login");
            std::fs::write(&file, "").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let path = [directory.path().to_owned()];
        let (first, second) = (directory.path().join("login"), other.path().join("login"));
        let list = |entry: &Path| PluginPolicy::Allowlist(vec![entry.display().to_string()]);
        let name = Path::new("login");
        assert_eq!(PluginPolicy::AllowAll.permit(name, &path), Ok(name.to_owned()));
        assert_eq!(PluginPolicy::DenyAll.permit(name, &path), Err(PluginDenied::All("login".to_owned())));
        // A name and the path it resolves to are the same executable.
        for (command, entry) in [(name, name), (name, &first), (&first, name)] {
            assert_eq!(list(entry).permit(command, &path), Ok(first.clone()));
        }
        let not_listed = |file: &Path| Err(PluginDenied::NotListed(file.display().to_string()));
        assert_eq!(list(name).permit(&second, &path), not_listed(&second));
        assert_eq!(list(&second).permit(name, &path), not_listed(&first));
        let missing = Err(PluginDenied::Unresolved("logout".to_owned()));
        assert_eq!(list(name).permit(Path::new("logout"), &path), missing);
    }

    #[test]
    fn misconfigured_policies_are_rejected() {
        let list = |entries: &[&str]| Some(entries.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>());
        assert_eq!(PluginPolicy::new("", None), Ok(PluginPolicy::AllowAll));
        assert_eq!(PluginPolicy::new("DenyAll", None), Ok(PluginPolicy::DenyAll));
        assert!(PluginPolicy::new("Allowlist", list(&["a", "/b/c"])).is_ok());
        for (name, list) in [
            ("AllowAll", list(&[])),
            ("DenyAll", list(&["a"])),
            ("Allowlist", None),
            ("Allowlist", list(&[])),
            ("Allowlist", list(&["a", ""])),
            ("Allowlist", list(&["/a/../b"])),
            ("allowall", None),
        ] {
            assert!(PluginPolicy::new(name, list.clone()).is_err(), "{name} {list:?}");
        }
    }

    #[test]
    fn paths_are_normalized_without_the_file_system() {
        for (path, expect) in
            [("a/./b", "a/b"), ("/a/../../b", "/b"), ("../a", "../a"), ("a/..", "."), ("/a//b/", "/a/b")]
        {
            assert_eq!(clean(Path::new(path)), Path::new(expect), "{path}");
        }
    }
}
