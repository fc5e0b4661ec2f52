//! CPU manager, static policy: exclusive CPUs for containers of Guaranteed pods that request whole CPUs.
//!
//! ```text
//!   all CPUs = reserved + shared pool + exclusive, each allocated to one container
//! ```
//!
//! Admission of a pod moves CPUs out of the shared pool; its termination releases them. Containers without exclusive
//! CPUs run on the shared pool, and their cpuset is updated when the pool changes.

mod pool;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apimachinery::{Object, Value, json};
use node_api::cri::v1;
use tokio::sync::watch;

use crate::checkpoint;
use crate::numa;
use crate::pod::{Container, Pod};
use crate::runtime::Runtime;
use crate::runtime_status::labels;
pub use pool::{Core, Pool, exclusive, listed, parse_list};

const FILE: &str = "cpu_manager_state";

/// The CPU manager of a node. Clones share its state.
#[derive(Clone)]
pub struct Cpus(Option<Arc<Inner>>);

struct Inner {
    dir: PathBuf,
    pool: Mutex<Pool>,
    /// The shared pool, for the task that updates cpusets.
    common: watch::Sender<BTreeSet<u32>>,
}

impl Cpus {
    /// Returns a manager with the `none` policy: no container has exclusive CPUs.
    pub const fn shared_by_all() -> Self {
        Self(None)
    }

    /// Returns a manager with the `static` policy that restores the allocations of its checkpoint.
    pub fn given_away(root: &Path, reserved: &BTreeSet<u32>, reserved_count: usize) -> Self {
        let mut pool = Pool::new(machine(), reserved, reserved_count);
        pool.restore(read(&root.join(FILE)));
        let common = watch::Sender::new(pool.common());
        Self(Some(Arc::new(Inner { dir: root.to_owned(), pool: Mutex::new(pool), common })))
    }

    /// Runs `then`, which allocates CPUs to a pod, and checkpoints the result. Rolls everything back on failure.
    pub fn with_allocation<T, E: From<io::Error>>(
        &self,
        then: impl FnOnce(Option<&mut Pool>) -> Result<T, E>,
    ) -> Result<T, E> {
        let Some(shared) = &self.0 else { return then(None) };
        let mut pool = shared.pool();
        let before = pool.clone();
        let outcome = then(Some(&mut *pool)).and_then(|given| {
            if pool.given() != before.given() {
                write(&shared.dir, &pool)?;
                shared.publish(&pool);
            }
            Ok(given)
        });
        if outcome.is_err() {
            *pool = before;
        }
        outcome
    }

    /// Releases the CPUs of deleted pods.
    pub fn keep_only(&self, is_here: impl Fn(&str) -> bool) {
        let Some(shared) = &self.0 else { return };
        let mut pool = shared.pool();
        if pool.keep_only(is_here) {
            // A stale checkpoint is harmless: after a crash the CPUs of deleted pods are released again.
            if let Err(error) = write(&shared.dir, &pool) {
                tracing::error!(%error, "failed to write the checkpoint of CPUs");
            }
            shared.publish(&pool);
        }
    }

    /// Returns the cpuset of a container; empty for all CPUs.
    pub fn of(&self, pod: Pod<'_>, container: Container<'_>) -> String {
        let Some(shared) = &self.0 else { return String::new() };
        let pool = shared.pool();
        listed(pool.of(pod.uid(), container.name()).unwrap_or(&pool.common()))
    }

    /// Returns the exclusive CPUs of a container.
    pub fn own(&self, uid: &str, container: &str) -> BTreeSet<u32> {
        let own = self.0.as_ref().and_then(|shared| shared.pool().of(uid, container).cloned());
        own.unwrap_or_default()
    }

    /// Returns all CPUs that are not reserved, allocated or not.
    pub fn assignable(&self) -> BTreeSet<u32> {
        self.0.as_ref().map(|shared| shared.pool().assignable()).unwrap_or_default()
    }

    /// Updates the cpusets of containers without exclusive CPUs whenever the shared pool changes.
    pub async fn keep_moved(self, runtime: Runtime) {
        let Some(shared) = self.0 else { return std::future::pending().await };
        let mut common = shared.common.subscribe();
        loop {
            let now = common.borrow_and_update().clone();
            shared.move_to(&now, &runtime).await;
            if common.changed().await.is_err() {
                return;
            }
        }
    }
}

impl Inner {
    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, pool: &Pool) {
        let common = pool.common();
        self.common.send_if_modified(|known| std::mem::replace(known, common.clone()) != common);
    }

    async fn move_to(&self, common: &BTreeSet<u32>, runtime: &Runtime) {
        let mut client = runtime.runtime.clone();
        let Ok(found) = client.list_containers(v1::ListContainersRequest::default()).await else { return };
        for container in found.into_inner().containers {
            let label = |key: &str| container.labels.get(key).map(String::as_str).unwrap_or_default();
            let exited = container.state() == v1::ContainerState::ContainerExited;
            if exited || self.pool().of(label(labels::POD_UID), label(labels::CONTAINER_NAME)).is_some() {
                continue;
            }
            let linux = Some(v1::LinuxContainerResources { cpuset_cpus: listed(common), ..Default::default() });
            let request =
                v1::UpdateContainerResourcesRequest { container_id: container.id.clone(), linux, ..Default::default() };
            if let Err(status) = client.update_container_resources(request).await {
                tracing::warn!(
                    id = container.id,
                    status = status.message(),
                    "failed to update the cpuset of a container"
                );
            }
        }
    }
}

/// Reads the CPU topology of the host.
fn machine() -> BTreeMap<u32, Core> {
    let root = Path::new("/sys/devices/system/cpu");
    let online = fs::read_to_string(root.join("online")).unwrap_or_default();
    let number = |cpu: u32, name: &str| {
        let text = fs::read_to_string(root.join(format!("cpu{cpu}/topology/{name}"))).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    };
    let numa = numa::of_processors();
    let core_of = |cpu: u32| Core {
        socket: number(cpu, "physical_package_id"),
        core: number(cpu, "core_id"),
        numa: numa.get(&cpu).copied().unwrap_or(0),
    };
    parse_list(&online).unwrap_or_default().into_iter().map(|cpu| (cpu, core_of(cpu))).collect()
}

/// Reads the checkpoint; an unreadable checkpoint contains no allocations.
fn read(file: &Path) -> Vec<(String, String, BTreeSet<u32>)> {
    let state = fs::read(file).ok().and_then(|text| json::parse(&text).ok()).unwrap_or_default();
    let pods = state["entries"].as_object().into_iter().flat_map(Object::iter);
    let containers = pods.flat_map(|(uid, containers)| {
        let containers = containers.as_object().into_iter().flat_map(Object::iter);
        containers.map(move |(name, cpus)| (uid.to_owned(), name.to_owned(), cpus.as_str().and_then(parse_list)))
    });
    containers.filter_map(|(uid, name, cpus)| Some((uid, name, cpus?))).collect()
}

fn write(dir: &Path, pool: &Pool) -> io::Result<()> {
    let mut entries = Object::new();
    for ((uid, container), cpus) in pool.given() {
        if !entries.contains_key(uid) {
            entries.insert(uid.as_str(), Value::object());
        }
        if let Some(pod) = entries.get_mut(uid).and_then(Value::as_object_mut) {
            pod.insert(container.as_str(), listed(cpus));
        }
    }
    let mut state = Object::new();
    state.insert("policyName", "static");
    state.insert("defaultCpuSet", listed(&pool.common()));
    state.insert("entries", entries);
    checkpoint::write(dir, FILE, &Value::Object(state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_allocations_survive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(FILE);
        let cores = (0..4).map(|cpu| (cpu, Core { socket: 0, core: cpu, numa: 0 })).collect();
        let mut pool = Pool::new(cores, &BTreeSet::from([0]), 0);
        let given = vec![("u".to_owned(), "c".to_owned(), BTreeSet::from([1, 2]))];
        pool.restore(given.clone());
        write(dir.path(), &pool).unwrap();
        assert_eq!(read(&file), given);
        assert_eq!(read(&dir.path().join("absent")), []);
        assert!(!machine().is_empty());
    }

    #[test]
    fn cpus_are_not_allocated_if_the_checkpoint_fails() {
        let dir = tempfile::tempdir().unwrap();
        let cores = (0..4).map(|cpu| (cpu, Core { socket: 0, core: cpu, numa: 0 })).collect();
        // The directory cannot be created because a file has its name.
        let not_a_dir = dir.path().join("file");
        fs::write(&not_a_dir, "").unwrap();
        let pool = Pool::new(cores, &BTreeSet::from([0]), 0);
        let common = watch::Sender::new(pool.common());
        let cpus = Cpus(Some(Arc::new(Inner { dir: not_a_dir, pool: Mutex::new(pool), common })));
        let given: Result<(), crate::admission::Rejection> = cpus.with_allocation(|pool| {
            pool.unwrap().restore(vec![("u".to_owned(), "c".to_owned(), BTreeSet::from([1]))]);
            Ok(())
        });
        assert_eq!(given.unwrap_err().reason, "UnexpectedAdmissionError");
        assert_eq!(cpus.own("u", "c"), BTreeSet::new());
    }
}
