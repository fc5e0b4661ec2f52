//! Security contexts of pods and containers.

mod windows;

use std::collections::BTreeSet;

use apimachinery::field::{BadValue, Error};
use apimachinery::{At, Errors, names};

use super::paths;
use super::report::{int, required};
use crate::field_rules::one_of;
use crate::go_form::pods;

/// Maximum user and group ID.
const ID_MAX: i64 = i32::MAX as i64;
/// Maximum length of a sysctl name.
const SYSCTL_MAX: usize = 253;
/// `PATH_MAX` without the terminating NUL.
const LOCALHOST_PROFILE_MAX: usize = 4095;

const PROFILES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

/// Validates the security context of a container.
pub(crate) fn container(context: &At<'_>, host_users: bool, errors: &mut Errors) {
    if context.is_absent() {
        return;
    }
    ids(context, &["runAsUser", "runAsGroup"], errors);
    let mount = context.get("procMount");
    if mount.is_present() {
        one_of(&mount, &["Default", "Unmasked"], errors);
        if host_users && mount.str() == "Unmasked" {
            errors.push(mount.invalid("`hostUsers` must be false to use `Unmasked`"));
        }
    }
    seccomp(&context.get("seccompProfile"), errors);
    let escalation = context.get("allowPrivilegeEscalation");
    if escalation.is_present() && !escalation.bool() {
        let blame = |detail: &str| {
            let bad_value = BadValue::Text(pods::print("SecurityContext", context.value()));
            Error::invalid(context.path(), bad_value, detail)
        };
        if context.get("privileged").bool() {
            errors.push(blame("cannot set `allowPrivilegeEscalation` to false and `privileged` to true"));
        }
        let capabilities = context.get("capabilities");
        for added in capabilities.get("add").items() {
            if added.str() == "CAP_SYS_ADMIN" {
                let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
                errors.push(blame(detail));
            }
        }
    }
    windows::options(&context.get("windowsOptions"), errors);
    app_armor(&context.get("appArmorProfile"), errors);
}

/// Validates the security context of a pod.
pub(crate) fn pod(spec: &At<'_>, errors: &mut Errors) {
    let context = spec.get("securityContext");
    if context.is_absent() {
        return;
    }
    ids(&context, &["fsGroup", "runAsUser", "runAsGroup"], errors);
    for group in context.get("supplementalGroups").items() {
        int(&group, names::in_range(group.int(), 0, ID_MAX), errors);
    }
    if spec.get("shareProcessNamespace").bool() && spec.get("hostPID").bool() {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.push(Error::invalid(&context.path().field("shareProcessNamespace"), true, detail));
    }
    sysctls(spec, &context, errors);
    let policy = context.get("fsGroupChangePolicy");
    if policy.is_present() {
        one_of(&policy, &["Always", "OnRootMismatch"], errors);
    }
    seccomp(&context.get("seccompProfile"), errors);
    windows::options(&context.get("windowsOptions"), errors);
    app_armor(&context.get("appArmorProfile"), errors);
    let groups = context.get("supplementalGroupsPolicy");
    if groups.is_present() {
        one_of(&groups, &["Merge", "Strict"], errors);
    }
    let change = context.get("seLinuxChangePolicy");
    if change.is_present() {
        one_of(&change, &["MountOption", "Recursive"], errors);
    }
}

pub(crate) use windows::host_process;

/// Validates an AppArmor profile.
pub(crate) fn app_armor(profile: &At<'_>, errors: &mut Errors) {
    if profile.is_absent() {
        return;
    }
    let (kind, local) = (profile.get("type"), profile.get("localhostProfile"));
    match kind.str() {
        "Localhost" => {
            let (text, set) = (local.str(), "must be set when AppArmor type is Localhost");
            if text.trim() != text {
                errors.push(local.invalid("must not be padded with whitespace"));
            } else if text.is_empty() {
                errors.push(local.required(set));
            }
            if text.len() > LOCALHOST_PROFILE_MAX {
                errors.push(Error::too_long(local.path(), LOCALHOST_PROFILE_MAX));
            }
        }
        "RuntimeDefault" | "Unconfined" => {
            if local.is_present() {
                errors.push(local.invalid("can only be set when AppArmor type is Localhost"));
            }
        }
        "" => errors.push(kind.required("type is required when appArmorProfile is set")),
        _ => errors.push(kind.not_supported(&PROFILES)),
    }
}

fn ids(context: &At<'_>, fields: &[&str], errors: &mut Errors) {
    for field in fields {
        let id = context.get(field);
        int(&id, names::in_range(id.int(), 0, ID_MAX), errors);
    }
}

fn seccomp(profile: &At<'_>, errors: &mut Errors) {
    if profile.is_absent() {
        return;
    }
    let (kind, local) = (profile.get("type"), profile.get("localhostProfile"));
    match kind.str() {
        "" => errors.push(kind.required("type is required when seccompProfile is set")),
        _ => one_of(&kind, &PROFILES, errors),
    }
    if kind.str() == "Localhost" {
        if local.is_absent() {
            errors.push(local.required("must be set when seccomp type is Localhost"));
        } else {
            paths::descending(local.str(), local.path(), errors);
        }
    } else if local.is_present() {
        let bad_value = BadValue::Text(pods::print("SeccompProfile", profile.value()));
        errors.push(Error::invalid(local.path(), bad_value, "can only be set when seccomp type is Localhost"));
    }
}

fn sysctls(spec: &At<'_>, context: &At<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for sysctl in context.get("sysctls").items() {
        let name = sysctl.get("name");
        if required(&name, errors) {
            if !is_sysctl(name.str()) {
                let detail = format!(
                    r"must have at most {SYSCTL_MAX} characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
                );
                errors.push(name.invalid(detail));
            } else if seen.contains(name.str()) {
                errors.push(name.duplicate());
            }
        }
        let namespace = sysctl_namespace(name.str());
        for (field, of) in [("hostNetwork", "net"), ("hostIPC", "ipc")] {
            if spec.get(field).bool() && namespace == Some(of) {
                errors.push(name.invalid(format!("may not be specified when '{field}' is true")));
                break;
            }
        }
        seen.insert(name.str().to_owned());
    }
}

fn is_sysctl(name: &str) -> bool {
    let is_segment = |segment: &str| {
        let is_word = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        let bytes = segment.as_bytes();
        let ends = [bytes.first(), bytes.last()].iter().all(|end| end.is_some_and(|c| is_word(*c)));
        ends && bytes.iter().all(|c| is_word(*c) || matches!(c, b'-' | b'_'))
    };
    name.len() <= SYSCTL_MAX && name.split(['.', '/']).all(is_segment)
}

/// Returns the namespace of a sysctl, in dot or slash notation.
fn sysctl_namespace(name: &str) -> Option<&'static str> {
    const IPC: [&str; 4] = ["kernel.shm", "kernel.msg", "fs.mqueue.", "kernel.sem"];
    let first = name.find(['.', '/']);
    let name = match first {
        // If the first separator is a slash, dots and slashes are exchanged.
        Some(at) if name[at..].starts_with('/') => name
            .chars()
            .map(|c| {
                if c == '/' {
                    '.'
                } else if c == '.' {
                    '/'
                } else {
                    c
                }
            })
            .collect(),
        _ => name.to_owned(),
    };
    if name.starts_with("net.") {
        Some("net")
    } else {
        let is_ipc = name == "kernel.sem" || IPC[..3].iter().any(|prefix| name.starts_with(prefix));
        is_ipc.then_some("ipc")
    }
}
