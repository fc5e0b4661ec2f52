//! What all workers of a kubelet share, none of which they change.

use std::path::PathBuf;

use client::Client;
use client::cache::Reader;
use driver::events::Recorder;
use machinery::Value;

use crate::config::Config;
use crate::cpus::Cpus;
use crate::devices::Devices;
use crate::dns::Names;
use crate::drivers::claims::Claims;
use crate::images::Images;
use crate::objects::Objects;
use crate::pod::Pod;
use crate::resources::Amounts;
use crate::runtime::Runtime;
use crate::status::Facts;
use crate::swap::Swap;
use crate::tell::Teller;
use crate::users::Users;
use crate::volumes::Volumes;

/// What all workers share.
pub struct Context {
    /// How the kubelet is set up.
    pub config: Config,
    /// The API server.
    pub client: Client,
    /// The runtime.
    pub runtime: Runtime,
    /// The runtime's images.
    pub images: Images,
    /// Where events go.
    pub recorder: Recorder,
    /// What pods refer to.
    pub objects: Objects,
    /// Their volumes.
    pub volumes: Volumes,
    /// All services.
    pub services: Reader<Value>,
    /// What statuses say of the node.
    pub facts: Facts,
    /// How names are found.
    pub names: Names,
    /// The node's memory in bytes.
    pub memory_capacity: i64,
    /// Its swap, and who gets of it.
    pub swap: Swap,
    /// The dynamic resources of pods.
    pub claims: Claims,
    /// The devices of the node's plug-ins.
    pub devices: Devices,
    /// Its processors.
    pub cpus: Cpus,
    /// The users of pods that do not want the machine's.
    pub users: Users,
    /// What the node has to give to pods.
    pub allocatable: Amounts,
}

impl Context {
    /// Tells of a pod.
    pub fn teller(&self, pod: Pod<'_>) -> Teller {
        Teller::new(self.recorder.clone(), pod)
    }

    /// Where a pod's logs are.
    pub fn log_dir(&self, pod: Pod<'_>) -> PathBuf {
        self.config.pod_logs_dir.join(format!("{}_{}_{}", pod.namespace(), pod.name(), pod.uid()))
    }
}
