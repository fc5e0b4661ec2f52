//! State shared by all pod workers of a kubelet.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use apimachinery::Value;
use client::Client;
use client::cache::Reader;
use component_base::events::Recorder;

use crate::admission::Rejection;
use crate::cgroups::Cgroups;
use crate::config::Config;
use crate::counters::Probes;
use crate::cpus::Cpus;
use crate::devices::Devices;
use crate::dns::Names;
use crate::events::EventSink;
use crate::images::Images;
use crate::logs::Logs;
use crate::memory::Memory;
use crate::plugins::claims::Claims;
use crate::pod::Pod;
use crate::referenced_objects::Objects;
use crate::runtime::Runtime;
use crate::status::Facts;
use crate::swap::Swap;
use crate::topology::{Provider, Topology};
use crate::user_namespaces::Users;
use crate::volumes::Volumes;
use api::amounts::Amounts;

/// Completes when the node is ready for a pod with these addresses, for example when its network rules are in place.
/// Containers start afterwards.
pub type Gate = Arc<dyn Fn(Arc<Value>, Vec<IpAddr>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// The state that all pod workers share.
pub struct Context {
    pub config: Config,
    pub client: Client,
    pub runtime: Runtime,
    pub images: Images,
    /// Container logs.
    pub logs: Logs,
    /// Probe result counters.
    pub probes: Probes,
    /// Event recorder.
    pub recorder: Recorder,
    /// ConfigMaps, Secrets and other objects that pods refer to.
    pub objects: Objects,
    pub volumes: Volumes,
    pub services: Reader<Value>,
    /// Node properties that pod statuses contain.
    pub facts: Facts,
    /// DNS settings.
    pub names: Names,
    /// In bytes.
    pub memory_capacity: i64,
    pub swap: Swap,
    /// Dynamic resource allocation.
    pub claims: Claims,
    /// Device manager.
    pub devices: Devices,
    /// CPU manager.
    pub cpus: Cpus,
    /// Memory manager.
    pub memory: Memory,
    /// Topology manager policy.
    pub topology: Topology,
    /// Pod cgroups.
    pub groups: Cgroups,
    /// User namespaces of pods with `hostUsers: false`.
    pub users: Users,
    /// The node's allocatable resources.
    pub allocatable: Amounts,
    pub gate: Option<Gate>,
}

impl Context {
    /// Returns an event recorder for a pod.
    pub fn event_sink(&self, pod: Pod<'_>) -> EventSink {
        EventSink::new(self.recorder.clone(), pod)
    }

    /// Allocates devices, CPUs and memory to a pod, all of them or none.
    pub fn allocate(&self, pod: Pod<'_>) -> Result<(), Rejection> {
        self.devices.with_allocation(|ledger| {
            self.cpus.with_allocation(|pool| {
                self.memory.with_allocation(|bank| {
                    let mut providers: Vec<&mut dyn Provider> = vec![ledger];
                    providers.extend(pool.map(|pool| pool as &mut dyn Provider));
                    providers.extend(bank.map(|bank| bank as &mut dyn Provider));
                    self.topology.admit(pod, &mut providers)
                })
            })
        })
    }

    /// Releases the devices, CPUs and memory of deleted pods.
    pub fn release_deleted(&self, is_here: impl Fn(&str) -> bool) {
        self.devices.keep_only(&is_here);
        self.cpus.keep_only(&is_here);
        self.memory.keep_only(&is_here);
    }
}
