//! Security contexts of sandboxes and containers as CRI messages.

use std::path::PathBuf;

use apimachinery::Value;
use node_api::cri::v1;
use node_api::cri::v1::security_profile::ProfileType;

use crate::config::Config;
use crate::pod::{Container, Pod, Role};

/// A container violates `runAsNonRoot`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecurityError {
    #[error("container has runAsNonRoot and image will run as root (pod: \"{pod}\", container: {container})")]
    Root { pod: String, container: String },
    /// The image's user is a name, so it cannot be verified.
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root (pod: \"{pod}\", container: {container})"
    )]
    Unknown { pod: String, container: String, user: String },
}

/// Seccomp settings of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profiles {
    /// Directory of `Localhost` profiles.
    pub dir: PathBuf,
    /// Whether containers without a profile use `RuntimeDefault` instead of `Unconfined`.
    pub by_default: bool,
}

impl Profiles {
    /// Reads the settings of a configuration.
    pub fn of(config: &Config) -> Self {
        Self { dir: config.root_dir.join("seccomp"), by_default: config.seccomp_default }
    }
}

/// Paths hidden from containers, as in other runtimes.
const MASKED: &[&str] = &[
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
/// Paths that are read-only in containers.
const READ_ONLY: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Returns the security context of a sandbox.
pub fn of_sandbox(pod: Pod<'_>) -> v1::LinuxSandboxSecurityContext {
    let context = &pod.spec()["securityContext"];
    let privileged =
        pod.containers().any(|container| container.spec["securityContext"]["privileged"].as_bool() == Some(true));
    let (groups, policy) = groups(pod);
    v1::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(pod)),
        run_as_user: number(&context["runAsUser"]),
        run_as_group: number(&context["runAsGroup"]).filter(|_| !context["runAsUser"].is_null()),
        supplemental_groups: groups,
        supplemental_groups_policy: policy,
        privileged,
        seccomp: Some(v1::SecurityProfile::default()),
        ..Default::default()
    }
}

/// Returns the security context of a container whose image runs as `image_user`.
pub fn of_container(
    pod: Pod<'_>,
    container: Container<'_>,
    image_user: &ImageUser,
    profiles: &Profiles,
    target_id: Option<String>,
) -> Result<v1::LinuxContainerSecurityContext, SecurityError> {
    let own = &container.spec["securityContext"];
    let of_pod = &pod.spec()["securityContext"];
    let either =
        |field: &str| [own, of_pod].into_iter().find_map(|context| context.get(field).filter(|value| !value.is_null()));
    let flag = |field: &str| own[field].as_bool().unwrap_or(false);
    let run_as_user = either("runAsUser").and_then(number);
    let as_image = run_as_user.is_none();
    verify(pod, container, either("runAsNonRoot"), run_as_user.as_ref().map(|id| id.value), image_user)?;
    let (groups, policy) = groups(pod);
    let privileged = flag("privileged");
    let mut options = namespaces(pod);
    if let (Role::Ephemeral, Some(target)) = (container.role, target_id) {
        options.set_pid(v1::NamespaceMode::Target);
        options.target_id = target;
    }
    let unmasked = own.str_at(&["procMount"]) == Some("Unmasked");
    let paths =
        |list: &[&str]| if unmasked { Vec::new() } else { list.iter().map(|path| (*path).to_owned()).collect() };
    Ok(v1::LinuxContainerSecurityContext {
        capabilities: Some(v1::Capability {
            add_capabilities: strings(&own["capabilities"]["add"]),
            drop_capabilities: strings(&own["capabilities"]["drop"]),
            add_ambient_capabilities: Vec::new(),
        }),
        privileged,
        namespace_options: Some(options),
        // An image without a user runs as root. The UID is set explicitly, since runtimes reject a group without a
        // user.
        run_as_user: run_as_user.or_else(|| image_user.number().map(|value| v1::Int64Value { value })),
        run_as_username: if as_image && image_user.uid.is_none() { image_user.name.clone() } else { String::new() },
        run_as_group: either("runAsGroup").and_then(number),
        readonly_rootfs: flag("readOnlyRootFilesystem"),
        supplemental_groups: groups,
        supplemental_groups_policy: policy,
        no_new_privs: own["allowPrivilegeEscalation"].as_bool() == Some(false),
        masked_paths: paths(MASKED),
        readonly_paths: paths(READ_ONLY),
        seccomp: Some(profiles.seccomp(either("seccompProfile"))),
        apparmor: either("appArmorProfile").map(profile),
        ..Default::default()
    })
}

/// The user of an image's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageUser {
    /// Set if the user is numeric.
    pub uid: Option<i64>,
    /// The user name otherwise; empty if the image has no user.
    pub name: String,
}

impl ImageUser {
    /// Returns the UID if it is known without the image's files.
    fn number(&self) -> Option<i64> {
        self.uid.or_else(|| self.name.is_empty().then_some(0))
    }
}

fn verify(
    pod: Pod<'_>,
    container: Container<'_>,
    non_root: Option<&Value>,
    uid: Option<i64>,
    image: &ImageUser,
) -> Result<(), SecurityError> {
    if non_root.and_then(Value::as_bool) != Some(true) {
        return Ok(());
    }
    let (pod, container) = (pod.described(), container.name().to_owned());
    match (uid.or(image.uid), image.name.as_str()) {
        (Some(0), _) | (None, "") => Err(SecurityError::Root { pod, container }),
        (Some(_), _) => Ok(()),
        (None, user) => Err(SecurityError::Unknown { pod, container, user: user.to_owned() }),
    }
}

fn namespaces(pod: Pod<'_>) -> v1::NamespaceOption {
    let mode = |host: bool, other: v1::NamespaceMode| if host { v1::NamespaceMode::Node } else { other };
    let pid = if pod.flag("shareProcessNamespace") { v1::NamespaceMode::Pod } else { v1::NamespaceMode::Container };
    let mut options = v1::NamespaceOption::default();
    options.set_network(mode(pod.flag("hostNetwork"), v1::NamespaceMode::Pod));
    options.set_ipc(mode(pod.flag("hostIPC"), v1::NamespaceMode::Pod));
    options.set_pid(mode(pod.flag("hostPID"), pid));
    options
}

/// Returns the supplemental groups of all containers, including `fsGroup`, and their policy.
fn groups(pod: Pod<'_>) -> (Vec<i64>, i32) {
    let context = &pod.spec()["securityContext"];
    let mut groups: Vec<i64> = context["fsGroup"].as_int().into_iter().collect();
    groups.extend(context["supplementalGroups"].as_array().unwrap_or_default().iter().filter_map(Value::as_int));
    let strict = context.str_at(&["supplementalGroupsPolicy"]) == Some("Strict");
    let policy = if strict { v1::SupplementalGroupsPolicy::Strict } else { v1::SupplementalGroupsPolicy::Merge };
    (groups, policy.into())
}

impl Profiles {
    fn seccomp(&self, value: Option<&Value>) -> v1::SecurityProfile {
        let default = if self.by_default { ProfileType::RuntimeDefault } else { ProfileType::Unconfined };
        let of_default = v1::SecurityProfile { profile_type: default.into(), ..Default::default() };
        let mut found = value.map_or(of_default, profile);
        if found.profile_type() == ProfileType::Localhost {
            found.localhost_ref = self.dir.join(&found.localhost_ref).display().to_string();
        }
        found
    }
}

/// Converts a profile. The runtime decides whether it applies to a privileged container.
fn profile(value: &Value) -> v1::SecurityProfile {
    let kind = match value.str_at(&["type"]) {
        Some("RuntimeDefault") => ProfileType::RuntimeDefault,
        Some("Localhost") => ProfileType::Localhost,
        _ => ProfileType::Unconfined,
    };
    let reference = value.str_at(&["localhostProfile"]).filter(|_| kind == ProfileType::Localhost);
    v1::SecurityProfile { profile_type: kind.into(), localhost_ref: reference.unwrap_or_default().to_owned() }
}

fn number(value: &Value) -> Option<v1::Int64Value> {
    value.as_int().map(|value| v1::Int64Value { value })
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap_or_default().iter().filter_map(|word| word.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use apimachinery::value;

    use super::*;

    fn context(pod: Value, own: Value, user: &ImageUser) -> Result<v1::LinuxContainerSecurityContext, SecurityError> {
        let pod = value!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {"securityContext": pod}});
        let spec = value!({"name": "c", "securityContext": own});
        of_container(Pod(&pod), Container { spec: &spec, role: Role::App }, user, &Profiles::default(), None)
    }

    #[test]
    fn seccomp_profiles_are_node_files_with_a_node_default() {
        let check = |by_default: bool, value: Option<Value>, expect: (ProfileType, &str)| {
            let profiles = Profiles { dir: "/var/lib/kubelet/seccomp".into(), by_default };
            let found = profiles.seccomp(value.as_ref());
            assert_eq!((found.profile_type(), found.localhost_ref.as_str()), expect, "{value:?} {by_default}");
        };
        let local = value!({"type": "Localhost", "localhostProfile": "team/a.json"});
        check(false, Some(local.clone()), (ProfileType::Localhost, "/var/lib/kubelet/seccomp/team/a.json"));
        check(true, Some(local), (ProfileType::Localhost, "/var/lib/kubelet/seccomp/team/a.json"));
        check(true, Some(value!({"type": "Unconfined"})), (ProfileType::Unconfined, ""));
        check(false, Some(value!({"type": "RuntimeDefault"})), (ProfileType::RuntimeDefault, ""));
        check(false, None, (ProfileType::Unconfined, ""));
        check(true, None, (ProfileType::RuntimeDefault, ""));
    }

    #[test]
    fn run_as_group_alone_uses_root_if_the_image_has_no_user() {
        let check = |user: &ImageUser, expect: (Option<i64>, &str)| {
            let found = context(value!({"runAsGroup": 30}), value!({}), user).unwrap();
            assert_eq!(found.run_as_group.map(|id| id.value), Some(30));
            assert_eq!((found.run_as_user.map(|id| id.value), found.run_as_username.as_str()), expect, "{user:?}");
        };
        check(&ImageUser::default(), (Some(0), ""));
        check(&ImageUser { uid: None, name: "web".into() }, (None, "web"));
        check(&ImageUser { uid: Some(5), name: String::new() }, (Some(5), ""));
    }

    #[test]
    fn container_context_overrides_pod_context_and_image() {
        let user = ImageUser { uid: Some(7), name: String::new() };
        let uid = |pod: Value, own: Value| context(pod, own, &user).unwrap().run_as_user.map(|id| id.value);
        assert_eq!(uid(value!({}), value!({})), Some(7));
        assert_eq!(uid(value!({"runAsUser": 8}), value!({})), Some(8));
        assert_eq!(uid(value!({"runAsUser": 8}), value!({"runAsUser": 9})), Some(9));
        let found = context(value!({"fsGroup": 5, "supplementalGroups": [6]}), value!({}), &user).unwrap();
        assert_eq!(found.supplemental_groups, [5, 6]);
    }

    #[test]
    fn localhost_seccomp_profile_without_a_name_is_never_unconfined() {
        for by_default in [false, true] {
            let profiles = Profiles { dir: "/var/lib/kubelet/seccomp".into(), by_default };
            for value in [value!({"type": "Localhost"}), value!({"type": "Localhost", "localhostProfile": ""})] {
                // The path is a directory, which no runtime can read as a profile: the container does not start.
                let found = profiles.seccomp(Some(&value));
                let expect = (ProfileType::Localhost, "/var/lib/kubelet/seccomp/");
                assert_eq!((found.profile_type(), found.localhost_ref.as_str()), expect, "{value}");
            }
        }
    }

    #[test]
    fn run_as_non_root_rejects_root() {
        let must = || value!({"runAsNonRoot": true});
        let named = ImageUser { uid: None, name: "web".into() };
        assert!(matches!(context(must(), value!({}), &ImageUser::default()), Err(SecurityError::Root { .. })));
        assert!(matches!(context(must(), value!({}), &named), Err(SecurityError::Unknown { .. })));
        assert!(context(must(), value!({"runAsUser": 3}), &ImageUser::default()).is_ok());
        assert!(matches!(context(must(), value!({"runAsUser": 0}), &named), Err(SecurityError::Root { .. })));
    }
}
