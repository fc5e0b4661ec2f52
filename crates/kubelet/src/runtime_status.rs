//! The runtime's state of a pod: its sandboxes and containers, newest first.

use apimachinery::time::Time;
use node_api::cri::v1;

/// Labels and annotations by which a kubelet recognizes its sandboxes and containers.
pub mod labels {
    pub const POD_NAME: &str = "io.kubernetes.pod.name";
    pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
    /// Hash of the container's spec.
    pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
    pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
    pub const TERMINATION_PATH: &str = "io.kubernetes.container.terminationMessagePath";
    pub const TERMINATION_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
    pub const GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
    /// The preStop handler as JSON; absent if there is none.
    pub const PRE_STOP: &str = "io.kubernetes.container.preStopHandler";
    /// The container's ports as JSON, which a handler may refer to by name.
    pub const PORTS: &str = "io.kubernetes.container.ports";
}

/// Exit code of a container whose actual exit code is unknown.
pub const UNKNOWN_EXIT: i32 = 137;

/// The sandboxes and containers of one pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimePod {
    /// Newest first.
    pub sandboxes: Vec<Sandbox>,
    /// Newest first.
    pub containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sandbox {
    pub id: String,
    /// Number of previous sandboxes of the pod.
    pub attempt: u32,
    /// Whether containers can join the sandbox.
    pub ready: bool,
    pub host_network: bool,
    /// The primary address comes first.
    pub ips: Vec<String>,
    /// Creation time in Unix nanoseconds.
    pub created_at: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Container {
    pub id: String,
    pub name: String,
    /// ID of the container's sandbox.
    pub sandbox: String,
    /// Number of previous containers with this name.
    pub attempt: u32,
    /// Hash of the spec that the container was created from.
    pub hash: String,
    pub state: State,
    /// Creation time in Unix nanoseconds.
    pub created_at: i64,
    /// The image as requested by the pod.
    pub image: String,
    /// The image as resolved by the runtime.
    pub image_ref: String,
    pub log_path: String,
    /// The effective user.
    pub user: Option<v1::LinuxContainerUser>,
    /// The effective limits.
    pub resources: Option<v1::LinuxContainerResources>,
}

/// The state of a container.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Created but not started.
    Created,
    Running {
        since: Time,
    },
    Exited(Exit),
    /// The runtime reports an unknown state.
    Unknown,
}

/// The termination of a container.
#[derive(Clone, Debug, PartialEq)]
pub struct Exit {
    pub code: i32,
    /// The runtime's reason.
    pub reason: String,
    /// The termination message, or the runtime's message.
    pub message: String,
    /// `None` if the container never started.
    pub started_at: Option<Time>,
    pub finished_at: Time,
}

impl RuntimePod {
    /// Sorts sandboxes and containers, newest first.
    pub fn sort(&mut self) {
        self.sandboxes.sort_by_key(|sandbox| std::cmp::Reverse((sandbox.created_at, sandbox.attempt)));
        self.containers.sort_by_key(|container| std::cmp::Reverse((container.created_at, container.attempt)));
    }

    /// Returns the newest sandbox.
    pub fn sandbox(&self) -> Option<&Sandbox> {
        self.sandboxes.first()
    }

    /// Returns the containers with a name, newest first.
    pub fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Container> {
        self.containers.iter().filter(move |container| container.name == name)
    }

    /// Returns the newest container with a name.
    pub fn latest(&self, name: &str) -> Option<&Container> {
        self.containers.iter().find(|container| container.name == name)
    }

    /// Returns the running containers.
    pub fn running(&self) -> impl Iterator<Item = &Container> {
        self.containers.iter().filter(|container| container.is_running())
    }
}

impl Container {
    pub const fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// Returns the termination of an exited container.
    pub const fn exit(&self) -> Option<&Exit> {
        match &self.state {
            State::Exited(exit) => Some(exit),
            _ => None,
        }
    }

    /// Converts a CRI container status.
    pub fn read(sandbox: &str, status: v1::ContainerStatus) -> Self {
        let state = match status.state() {
            v1::ContainerState::ContainerCreated => State::Created,
            v1::ContainerState::ContainerRunning => State::Running { since: time(status.started_at) },
            v1::ContainerState::ContainerExited => State::Exited(Exit {
                code: status.exit_code,
                reason: status.reason.clone(),
                message: status.message.clone(),
                started_at: (status.started_at > 0).then(|| time(status.started_at)),
                finished_at: time(status.finished_at),
            }),
            v1::ContainerState::ContainerUnknown => State::Unknown,
        };
        let label = |key: &str| status.labels.get(key).cloned().unwrap_or_default();
        let annotation = |key: &str| status.annotations.get(key).cloned().unwrap_or_default();
        let metadata = status.metadata.clone().unwrap_or_default();
        Self {
            name: label(labels::CONTAINER_NAME),
            sandbox: sandbox.to_owned(),
            attempt: annotation(labels::RESTART_COUNT).parse().unwrap_or(metadata.attempt),
            hash: annotation(labels::CONTAINER_HASH),
            state,
            created_at: status.created_at,
            image: status.image.map(user_specified_image).unwrap_or_default(),
            image_ref: status.image_ref,
            log_path: status.log_path,
            user: status.user.and_then(|user| user.linux),
            resources: status.resources.and_then(|resources| resources.linux),
            id: status.id,
        }
    }
}

impl Sandbox {
    /// Converts a CRI sandbox status.
    pub fn read(status: v1::PodSandboxStatus) -> Self {
        let network = status.network.clone().unwrap_or_default();
        let more = network.additional_ips.into_iter().map(|ip| ip.ip);
        let ips = std::iter::once(network.ip).chain(more).filter(|ip| !ip.is_empty()).collect();
        let options = status.linux.as_ref().and_then(|linux| linux.namespaces.as_ref()?.options.clone());
        Self {
            attempt: status.metadata.as_ref().map_or(0, |metadata| metadata.attempt),
            ready: status.state() == v1::PodSandboxState::SandboxReady,
            host_network: options.is_some_and(|options| options.network() == v1::NamespaceMode::Node),
            ips,
            created_at: status.created_at,
            id: status.id,
        }
    }
}

/// Returns the image as the pod names it, if the runtime remembers that.
fn user_specified_image(image: v1::ImageSpec) -> String {
    if image.user_specified_image.is_empty() { image.image } else { image.user_specified_image }
}

/// Converts Unix nanoseconds.
pub fn time(nanos: i64) -> Time {
    Time::from_unix(nanos.div_euclid(1_000_000_000), nanos.rem_euclid(1_000_000_000) as u32)
}
