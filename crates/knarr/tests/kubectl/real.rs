//! Another kubectl that is installed on this host.

use std::path::PathBuf;
use std::process::Command;

/// The first version whose output is compared.
const MINOR_MIN: u32 = 32;

/// A kubectl and its minor version.
pub(crate) struct Kubectl {
    pub path: PathBuf,
    pub minor: u32,
}

impl Kubectl {
    /// Finds the kubectl of the environment variable `KUBECTL`, or else on `PATH`.
    pub(crate) fn find() -> Option<Self> {
        let named = std::env::var_os("KUBECTL").map(PathBuf::from);
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let mut found = std::env::split_paths(&paths).map(|directory| directory.join("kubectl"));
        let path = named.or_else(|| found.find(|path| path.is_file()))?.canonicalize().ok()?;
        let output = Command::new(&path).args(["version", "--client", "-o", "json"]).output().ok()?;
        let version: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let version = version["clientVersion"]["gitVersion"].as_str()?;
        let minor = version.strip_prefix("v1.")?.split(['.', '-', '+']).next()?.parse().ok()?;
        (minor >= MINOR_MIN).then_some(Self { path, minor })
    }
}
