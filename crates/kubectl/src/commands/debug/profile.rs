//! Profiles of debug containers: security context, namespaces and mounts by purpose.

use apimachinery::{Object, Value, value};

/// A profile of `--profile`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Profile {
    Legacy,
    General,
    Baseline,
    Restricted,
    Netadmin,
    Sysadmin,
}

/// The kind of debug container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// An ephemeral container in the pod.
    Ephemeral,
    /// A copy of the pod.
    Copy,
    /// A pod on the node.
    Node,
}

/// The fields that a copy keeps of the pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Keep {
    pub labels: bool,
    pub annotations: bool,
    pub liveness: bool,
    pub readiness: bool,
    pub startup: bool,
    pub init_containers: bool,
}

impl Profile {
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        Ok(match name {
            "legacy" => Self::Legacy,
            "general" => Self::General,
            "baseline" => Self::Baseline,
            "restricted" => Self::Restricted,
            "netadmin" => Self::Netadmin,
            "sysadmin" => Self::Sysadmin,
            _ => return Err(format!("unknown profile: {name}")),
        })
    }

    /// Applies the profile to a pod and its debug container.
    pub(super) fn apply(self, pod: &mut Value, container: &str, style: Style, keep: Keep) {
        if matches!(self, Self::Baseline | Self::Restricted) || (self, style) == (Self::General, Style::Node) {
            clear_security_context(pod, container);
        }
        match self {
            Self::Restricted => restrict(pod, container),
            Self::Netadmin => add_capabilities(pod, container, &["NET_ADMIN", "NET_RAW"]),
            Self::Sysadmin => set_security(pod, container, "privileged", true.into()),
            Self::General if style != Style::Node => add_capabilities(pod, container, &["SYS_PTRACE"]),
            Self::Legacy | Self::General | Self::Baseline => {}
        }
        match style {
            Style::Ephemeral => {}
            Style::Copy if self == Self::Legacy => remove(pod, "metadata", "labels"),
            Style::Copy => {
                trim(pod, keep);
                share_processes(pod);
            }
            Style::Node => {
                if matches!(self, Self::Legacy | Self::General | Self::Sysadmin) {
                    mount_root(pod, container);
                }
                if matches!(self, Self::Legacy | Self::General | Self::Netadmin | Self::Sysadmin) {
                    use_host_namespaces(pod);
                }
            }
        }
    }
}

fn restrict(pod: &mut Value, container: &str) {
    set_security(pod, container, "runAsNonRoot", true.into());
    set_security(pod, container, "capabilities", value!({"drop": ["ALL"]}));
    set_security(pod, container, "allowPrivilegeEscalation", false.into());
    set_security(pod, container, "seccompProfile", value!({"type": "RuntimeDefault"}));
}

/// Removes the fields from a copy that are not kept.
fn trim(pod: &mut Value, keep: Keep) {
    if !keep.labels {
        remove(pod, "metadata", "labels");
    }
    if !keep.annotations {
        remove(pod, "metadata", "annotations");
    }
    let probes = [("livenessProbe", keep.liveness), ("readinessProbe", keep.readiness), ("startupProbe", keep.startup)];
    let containers = pod.get_mut("spec").and_then(|spec| spec.get_mut("containers")).and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
        for (probe, _) in probes.iter().filter(|(_, keep)| !keep) {
            container.remove(probe);
        }
    }
    if !keep.init_containers {
        remove(pod, "spec", "initContainers");
    }
}

fn share_processes(pod: &mut Value) {
    if let Some(spec) = spec(pod) {
        spec.get_or_insert_with("shareProcessNamespace", || true.into());
    }
}

/// Mounts the root directory of the node at `/host`.
fn mount_root(pod: &mut Value, container: &str) {
    if let Some(spec) = spec(pod) {
        push(spec, "volumes", value!({"name": "host-root", "hostPath": {"path": "/"}}));
    }
    if let Some(container) = find_container(pod, container) {
        push(container, "volumeMounts", value!({"name": "host-root", "mountPath": "/host"}));
    }
}

fn use_host_namespaces(pod: &mut Value) {
    if let Some(spec) = spec(pod) {
        for field in ["hostNetwork", "hostPID", "hostIPC"] {
            spec.insert(field, true);
        }
    }
}

fn clear_security_context(pod: &mut Value, container: &str) {
    if let Some(container) = find_container(pod, container) {
        container.remove("securityContext");
    }
}

fn set_security(pod: &mut Value, container: &str, field: &str, value: Value) {
    if let Some(container) = find_container(pod, container)
        && let Some(context) = container.get_or_insert_with("securityContext", Value::object).as_object_mut()
    {
        context.insert(field, value);
    }
}

fn add_capabilities(pod: &mut Value, container: &str, names: &[&str]) {
    if let Some(container) = find_container(pod, container)
        && let Some(context) = container.get_or_insert_with("securityContext", Value::object).as_object_mut()
        && let Some(capabilities) = context.get_or_insert_with("capabilities", Value::object).as_object_mut()
    {
        for name in names {
            push(capabilities, "add", Value::from(*name));
        }
    }
}

fn push(object: &mut Object, field: &str, item: Value) {
    if let Some(list) = object.get_or_insert_with(field, || Value::Array(Vec::new())).as_array_mut() {
        list.push(item);
    }
}

fn remove(pod: &mut Value, parent: &str, field: &str) {
    if let Some(parent) = pod.get_mut(parent).and_then(Value::as_object_mut) {
        parent.remove(field);
    }
}

fn spec(pod: &mut Value) -> Option<&mut Object> {
    pod.get_mut("spec")?.as_object_mut()
}

/// Returns a container of any kind.
pub(super) fn find_container<'p>(pod: &'p mut Value, name: &str) -> Option<&'p mut Object> {
    let spec = pod.get_mut("spec")?.as_object_mut()?;
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    spec.iter_mut()
        .filter(|(field, _)| lists.contains(field))
        .filter_map(|(_, list)| list.as_array_mut())
        .flatten()
        .filter_map(Value::as_object_mut)
        .find(|container| container.get("name").and_then(Value::as_str) == Some(name))
}
