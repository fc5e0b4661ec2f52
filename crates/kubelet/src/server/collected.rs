//! What the runtime tells of everything that runs, asked once for one answer.

use std::collections::HashMap;

use cri::v1;
use tonic::Status;

use crate::runtime::Runtime;

/// Everything that runs: what it uses, and since when it is there.
#[derive(Default)]
pub struct Collected {
    /// What sandboxes and their containers use.
    pub stats: Vec<v1::PodSandboxStats>,
    /// Containers by id.
    pub containers: HashMap<String, v1::Container>,
    /// When sandboxes were made, by id.
    pub sandboxes: HashMap<String, i64>,
}

impl Collected {
    /// Asks for it.
    pub async fn of(runtime: &Runtime) -> Result<Self, Status> {
        let mut runtime = runtime.runtime.clone();
        let stats = runtime.list_pod_sandbox_stats(v1::ListPodSandboxStatsRequest::default()).await?.into_inner().stats;
        let containers = runtime.list_containers(v1::ListContainersRequest::default()).await?.into_inner().containers;
        let sandboxes = runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?.into_inner().items;
        Ok(Self {
            stats,
            containers: containers.into_iter().map(|one| (one.id.clone(), one)).collect(),
            sandboxes: sandboxes.into_iter().map(|one| (one.id, one.created_at)).collect(),
        })
    }

    /// When a sandbox was made, in nanoseconds; zero if it has gone meanwhile.
    pub fn sandbox_at(&self, id: &str) -> i64 {
        self.sandboxes.get(id).copied().unwrap_or_default()
    }

    /// When a container was made.
    pub fn container_at(&self, id: &str) -> i64 {
        self.containers.get(id).map_or(0, |container| container.created_at)
    }
}

/// A number that may not be known, zero then.
pub fn amount(value: Option<&v1::UInt64Value>) -> i64 {
    value.map_or(0, |value| i64::try_from(value.value).unwrap_or(i64::MAX))
}
