//! Runtime statistics of all pods, collected once per request.

use std::collections::HashMap;

use node_api::cri::v1;
use tonic::Status;

use crate::runtime::Runtime;

/// Statistics and creation times of all sandboxes and containers.
#[derive(Default)]
pub(super) struct RuntimeStats {
    /// Statistics of sandboxes and their containers.
    pub stats: Vec<v1::PodSandboxStats>,
    /// Containers by ID.
    pub containers: HashMap<String, v1::Container>,
    /// Creation times of sandboxes by ID.
    pub sandboxes: HashMap<String, i64>,
}

impl RuntimeStats {
    /// Queries the runtime.
    pub(super) async fn of(runtime: &Runtime) -> Result<Self, Status> {
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

    /// Returns the creation time of a sandbox in Unix nanoseconds; zero if it was removed meanwhile.
    pub(super) fn sandbox_at(&self, id: &str) -> i64 {
        self.sandboxes.get(id).copied().unwrap_or_default()
    }

    /// Returns the creation time of a container in Unix nanoseconds; zero if it was removed meanwhile.
    pub(super) fn container_at(&self, id: &str) -> i64 {
        self.containers.get(id).map_or(0, |container| container.created_at)
    }
}

/// Returns a value; zero if it is unknown.
pub(super) fn amount(value: Option<&v1::UInt64Value>) -> i64 {
    value.map_or(0, |value| i64::try_from(value.value).unwrap_or(i64::MAX))
}
