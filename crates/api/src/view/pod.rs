//! View of a Pod.

use apimachinery::meta::Meta;
use apimachinery::{Key, Value};

use super::container::{Container, RestartPolicy, Role};

/// Annotation of pods with their source: `file`, `http` or `api`.
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// Annotation of mirror pods in the API server.
pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
/// Annotation with the hash of a static pod's manifest.
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";

#[derive(Clone, Copy, Debug)]
pub struct Pod<'a>(pub &'a Value);

/// The spec of a pod or of a pod template.
#[derive(Clone, Copy, Debug)]
pub struct PodSpec<'a>(pub &'a Value);

impl<'a> Pod<'a> {
    pub fn meta(self) -> Meta<'a> {
        Meta::of(self.0)
    }

    pub fn name(self) -> &'a str {
        self.meta().name()
    }

    pub fn namespace(self) -> &'a str {
        self.meta().namespace()
    }

    pub fn uid(self) -> &'a str {
        self.meta().uid()
    }

    pub fn key(self) -> Key {
        Key::of(self.0)
    }

    pub fn spec(self) -> &'a Value {
        &self.0["spec"]
    }

    pub fn pod_spec(self) -> PodSpec<'a> {
        PodSpec(self.spec())
    }

    /// Returns a boolean field of the spec; false if absent.
    pub fn flag(self, field: &str) -> bool {
        self.spec()[field].as_bool().unwrap_or(false)
    }

    /// Formats the pod for messages: `name_namespace(uid)`.
    pub fn described(self) -> String {
        format!("{}_{}({})", self.name(), self.namespace(), self.uid())
    }

    /// Returns init containers and sidecars in order.
    pub fn init_containers(self) -> impl DoubleEndedIterator<Item = Container<'a>> + ExactSizeIterator {
        self.pod_spec().init_containers()
    }

    pub fn app_containers(self) -> impl DoubleEndedIterator<Item = Container<'a>> + ExactSizeIterator {
        self.pod_spec().app_containers()
    }

    pub fn ephemeral_containers(self) -> impl DoubleEndedIterator<Item = Container<'a>> + ExactSizeIterator {
        self.list("ephemeralContainers").iter().map(|spec| Container { spec, role: Role::Ephemeral })
    }

    /// Returns containers of all roles.
    pub fn containers(self) -> impl Iterator<Item = Container<'a>> {
        self.init_containers().chain(self.app_containers()).chain(self.ephemeral_containers())
    }

    pub fn container(self, name: &str) -> Option<Container<'a>> {
        self.containers().find(|container| container.name() == name)
    }

    pub fn restart_policy(self) -> RestartPolicy {
        RestartPolicy::read(self.spec()).unwrap_or(RestartPolicy::Always)
    }

    /// Returns `terminationGracePeriodSeconds`.
    pub fn grace_seconds(self) -> i64 {
        self.spec()["terminationGracePeriodSeconds"].as_int().unwrap_or(30)
    }

    /// Whether the pod comes from a file or URL rather than from the API server.
    pub fn is_static(self) -> bool {
        self.meta().annotation(CONFIG_SOURCE).is_some_and(|source| source != "api")
    }

    /// Whether the pod is the API server's copy of a static pod.
    pub fn is_mirror(self) -> bool {
        self.meta().annotation(CONFIG_MIRROR).is_some()
    }

    /// Returns a list of the spec; empty if absent.
    pub fn list(self, field: &str) -> &'a [Value] {
        self.pod_spec().list(field)
    }

    /// Returns the container's status in the API server.
    pub fn known_status(self, container: Container<'_>) -> &'a Value {
        let list = self.0["status"][container.role.status_field()].as_array().unwrap_or_default();
        let found = list.iter().find(|status| status.str_at(&["name"]) == Some(container.name()));
        found.unwrap_or(&Value::Null)
    }
}

impl<'a> PodSpec<'a> {
    /// Returns the app containers, then the init containers and sidecars.
    pub fn containers(self) -> impl Iterator<Item = &'a Value> {
        self.list("containers").iter().chain(self.list("initContainers"))
    }

    /// Returns init containers and sidecars in order.
    pub fn init_containers(self) -> impl DoubleEndedIterator<Item = Container<'a>> + ExactSizeIterator {
        self.list("initContainers").iter().map(|spec| {
            let sidecar = spec.str_at(&["restartPolicy"]) == Some("Always");
            Container { spec, role: if sidecar { Role::Sidecar } else { Role::Init } }
        })
    }

    pub fn app_containers(self) -> impl DoubleEndedIterator<Item = Container<'a>> + ExactSizeIterator {
        self.list("containers").iter().map(|spec| Container { spec, role: Role::App })
    }

    /// Returns a list; empty if absent.
    pub fn list(self, field: &str) -> &'a [Value] {
        self.0.get(field).and_then(Value::as_array).unwrap_or_default()
    }
}
