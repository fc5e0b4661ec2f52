//! Pod Security Standards checks, in the order in which violations are reported.

use std::collections::BTreeSet;
use std::fmt;

use apimachinery::meta::Meta;
use apimachinery::{Object, Value, go};

use super::level::{Level, LevelVersion};
use crate::pods::{containers, spec};

/// A violated check, with details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub reason: String,
    detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.detail.as_str() {
            "" => out.write_str(&self.reason),
            detail => write!(out, "{} ({detail})", self.reason),
        }
    }
}

type Check = fn(&Value, u32) -> Option<Violation>;

/// The baseline checks, in upstream's order.
const BASELINE: [Check; 11] = [
    app_armor,
    capabilities_baseline,
    host_namespaces,
    host_path_volumes,
    host_ports,
    host_probes,
    privileged,
    proc_mount,
    se_linux,
    sysctls,
    windows_host_process,
];
/// Baseline checks that are skipped at the restricted level, where a restricted check covers the same field.
const OVERLAPPING: [Check; 1] = [seccomp_baseline];
const RESTRICTED: [Check; 6] = [
    allow_privilege_escalation,
    capabilities_restricted,
    restricted_volumes,
    run_as_non_root,
    run_as_user,
    seccomp_restricted,
];

/// The newest version that changed a check.
const NEWEST: u32 = 36;

/// Returns all violations of a pod.
pub(super) fn all(level: &LevelVersion, pod: &Value) -> Vec<Violation> {
    let version = level.version.unwrap_or(NEWEST).min(NEWEST);
    let run = |checks: &[Check]| checks.iter().filter_map(|check| check(pod, version)).collect::<Vec<_>>();
    match level.level {
        Level::Privileged => Vec::new(),
        Level::Baseline => {
            let mut found = run(&BASELINE);
            found.extend(run(&OVERLAPPING));
            found
        }
        Level::Restricted => {
            let mut found = run(&BASELINE);
            // Before 1.19 there was no restricted seccomp check to overlap with.
            found.extend(run(&RESTRICTED));
            found
        }
    }
}

fn violation(reason: impl Into<String>, detail: impl Into<String>) -> Option<Violation> {
    Some(Violation { reason: reason.into(), detail: detail.into() })
}

fn visited(pod: &Value) -> impl Iterator<Item = &Value> {
    containers(spec(pod), &["initContainers", "containers", "ephemeralContainers"])
}

fn quoted<'a>(values: impl IntoIterator<Item = &'a str>) -> String {
    values.into_iter().map(go::quote).collect::<Vec<_>>().join(", ")
}

fn plural<'a>(one: &'a str, many: &'a str, count: usize) -> &'a str {
    if count == 1 { one } else { many }
}

/// Formats container names: `container "a"`, `containers "a", "b"`.
fn named(names: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names.iter().copied()))
}

/// Returns the names of containers that satisfy the predicate.
fn bad<'a>(pod: &'a Value, holds: impl Fn(&'a Value) -> bool) -> Vec<&'a str> {
    visited(pod).filter(|container| holds(container)).map(|container| container.text_at(&["name"])).collect()
}

fn context<'a>(of: &'a Value, path: &[&str]) -> Option<&'a Value> {
    of.get("securityContext")?.at(path).filter(|value| !value.is_null())
}

/// Formats the pod and containers with a violating security context: `pod and containers "a", "b"`.
fn setters<'a>(pod: &'a Value, wrong: impl Fn(&'a Value) -> bool) -> Option<String> {
    let mut setters = Vec::new();
    if wrong(spec(pod)) {
        setters.push("pod".to_owned());
    }
    let containers = bad(pod, &wrong);
    if !containers.is_empty() {
        setters.push(named(&containers));
    }
    (!setters.is_empty()).then(|| setters.join(" and "))
}

fn app_armor(pod: &Value, _: u32) -> Option<Violation> {
    let mut values = BTreeSet::new();
    let profile = |of: &Value| context(of, &["appArmorProfile", "type"])?.as_str().map(str::to_owned);
    let wrong = |of: &Value| profile(of).filter(|name| !matches!(name.as_str(), "RuntimeDefault" | "Localhost"));
    values.extend(wrong(spec(pod)));
    values.extend(visited(pod).filter_map(wrong));
    let mut who: Vec<String> = setters(pod, |of| wrong(of).is_some()).into_iter().collect();
    let annotations = Meta::of(pod).annotations().into_iter().flat_map(Object::iter);
    let forbidden: BTreeSet<String> = annotations
        .filter(|(key, _)| key.starts_with("container.apparmor.security.beta.kubernetes.io/"))
        .filter_map(|(key, value)| Some((key, value.as_str()?)))
        .filter(|(_, value)| !value.is_empty() && *value != "runtime/default" && !value.starts_with("localhost/"))
        .map(|(key, value)| format!("{key}={}", go::quote(value)))
        .collect();
    if !forbidden.is_empty() {
        who.push(plural("annotation", "annotations", forbidden.len()).to_owned());
    }
    if who.is_empty() {
        return None;
    }
    let values: Vec<&str> = values.iter().chain(&forbidden).map(String::as_str).collect();
    violation(
        plural("forbidden AppArmor profile", "forbidden AppArmor profiles", values.len()),
        format!("{} must not set AppArmor profile type to {}", who.join(" and "), quoted(values)),
    )
}

const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

fn capabilities<'a>(container: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    let of = container.at(&["securityContext", "capabilities"]).unwrap_or(&Value::Null);
    of.list_at(&[field]).iter().filter_map(Value::as_str)
}

fn adding(pod: &Value, allowed: &[&str]) -> Option<String> {
    let forbidden = |container| capabilities(container, "add").filter(|name| !allowed.contains(name));
    let names: BTreeSet<&str> = visited(pod).flat_map(forbidden).collect();
    let containers = bad(pod, |container| forbidden(container).next().is_some());
    (!names.is_empty()).then(|| {
        format!("{} must not include {} in securityContext.capabilities.add", named(&containers), quoted(names))
    })
}

fn capabilities_baseline(pod: &Value, _: u32) -> Option<Violation> {
    violation("non-default capabilities", adding(pod, &DEFAULT_CAPABILITIES)?)
}

fn host_namespaces(pod: &Value, _: u32) -> Option<Violation> {
    let set = ["hostNetwork", "hostPID", "hostIPC"].iter().filter(|field| spec(pod)[**field] == Value::Bool(true));
    let set: Vec<String> = set.map(|field| format!("{field}=true")).collect();
    if set.is_empty() { None } else { violation("host namespaces", set.join(", ")) }
}

fn host_path_volumes(pod: &Value, _: u32) -> Option<Violation> {
    let volumes = spec(pod).list_at(&["volumes"]).iter().filter(|volume| volume.get("hostPath").is_some());
    let names: Vec<&str> = volumes.map(|volume| volume.text_at(&["name"])).collect();
    if names.is_empty() {
        return None;
    }
    violation("hostPath volumes", format!("{} {}", plural("volume", "volumes", names.len()), quoted(names.clone())))
}

fn host_ports(pod: &Value, _: u32) -> Option<Violation> {
    let ports_of = |container| {
        let ports = Value::list_at(container, &["ports"]).iter().filter_map(|port| port["hostPort"].as_int());
        ports.filter(|port| *port != 0)
    };
    let containers = bad(pod, |container| ports_of(container).next().is_some());
    let ports: BTreeSet<String> = visited(pod).flat_map(ports_of).map(|port| port.to_string()).collect();
    if ports.is_empty() {
        return None;
    }
    let list: Vec<&str> = ports.iter().map(String::as_str).collect();
    let (use_word, port_word) = (plural("uses", "use", containers.len()), plural("hostPort", "hostPorts", ports.len()));
    violation("hostPort", format!("{} {use_word} {port_word} {}", named(&containers), list.join(", ")))
}

fn host_probes(pod: &Value, version: u32) -> Option<Violation> {
    const HANDLERS: [&[&str]; 5] = [
        &["livenessProbe"],
        &["readinessProbe"],
        &["startupProbe"],
        &["lifecycle", "postStart"],
        &["lifecycle", "preStop"],
    ];
    if version < 34 {
        return None;
    }
    let hosts_of = |container| {
        let handlers = HANDLERS.iter().filter_map(move |path| Value::at(container, path));
        let hosts = handlers.flat_map(|handler| {
            ["httpGet", "tcpSocket"].iter().filter_map(move |kind| handler.str_at(&[kind, "host"]))
        });
        hosts.filter(|host| !host.is_empty())
    };
    let names: BTreeSet<&str> = bad(pod, |container| hosts_of(container).next().is_some()).into_iter().collect();
    let hosts: BTreeSet<&str> = visited(pod).flat_map(hosts_of).collect();
    if names.is_empty() {
        return None;
    }
    let names: Vec<&str> = names.into_iter().collect();
    let uses = plural("uses", "use", names.len());
    let what = plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.len());
    violation("probe or lifecycle host", format!("{} {uses} {what} {}", named(&names), quoted(hosts)))
}

fn privileged(pod: &Value, _: u32) -> Option<Violation> {
    let names = bad(pod, |container| context(container, &["privileged"]) == Some(&Value::Bool(true)));
    if names.is_empty() {
        return None;
    }
    violation("privileged", format!("{} must not set securityContext.privileged=true", named(&names)))
}

fn proc_mount(pod: &Value, version: u32) -> Option<Violation> {
    if version >= 35 && in_user_namespace(pod) {
        return None;
    }
    let wrong = |container| {
        let mount = context(container, &["procMount"]).and_then(Value::as_str);
        mount.filter(|mount| *mount != "Default")
    };
    let values: BTreeSet<&str> = visited(pod).filter_map(wrong).collect();
    let names = bad(pod, |container| wrong(container).is_some());
    if names.is_empty() {
        return None;
    }
    violation("procMount", format!("{} must not set securityContext.procMount to {}", named(&names), quoted(values)))
}

/// Whether the pod runs in a user namespace, so that root in the pod is unprivileged on the node.
fn in_user_namespace(pod: &Value) -> bool {
    spec(pod)["hostUsers"] == Value::Bool(false)
}

fn se_linux(pod: &Value, version: u32) -> Option<Violation> {
    let known = |ty: &str| {
        matches!(ty, "" | "container_t" | "container_init_t" | "container_kvm_t")
            || version >= 31 && ty == "container_engine_t"
    };
    let options = |of| context(of, &["seLinuxOptions"]).unwrap_or(&Value::Null);
    let wrong = |of| {
        let options = options(of);
        !known(options.text_at(&["type"]))
            || !options.text_at(&["user"]).is_empty()
            || !options.text_at(&["role"]).is_empty()
    };
    let who = setters(pod, wrong)?;
    let all: Vec<&Value> = std::iter::once(spec(pod)).chain(visited(pod)).map(options).collect();
    let types: BTreeSet<&str> = all.iter().map(|of| of.text_at(&["type"])).filter(|ty| !known(ty)).collect();
    let mut data = Vec::new();
    if !types.is_empty() {
        data.push(format!("{} {}", plural("type", "types", types.len()), quoted(types.clone())));
    }
    for field in ["user", "role"] {
        if all.iter().any(|of| !of.text_at(&[field]).is_empty()) {
            data.push(format!("{field} may not be set"));
        }
    }
    violation("seLinuxOptions", format!("{who} set forbidden securityContext.seLinuxOptions: {}", data.join("; ")))
}

/// Sysctls that only affect the pod, with the minor version that allowed them.
const SYSCTLS: [(&str, u32); 11] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
];

fn sysctls(pod: &Value, version: u32) -> Option<Violation> {
    let known = |name: &str| {
        SYSCTLS.iter().any(|(known, since)| *known == name && *since <= version)
            || name == "net.ipv4.tcp_wmem" && version >= 32
    };
    let all = spec(pod)["securityContext"].list_at(&["sysctls"]).iter().map(|sysctl| sysctl.text_at(&["name"]));
    let forbidden: Vec<&str> = all.filter(|name| !known(name)).collect();
    if forbidden.is_empty() { None } else { violation("forbidden sysctls", forbidden.join(", ")) }
}

fn windows_host_process(pod: &Value, _: u32) -> Option<Violation> {
    let wrong = |of| context(of, &["windowsOptions", "hostProcess"]) == Some(&Value::Bool(true));
    let who = setters(pod, wrong)?;
    violation("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true"))
}

fn seccomp_type(of: &Value) -> Option<&str> {
    context(of, &["seccompProfile"]).map(|profile| profile.text_at(&["type"]))
}

fn bad_seccomp(of: &Value) -> Option<&str> {
    seccomp_type(of).filter(|name| !matches!(*name, "RuntimeDefault" | "Localhost"))
}

fn explicit_seccomp(pod: &Value) -> Option<Violation> {
    let who = setters(pod, |of| bad_seccomp(of).is_some())?;
    let values: BTreeSet<&str> = std::iter::once(spec(pod)).chain(visited(pod)).filter_map(bad_seccomp).collect();
    violation("seccompProfile", format!("{who} must not set securityContext.seccompProfile.type to {}", quoted(values)))
}

fn seccomp_baseline(pod: &Value, version: u32) -> Option<Violation> {
    if version >= 19 {
        return explicit_seccomp(pod);
    }
    let fine = |value: &str| matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
    let of_containers = visited(pod)
        .map(|container| format!("container.seccomp.security.alpha.kubernetes.io/{}", container.text_at(&["name"])));
    let keys = of_containers.chain(["seccomp.security.alpha.kubernetes.io/pod".to_owned()]);
    let wrong = keys.filter_map(|key| {
        let value = Meta::of(pod).annotation(&key).filter(|value| !fine(value))?;
        Some(format!("{key}={}", go::quote(value)))
    });
    let wrong: BTreeSet<String> = wrong.collect();
    if wrong.is_empty() {
        return None;
    }
    let word = plural("annotation", "annotations", wrong.len());
    let list: Vec<&str> = wrong.iter().map(String::as_str).collect();
    violation("seccompProfile", format!("forbidden {word} {}", list.join(", ")))
}

fn seccomp_restricted(pod: &Value, version: u32) -> Option<Violation> {
    if version < 19 {
        return seccomp_baseline(pod, version);
    }
    if version >= 25 && is_windows(pod) {
        return None;
    }
    if let Some(found) = explicit_seccomp(pod) {
        return Some(found);
    }
    let whole = seccomp_type(spec(pod)).is_some();
    let names = bad(pod, |container| !whole && seccomp_type(container).is_none());
    if names.is_empty() {
        return None;
    }
    violation(
        "seccompProfile",
        format!(
            "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
            named(&names)
        ),
    )
}

fn is_windows(pod: &Value) -> bool {
    spec(pod).str_at(&["os", "name"]) == Some("windows")
}

fn allow_privilege_escalation(pod: &Value, version: u32) -> Option<Violation> {
    if version < 8 || version >= 25 && is_windows(pod) {
        return None;
    }
    let names = bad(pod, |container| context(container, &["allowPrivilegeEscalation"]) != Some(&Value::Bool(false)));
    if names.is_empty() {
        return None;
    }
    violation(
        "allowPrivilegeEscalation != false",
        format!("{} must set securityContext.allowPrivilegeEscalation=false", named(&names)),
    )
}

fn capabilities_restricted(pod: &Value, version: u32) -> Option<Violation> {
    if version < 22 || version >= 25 && is_windows(pod) {
        return None;
    }
    let without_drop_all = bad(pod, |container| !capabilities(container, "drop").any(|name| name == "ALL"));
    let mut details = Vec::new();
    if !without_drop_all.is_empty() {
        details.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", named(&without_drop_all)));
    }
    details.extend(adding(pod, &["NET_BIND_SERVICE"]));
    if details.is_empty() { None } else { violation("unrestricted capabilities", details.join("; ")) }
}

/// Volume types that only give access to data from the API.
const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

fn restricted_volumes(pod: &Value, _: u32) -> Option<Violation> {
    let wrong = |volume: &&Value| !VOLUMES.iter().any(|kind| volume.get(kind).is_some());
    let volumes: Vec<&Value> = spec(pod).list_at(&["volumes"]).iter().filter(wrong).collect();
    if volumes.is_empty() {
        return None;
    }
    let names: Vec<&str> = volumes.iter().map(|volume| volume.text_at(&["name"])).collect();
    let kind = |volume: &&Value| {
        let keys = volume.as_object().into_iter().flat_map(Object::keys);
        keys.filter(|key| *key != "name").map(str::to_owned).next().unwrap_or_else(|| "unknown".to_owned())
    };
    let kinds: BTreeSet<String> = volumes.iter().map(kind).collect();
    violation(
        "restricted volume types",
        format!(
            "{} {} {} restricted volume {} {}",
            plural("volume", "volumes", names.len()),
            quoted(names.iter().copied()),
            plural("uses", "use", names.len()),
            plural("type", "types", kinds.len()),
            quoted(kinds.iter().map(String::as_str))
        ),
    )
}

fn run_as_non_root(pod: &Value, version: u32) -> Option<Violation> {
    if version >= 35 && in_user_namespace(pod) {
        return None;
    }
    const REASON: &str = "runAsNonRoot != true";
    let non_root = |of| context(of, &["runAsNonRoot"]).and_then(Value::as_bool);
    if let Some(who) = setters(pod, |of| non_root(of) == Some(false)) {
        return violation(REASON, format!("{who} must not set securityContext.runAsNonRoot=false"));
    }
    let whole = non_root(spec(pod)) == Some(true);
    let names = bad(pod, |container| !whole && non_root(container).is_none());
    if names.is_empty() {
        return None;
    }
    violation(REASON, format!("pod or {} must set securityContext.runAsNonRoot=true", named(&names)))
}

fn run_as_user(pod: &Value, version: u32) -> Option<Violation> {
    if version < 23 || version >= 35 && in_user_namespace(pod) {
        return None;
    }
    let who = setters(pod, |of| context(of, &["runAsUser"]).and_then(Value::as_int) == Some(0))?;
    violation("runAsUser=0", format!("{who} must not set runAsUser=0"))
}
