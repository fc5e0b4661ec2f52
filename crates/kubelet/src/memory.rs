//! Memory manager, `Static` policy: memory of dedicated NUMA nodes for containers of Guaranteed pods.
//!
//! Admission of a pod allocates memory of NUMA nodes; its termination releases it. Allocations are checkpointed before
//! a container starts. The kernel restricts containers to their NUMA nodes with cpusets, and their cgroups limit the
//! amount.

pub mod allocator;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apimachinery::{Object, Value, json, value};

use crate::checkpoint;
use crate::pod::{Container, Pod};
use crate::topology::Nodes;
use allocator::{Amount, Block, MemoryAllocator};

const FILE: &str = "memory_manager_state";

/// The memory manager of a node. Clones share its state.
#[derive(Clone)]
pub struct Memory(Option<Arc<Inner>>);

struct Inner {
    dir: PathBuf,
    bank: Mutex<MemoryAllocator>,
}

impl Memory {
    /// Returns a manager with the `None` policy: no container is restricted to NUMA nodes.
    pub const fn shared_by_all() -> Self {
        Self(None)
    }

    /// Returns a manager with the `Static` policy that restores the allocations of its checkpoint.
    pub fn given_away(root: &Path, mut bank: MemoryAllocator) -> Self {
        bank.restore(read(&root.join(FILE)));
        Self(Some(Arc::new(Inner { dir: root.to_owned(), bank: Mutex::new(bank) })))
    }

    /// Runs `then`, which allocates memory to a pod, and checkpoints the result. Rolls everything back on failure.
    pub fn with_allocation<T, E: From<io::Error>>(
        &self,
        then: impl FnOnce(Option<&mut MemoryAllocator>) -> Result<T, E>,
    ) -> Result<T, E> {
        let Some(shared) = &self.0 else { return then(None) };
        let mut bank = shared.bank();
        let before = bank.clone();
        let outcome = then(Some(&mut *bank)).and_then(|given| {
            if bank.given() != before.given() {
                write(&shared.dir, &bank)?;
            }
            Ok(given)
        });
        if outcome.is_err() {
            *bank = before;
        }
        outcome
    }

    /// Releases the memory of deleted pods.
    pub fn keep_only(&self, is_here: impl Fn(&str) -> bool) {
        let Some(shared) = &self.0 else { return };
        let mut bank = shared.bank();
        if bank.keep_only(is_here)
            && let Err(error) = write(&shared.dir, &bank)
        {
            tracing::error!(%error, "failed to write the checkpoint of memory");
        }
    }

    /// Returns the NUMA nodes of a container in the kernel's list format; empty for any.
    pub fn of(&self, pod: Pod<'_>, container: Container<'_>) -> String {
        let Some(shared) = &self.0 else { return String::new() };
        let bank = shared.bank();
        let nodes = bank.nodes_of(pod.uid(), container.name());
        crate::cpus::listed(&nodes.into_iter().flat_map(Nodes::iter).collect())
    }

    /// Returns the memory blocks of a container.
    pub fn blocks(&self, uid: &str, container: &str) -> Vec<Block> {
        self.0.as_ref().map(|shared| shared.bank().blocks(uid, container).to_vec()).unwrap_or_default()
    }

    /// Returns all memory that can be allocated: NUMA node, kind, bytes.
    pub fn allocatable(&self) -> Vec<(u32, String, Amount)> {
        self.0.as_ref().map(|shared| shared.bank().allocatable()).unwrap_or_default()
    }
}

impl Inner {
    fn bank(&self) -> MutexGuard<'_, MemoryAllocator> {
        self.bank.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the checkpoint; an unreadable checkpoint contains no allocations.
fn read(file: &Path) -> Vec<(String, String, Vec<Block>)> {
    let state = fs::read(file).ok().and_then(|text| json::parse(&text).ok()).unwrap_or_default();
    let block = |value: &Value| {
        let nodes = value["numaAffinity"].as_array()?.iter().filter_map(|node| u32::try_from(node.as_int()?).ok());
        let bytes = value["size"].as_int().and_then(|bytes| u64::try_from(bytes).ok())?;
        Some(Block { nodes: Nodes::of(nodes), kind: value.str_at(&["type"])?.to_owned(), bytes })
    };
    let pods = state["entries"].as_object().into_iter().flat_map(Object::iter);
    let containers = pods.flat_map(|(uid, containers)| {
        let containers = containers.as_object().into_iter().flat_map(Object::iter);
        containers.map(move |(name, blocks)| (uid.to_owned(), name.to_owned(), blocks))
    });
    containers
        .map(|(uid, name, blocks)| {
            (uid, name, blocks.as_array().unwrap_or_default().iter().filter_map(block).collect())
        })
        .collect()
}

fn write(dir: &Path, bank: &MemoryAllocator) -> io::Result<()> {
    let number = |bytes: Amount| i64::try_from(bytes).unwrap_or(i64::MAX);
    let list = |nodes: Nodes| Value::Array(nodes.iter().map(|node| Value::from(i64::from(node))).collect());
    let mut entries = Object::new();
    for given in bank.given() {
        let blocks = given.blocks.iter().map(|block| {
            value!({"numaAffinity": (list(block.nodes)), "type": (block.kind.as_str()), "size": (number(block.bytes))})
        });
        if !entries.contains_key(&given.uid) {
            entries.insert(given.uid.as_str(), Value::object());
        }
        if let Some(pod) = entries.get_mut(&given.uid).and_then(Value::as_object_mut) {
            pod.insert(given.container.as_str(), blocks.collect::<Vec<_>>());
        }
    }
    let mut machine = Object::new();
    for (node, state) in bank.state() {
        let kinds: Object = state
            .kinds
            .iter()
            .map(|(kind, table)| {
                let value = value!({"total": (number(table.total)), "systemReserved": (number(table.reserved)),
                    "allocatable": (number(table.total - table.reserved)), "reserved": (number(table.given)),
                    "free": (number((table.total - table.reserved).saturating_sub(table.given)))});
                (kind.as_str(), value)
            })
            .collect();
        let assignments = i64::try_from(state.assignments).unwrap_or(i64::MAX);
        let value = value!({"numberOfAssignments": assignments, "memoryMap": kinds, "cells": (list(state.group))});
        machine.insert(node.to_string(), value);
    }
    let state = value!({"policyName": "Static", "machineState": machine, "entries": entries});
    checkpoint::write(dir, FILE, &state)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::topology::Provider;

    #[test]
    fn memory_allocations_survive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let amounts = BTreeMap::from([(0, BTreeMap::from([("memory".to_owned(), 100)]))]);
        let pod = value!({"metadata": {"uid": "u"}, "spec": {"containers": [{"name": "c", "resources":
            {"requests": {"cpu": "1", "memory": "40"}, "limits": {"cpu": "1", "memory": "40"}}}]}});
        let container = Pod(&pod).app_containers().next().unwrap();
        let open = || Memory::given_away(dir.path(), MemoryAllocator::new(amounts.clone(), &BTreeMap::new()));
        let memory = open();
        let failed: Result<(), io::Error> = memory.with_allocation(|bank| {
            bank.unwrap().allocate(Pod(&pod), container, None).unwrap();
            Err(io::Error::other("no memory is left for another container"))
        });
        assert!(failed.is_err() && memory.blocks("u", "c").is_empty());
        memory.with_allocation(|bank| bank.unwrap().allocate(Pod(&pod), container, None)).unwrap();
        let again = open();
        assert_eq!(again.blocks("u", "c"), [Block { nodes: Nodes::of([0]), kind: "memory".to_owned(), bytes: 40 }]);
        assert_eq!(again.of(Pod(&pod), container), "0");
        let text = fs::read_to_string(dir.path().join(FILE)).unwrap();
        let expect = value!({"policyName": "Static", "machineState": {"0": {"numberOfAssignments": 1, "cells": [0],
            "memoryMap": {"memory": {"total": 100, "systemReserved": 0, "allocatable": 100, "reserved": 40, "free": 60}}}},
            "entries": {"u": {"c": [{"numaAffinity": [0], "type": "memory", "size": 40}]}}});
        assert_eq!(json::parse(text.as_bytes()).unwrap(), expect);
        again.keep_only(|_| false);
        assert!(open().blocks("u", "c").is_empty());
        fs::write(dir.path().join(FILE), "{").unwrap();
        assert!(open().blocks("u", "c").is_empty());
    }
}
