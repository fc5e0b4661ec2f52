//! Processors of their own for pods that ask for whole ones and for nothing more than they are limited to.
//!
//! ```text
//!   all processors = reserved + shared by everybody + exclusive, each of one container
//! ```
//!
//! Admission of a pod takes processors out of the shared ones; its end gives them back. Whoever has none of its own runs on the
//! shared ones, and is moved when they change.

mod pool;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cri::v1;
use machinery::{Object, Value, json};
use tokio::sync::watch;

use crate::checkpoint;
use crate::numa;
use crate::observed::labels;
use crate::pod::{Container, Pod};
use crate::runtime::Runtime;
pub use pool::{Core, Pool, exclusive, listed, parse_list};

const FILE: &str = "cpu_manager_state";

/// The processors of a node. Clones share them.
#[derive(Clone)]
pub struct Cpus(Option<Arc<Shared>>);

struct Shared {
    dir: PathBuf,
    pool: Mutex<Pool>,
    /// Those that everybody shares, for those who must be moved.
    common: watch::Sender<BTreeSet<u32>>,
}

impl Cpus {
    /// Nobody has processors of its own.
    pub const fn shared_by_all() -> Self {
        Self(None)
    }

    /// Processors are given away, apart from those that are reserved; who had which before is remembered.
    pub fn given_away(root: &Path, reserved: &BTreeSet<u32>, reserved_count: usize) -> Self {
        let mut pool = Pool::new(machine(), reserved, reserved_count);
        pool.restore(read(&root.join(FILE)));
        let common = watch::Sender::new(pool.common());
        Self(Some(Arc::new(Shared { dir: root.to_owned(), pool: Mutex::new(pool), common })))
    }

    /// Lets processors be given to a pod: all that `then` gives, or none if it fails.
    pub fn giving<T, E: From<io::Error>>(&self, then: impl FnOnce(Option<&mut Pool>) -> Result<T, E>) -> Result<T, E> {
        let Some(shared) = &self.0 else { return then(None) };
        let mut pool = shared.pool();
        let before = pool.clone();
        let outcome = then(Some(&mut *pool)).and_then(|given| {
            if pool.given() != before.given() {
                write(&shared.dir, &pool)?;
                shared.tell(&pool);
            }
            Ok(given)
        });
        if outcome.is_err() {
            *pool = before;
        }
        outcome
    }

    /// Gives back what pods had that are gone.
    pub fn keep_only(&self, is_here: impl Fn(&str) -> bool) {
        let Some(shared) = &self.0 else { return };
        let mut pool = shared.pool();
        if pool.keep_only(is_here) {
            // What is given back and not written down is found to be nobody's after a crash as well.
            if let Err(error) = write(&shared.dir, &pool) {
                tracing::error!(%error, "failed to write the checkpoint of CPUs");
            }
            shared.tell(&pool);
        }
    }

    /// Where a container may run; empty for everywhere.
    pub fn of(&self, pod: Pod<'_>, container: Container<'_>) -> String {
        let Some(shared) = &self.0 else { return String::new() };
        let pool = shared.pool();
        listed(pool.of(pod.uid(), container.name()).unwrap_or(&pool.common()))
    }

    /// The processors that a container has for itself.
    pub fn own(&self, uid: &str, container: &str) -> BTreeSet<u32> {
        let own = self.0.as_ref().and_then(|shared| shared.pool().of(uid, container).cloned());
        own.unwrap_or_default()
    }

    /// Those that can be given away, in all.
    pub fn assignable(&self) -> BTreeSet<u32> {
        self.0.as_ref().map(|shared| shared.pool().assignable()).unwrap_or_default()
    }

    /// Moves those without processors of their own whenever the shared ones change.
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

impl Shared {
    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, pool: &Pool) {
        let common = pool.common();
        self.common.send_if_modified(|known| std::mem::replace(known, common.clone()) != common);
    }

    async fn move_to(&self, common: &BTreeSet<u32>, runtime: &Runtime) {
        let mut client = runtime.runtime.clone();
        let Ok(found) = client.list_containers(v1::ListContainersRequest::default()).await else { return };
        for container in found.into_inner().containers {
            let label = |key: &str| container.labels.get(key).map(String::as_str).unwrap_or_default();
            let ended = container.state() == v1::ContainerState::ContainerExited;
            if ended || self.pool().of(label(labels::POD_UID), label(labels::CONTAINER_NAME)).is_some() {
                continue;
            }
            let linux = Some(v1::LinuxContainerResources { cpuset_cpus: listed(common), ..Default::default() });
            let request =
                v1::UpdateContainerResourcesRequest { container_id: container.id.clone(), linux, ..Default::default() };
            if let Err(status) = client.update_container_resources(request).await {
                tracing::warn!(id = container.id, status = status.message(), "a container cannot be moved");
            }
        }
    }
}

/// The machine's processors, and which of them are one core.
fn machine() -> BTreeMap<u32, Core> {
    let root = Path::new("/sys/devices/system/cpu");
    let online = fs::read_to_string(root.join("online")).unwrap_or_default();
    let number = |cpu: u32, name: &str| {
        let text = fs::read_to_string(root.join(format!("cpu{cpu}/topology/{name}"))).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    };
    let numa = numa::of_processors();
    let place = |cpu: u32| Core {
        socket: number(cpu, "physical_package_id"),
        core: number(cpu, "core_id"),
        numa: numa.get(&cpu).copied().unwrap_or(0),
    };
    parse_list(&online).unwrap_or_default().into_iter().map(|cpu| (cpu, place(cpu))).collect()
}

/// Who had which processors; nobody any if that cannot be read.
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
    fn who_has_which_processors_survives_a_restart() {
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
    fn cpus_that_cannot_be_written_down_are_not_given() {
        let dir = tempfile::tempdir().unwrap();
        let cores = (0..4).map(|cpu| (cpu, Core { socket: 0, core: cpu, numa: 0 })).collect();
        // There can be no such directory: something else has its name.
        let not_a_dir = dir.path().join("file");
        fs::write(&not_a_dir, "").unwrap();
        let pool = Pool::new(cores, &BTreeSet::from([0]), 0);
        let common = watch::Sender::new(pool.common());
        let cpus = Cpus(Some(Arc::new(Shared { dir: not_a_dir, pool: Mutex::new(pool), common })));
        let given: Result<(), crate::admission::Refusal> = cpus.giving(|pool| {
            pool.unwrap().restore(vec![("u".to_owned(), "c".to_owned(), BTreeSet::from([1]))]);
            Ok(())
        });
        assert_eq!(given.unwrap_err().reason, "UnexpectedAdmissionError");
        assert_eq!(cpus.own("u", "c"), BTreeSet::new());
    }
}
