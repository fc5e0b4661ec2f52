//! What the runtime has of a pod: its sandboxes and containers, newest first.

use cri::v1;
use machinery::time::Time;

/// Labels and annotations by which a kubelet finds its own again.
pub mod labels {
    /// The pod's name.
    pub const POD_NAME: &str = "io.kubernetes.pod.name";
    /// The pod's namespace.
    pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    /// The pod's identifier.
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    /// The container's name.
    pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
    /// What the container was made from.
    pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
    /// How often it was started before.
    pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
    /// Where it may leave a last word.
    pub const TERMINATION_PATH: &str = "io.kubernetes.container.terminationMessagePath";
    /// What stands in for a last word.
    pub const TERMINATION_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
    /// How long it may take to end.
    pub const GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
    /// Its preStop handler, as JSON; absent if it has none.
    pub const PRE_STOP: &str = "io.kubernetes.container.preStopHandler";
    /// Its ports, as JSON, which a handler may name.
    pub const PORTS: &str = "io.kubernetes.container.ports";
}

/// The exit code of a container of which nobody can say how it ended.
pub const UNKNOWN_EXIT: i32 = 137;

/// What the runtime has of one pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimePod {
    /// Newest first.
    pub sandboxes: Vec<Sandbox>,
    /// Newest first.
    pub containers: Vec<Container>,
}

/// A sandbox.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sandbox {
    /// The runtime's name for it.
    pub id: String,
    /// How many came before it.
    pub attempt: u32,
    /// Whether containers can join it.
    pub ready: bool,
    /// Whether it has the machine's network.
    pub host_network: bool,
    /// Its addresses, the main one first.
    pub ips: Vec<String>,
    /// When it was made, in nanoseconds.
    pub created_at: i64,
}

/// A container.
#[derive(Clone, Debug, PartialEq)]
pub struct Container {
    /// The runtime's name for it.
    pub id: String,
    /// The pod's name for it.
    pub name: String,
    /// The sandbox it is in.
    pub sandbox: String,
    /// How many came before it.
    pub attempt: u32,
    /// What it was made from.
    pub hash: String,
    /// What it does.
    pub state: State,
    /// When it was made, in nanoseconds.
    pub created_at: i64,
    /// The image as it was asked for.
    pub image: String,
    /// The image as it was found.
    pub image_ref: String,
    /// Where its log is.
    pub log_path: String,
    /// The user that it runs as.
    pub user: Option<v1::LinuxContainerUser>,
    /// The limits that it runs under.
    pub resources: Option<v1::LinuxContainerResources>,
}

/// What a container does.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// It is made and does not run yet.
    Created,
    /// It runs.
    Running {
        /// Since when.
        since: Time,
    },
    /// It has ended.
    Exited(Exit),
    /// The runtime does not know.
    Unknown,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Exit {
    /// Its exit code.
    pub code: i32,
    /// The runtime's word for it.
    pub reason: String,
    /// Its last words, or the runtime's.
    pub message: String,
    /// When it started, if it did.
    pub started_at: Option<Time>,
    /// When it ended.
    pub finished_at: Time,
}

impl RuntimePod {
    /// Puts everything in order, newest first.
    pub fn sort(&mut self) {
        self.sandboxes.sort_by_key(|sandbox| std::cmp::Reverse((sandbox.created_at, sandbox.attempt)));
        self.containers.sort_by_key(|container| std::cmp::Reverse((container.created_at, container.attempt)));
    }

    /// The newest sandbox.
    pub fn sandbox(&self) -> Option<&Sandbox> {
        self.sandboxes.first()
    }

    /// The containers of a name, newest first.
    pub fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Container> {
        self.containers.iter().filter(move |container| container.name == name)
    }

    /// The newest container of a name.
    pub fn latest(&self, name: &str) -> Option<&Container> {
        self.containers.iter().find(|container| container.name == name)
    }

    /// The containers that run.
    pub fn running(&self) -> impl Iterator<Item = &Container> {
        self.containers.iter().filter(|container| container.is_running())
    }
}

impl Container {
    /// Whether it runs.
    pub const fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// How it ended, if it has.
    pub const fn exit(&self) -> Option<&Exit> {
        match &self.state {
            State::Exited(exit) => Some(exit),
            _ => None,
        }
    }

    /// Reads what CRI says.
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
            image: status.image.map(asked_for).unwrap_or_default(),
            image_ref: status.image_ref,
            log_path: status.log_path,
            user: status.user.and_then(|user| user.linux),
            resources: status.resources.and_then(|resources| resources.linux),
            id: status.id,
        }
    }
}

impl Sandbox {
    /// Reads what CRI says.
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

/// The image as the pod named it, where the runtime remembers.
fn asked_for(image: v1::ImageSpec) -> String {
    if image.user_specified_image.is_empty() { image.image } else { image.user_specified_image }
}

/// Nanoseconds since 1970 as a time.
pub fn time(nanos: i64) -> Time {
    Time::from_unix(nanos.div_euclid(1_000_000_000), nanos.rem_euclid(1_000_000_000) as u32)
}
