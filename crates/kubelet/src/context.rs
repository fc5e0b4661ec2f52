//! What all workers of a kubelet share, none of which they change.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use client::Client;
use client::cache::Reader;
use driver::events::Recorder;
use machinery::Value;

use crate::admission::Refusal;
use crate::config::Config;
use crate::counters::Probes;
use crate::cpus::Cpus;
use crate::devices::Devices;
use crate::dns::Names;
use crate::drivers::claims::Claims;
use crate::groups::Groups;
use crate::images::Images;
use crate::logs::Logs;
use crate::memory::Memory;
use crate::objects::Objects;
use crate::pod::Pod;
use crate::resources::Amounts;
use crate::runtime::Runtime;
use crate::status::Facts;
use crate::swap::Swap;
use crate::tell::Teller;
use crate::topology::{Provider, Topology};
use crate::users::Users;
use crate::volumes::Volumes;

/// What a pod with these addresses has to wait for before its containers start, such as rules for them.
pub type Gate = Arc<dyn Fn(Arc<Value>, Vec<IpAddr>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

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
    /// What containers print.
    pub logs: Logs,
    /// How often probes were answered how.
    pub probes: Probes,
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
    /// Its memory.
    pub memory: Memory,
    /// How near to each other what containers have must be.
    pub topology: Topology,
    /// The control groups of pods.
    pub groups: Groups,
    /// The users of pods that do not want the machine's.
    pub users: Users,
    /// What the node has to give to pods.
    pub allocatable: Amounts,
    /// What containers wait for.
    pub gate: Option<Gate>,
}

impl Context {
    /// Tells of a pod.
    pub fn teller(&self, pod: Pod<'_>) -> Teller {
        Teller::new(self.recorder.clone(), pod)
    }

    /// Gives a pod its devices, processors and memory, all of them or none.
    pub fn give(&self, pod: Pod<'_>) -> Result<(), Refusal> {
        self.devices.giving(|ledger| {
            self.cpus.giving(|pool| {
                self.memory.giving(|bank| {
                    let mut providers: Vec<&mut dyn Provider> = vec![ledger];
                    providers.extend(pool.map(|pool| pool as &mut dyn Provider));
                    providers.extend(bank.map(|bank| bank as &mut dyn Provider));
                    self.topology.admit(pod, &mut providers)
                })
            })
        })
    }

    /// Takes back what pods had that are gone.
    pub fn take_back(&self, is_here: impl Fn(&str) -> bool) {
        self.devices.keep_only(&is_here);
        self.cpus.keep_only(&is_here);
        self.memory.keep_only(&is_here);
    }
}
