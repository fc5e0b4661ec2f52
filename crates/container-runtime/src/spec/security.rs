//! Container security: capabilities, seccomp, AppArmor.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use node_api::cri::v1;
use node_api::cri::v1::security_profile::ProfileType;
use serde_json::{Value, json};

/// Maximum size of a profile; common ones have a few kilobytes.
const PROFILE_BYTES_MAX: u64 = 4 << 20;

/// Default capabilities, as in other runtimes.
const DEFAULT: &[&str] = &[
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];

/// All capabilities by number.
const ALL: &[&str] = &[
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
];

/// A security setting cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    #[error("cannot read seccomp profile {path}")]
    Profile {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The profile reference has an invalid form.
    #[error("seccomp profile {0:?} is neither runtime/default, unconfined nor localhost/<path>")]
    Reference(String),
    #[error("AppArmor profile {0:?} is requested, but this kernel has no AppArmor")]
    NoAppArmor(String),
}

/// Returns the five capability sets of the OCI specification.
pub(crate) fn capabilities(security: &v1::LinuxContainerSecurityContext) -> Value {
    let list = granted_capabilities(security);
    let changes = security.capabilities.clone().unwrap_or_default();
    let ambient: Vec<String> = changes
        .add_ambient_capabilities
        .iter()
        .map(|name| full_name(name))
        .filter(|name| list.contains(name.as_str()))
        .collect();
    json!({"bounding": list, "effective": list, "permitted": list, "inheritable": ambient, "ambient": ambient})
}

fn granted_capabilities(security: &v1::LinuxContainerSecurityContext) -> BTreeSet<&'static str> {
    let bounding = bounding_set();
    if security.privileged {
        return bounding.clone();
    }
    let changes = security.capabilities.clone().unwrap_or_default();
    let has = |names: &[String], name: &str| names.iter().any(|one| full_name(one) == name);
    let has_all = |names: &[String]| names.iter().any(|one| one.eq_ignore_ascii_case("ALL"));
    let (add, drop) = (&changes.add_capabilities, &changes.drop_capabilities);
    // `ALL` applies first and single names afterwards, so that all can be added and some dropped, or the reverse.
    let base: Vec<&str> = match (has_all(add), has_all(drop)) {
        (true, false) => ALL.to_vec(),
        (_, true) => Vec::new(),
        (false, false) => DEFAULT.to_vec(),
    };
    let retained = base.into_iter().filter(|name| !has(drop, name));
    let added = ALL.iter().copied().filter(|name| has(add, name));
    retained.chain(added).filter(|name| bounding.contains(name)).collect()
}

fn full_name(name: &str) -> String {
    let upper = name.to_ascii_uppercase();
    if upper.starts_with("CAP_") { upper } else { format!("CAP_{upper}") }
}

/// Returns the capabilities in this process's bounding set. A container with any other capability would fail to start.
fn bounding_set() -> &'static BTreeSet<&'static str> {
    static BOUNDING_SET: OnceLock<BTreeSet<&'static str>> = OnceLock::new();
    BOUNDING_SET.get_or_init(|| {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("CapBnd:"));
        let mask = mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(u64::MAX);
        ALL.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1).map(|(_, name)| *name).collect()
    })
}

/// Returns the seccomp filter of a container, if it has one.
pub(super) fn seccomp(security: &v1::LinuxContainerSecurityContext) -> Result<Option<Value>, SecurityError> {
    if security.privileged {
        return Ok(None);
    }
    let default = || {
        let names: Vec<&str> = granted_capabilities(security).into_iter().collect();
        serde_json::to_value(container_shim::default_profile(&names)).expect("a profile is JSON")
    };
    if let Some(profile) = &security.seccomp {
        return match profile.profile_type() {
            ProfileType::RuntimeDefault => Ok(Some(default())),
            ProfileType::Unconfined => Ok(None),
            ProfileType::Localhost => local(Path::new(&profile.localhost_ref)).map(Some),
        };
    }
    let path = security.seccomp_profile_path.as_str();
    match path {
        "" | "unconfined" => Ok(None),
        "runtime/default" | "docker/default" => Ok(Some(default())),
        other => match other.strip_prefix("localhost/") {
            Some(path) => local(Path::new(path)).map(Some),
            None => Err(SecurityError::Reference(other.to_owned())),
        },
    }
}

fn local(path: &Path) -> Result<Value, SecurityError> {
    let failed = |source| SecurityError::Profile { path: path.to_owned(), source };
    let mut text = Vec::new();
    fs::File::open(path).map_err(failed)?.take(PROFILE_BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
    serde_json::from_slice(&text).map_err(|error| failed(error.into()))
}

/// Returns the AppArmor profile of a container, if any.
pub(super) fn apparmor(security: &v1::LinuxContainerSecurityContext) -> Result<Option<String>, SecurityError> {
    let name = match &security.apparmor {
        Some(profile) if profile.profile_type() == ProfileType::Localhost => profile.localhost_ref.clone(),
        // DEVIATION: the AppArmor profile `RuntimeDefault` is unconfined: the built-in runtime loads no profile.
        Some(_) | None => return Ok(None),
    };
    let name = name.strip_prefix("localhost/").unwrap_or(&name).to_owned();
    let enabled = fs::read_to_string("/sys/module/apparmor/parameters/enabled").is_ok_and(|text| text.starts_with('Y'));
    if enabled { Ok(Some(name)) } else { Err(SecurityError::NoAppArmor(name)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(add: &[&str], drop: &[&str], expect: impl Fn(&BTreeSet<&'static str>) -> bool) {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let capabilities =
            v1::Capability { add_capabilities: owned(add), drop_capabilities: owned(drop), ..Default::default() };
        let security = v1::LinuxContainerSecurityContext { capabilities: Some(capabilities), ..Default::default() };
        let got = granted_capabilities(&security);
        assert!(expect(&got), "add {add:?} drop {drop:?}: {got:?}");
    }

    #[test]
    fn capabilities_are_added_and_dropped() {
        check(&[], &[], |set| set.contains("CAP_CHOWN") && !set.contains("CAP_SYS_ADMIN"));
        check(&["NET_ADMIN"], &["CHOWN"], |set| set.contains("CAP_NET_ADMIN") && !set.contains("CAP_CHOWN"));
        check(&["cap_net_admin"], &["ALL"], |set| set.iter().eq(["CAP_NET_ADMIN"].iter()));
        check(&["ALL"], &["SYS_ADMIN"], |set| set.contains("CAP_NET_ADMIN") && !set.contains("CAP_SYS_ADMIN"));
        check(&["NO_SUCH"], &["ALL"], BTreeSet::is_empty);
    }

    #[test]
    fn unreadable_seccomp_profile_is_an_error() {
        let profile = v1::SecurityProfile {
            profile_type: ProfileType::Localhost.into(),
            localhost_ref: "/no/such/profile.json".into(),
        };
        let security = v1::LinuxContainerSecurityContext { seccomp: Some(profile), ..Default::default() };
        assert_eq!(seccomp(&security).unwrap_err().to_string(), "cannot read seccomp profile /no/such/profile.json");
    }
}
