//! Memory allocation: pure decisions about which container gets memory of which NUMA nodes.

use std::collections::{BTreeMap, BTreeSet};

use api::field_rules::quantity;
use apimachinery::Object;

use crate::admission::Rejection;
use crate::pod::{Container, Pod, QosClass, Role};
use crate::topology::{Hint, Hints, Nodes, Provider};

/// An amount of memory in bytes.
pub type Amount = u64;

/// Memory of one kind that is allocated to a container on a set of NUMA nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub nodes: Nodes,
    /// `memory`, or huge pages of a size.
    pub kind: String,
    pub bytes: Amount,
}

/// The allocation of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryAllocation {
    /// UID of the pod.
    pub uid: String,
    pub container: String,
    /// Whether the container is an init container, whose memory later containers reuse.
    pub ends_first: bool,
    pub blocks: Vec<Block>,
}

/// Memory of one kind on a NUMA node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryTable {
    pub total: Amount,
    /// Reserved for the system.
    pub reserved: Amount,
    /// Allocated to containers.
    pub given: Amount,
}

/// The allocations on a NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    pub kinds: BTreeMap<String, MemoryTable>,
    /// Number of blocks on the node.
    pub assignments: usize,
    /// The NUMA nodes that are allocated together with this one, itself included.
    pub group: Nodes,
}

/// All memory of the node and its allocations.
#[derive(Clone, Debug)]
pub struct MemoryAllocator {
    rooms: BTreeMap<u32, BTreeMap<String, MemoryTable>>,
    given: Vec<MemoryAllocation>,
}

impl MemoryAllocator {
    /// Creates an allocator without allocations.
    pub fn new(
        nodes: BTreeMap<u32, BTreeMap<String, Amount>>,
        reserved: &BTreeMap<u32, BTreeMap<String, Amount>>,
    ) -> Self {
        let table = |node: u32, kind: &str, total: Amount| {
            let reserved = reserved.get(&node).and_then(|kinds| kinds.get(kind)).copied().unwrap_or(0);
            MemoryTable { total, reserved: reserved.min(total), given: 0 }
        };
        let rooms = nodes.into_iter().map(|(node, kinds)| {
            let kinds = kinds.into_iter().map(|(kind, total)| (kind.clone(), table(node, &kind, total)));
            (node, kinds.collect())
        });
        Self { rooms: rooms.collect(), given: Vec::new() }
    }

    /// Restores allocations of a checkpoint; ignores those on NUMA nodes that no longer exist.
    pub fn restore(&mut self, given: Vec<(String, String, Vec<Block>)>) {
        let all = self.nodes();
        for (uid, container, blocks) in given {
            if blocks.iter().all(|block| block.nodes.count() > 0 && block.nodes.and(all) == block.nodes) {
                // The checkpoint does not contain `ends_first`: until its pod is deleted, the container counts as
                // running.
                self.given.push(MemoryAllocation { uid, container, ends_first: false, blocks });
            }
        }
    }

    pub fn given(&self) -> &[MemoryAllocation] {
        &self.given
    }

    /// Returns the blocks of a container.
    pub fn blocks(&self, uid: &str, container: &str) -> &[Block] {
        let own = self.given.iter().find(|given| given.uid == uid && given.container == container);
        own.map_or(&[], |given| &given.blocks)
    }

    /// Returns the NUMA nodes of a container; `None` if it is not restricted.
    pub fn nodes_of(&self, uid: &str, container: &str) -> Option<Nodes> {
        let blocks = self.blocks(uid, container);
        let nodes = Nodes::of(blocks.iter().flat_map(|block| block.nodes.iter()));
        (!blocks.is_empty()).then_some(nodes)
    }

    /// Returns all memory that can be allocated: NUMA node, kind, bytes.
    pub fn allocatable(&self) -> Vec<(u32, String, Amount)> {
        let kinds = |(node, kinds): (&u32, &BTreeMap<String, MemoryTable>)| {
            let node = *node;
            let rows = kinds.iter().map(move |(kind, table)| (node, kind.clone(), table.total - table.reserved));
            rows.collect::<Vec<_>>()
        };
        self.rooms.iter().flat_map(kinds).collect()
    }

    /// Releases the memory of deleted pods. Returns whether any was released.
    pub fn keep_only(&mut self, is_here: impl Fn(&str) -> bool) -> bool {
        let before = self.given.len();
        self.given.retain(|given| is_here(&given.uid));
        self.given.len() != before
    }

    /// Returns the state of each NUMA node. Blocks on several nodes are charged to the first nodes with free memory.
    pub fn state(&self) -> BTreeMap<u32, NodeState> {
        self.state_for("")
    }

    /// Returns the state without the init containers of the pod `starting`, which have exited when its other containers
    /// start.
    fn state_for(&self, starting: &str) -> BTreeMap<u32, NodeState> {
        let alone = |node: u32, kinds: &BTreeMap<String, MemoryTable>| NodeState {
            kinds: kinds.clone(),
            assignments: 0,
            group: Nodes::of([node]),
        };
        let mut state: BTreeMap<u32, NodeState> =
            self.rooms.iter().map(|(node, kinds)| (*node, alone(*node, kinds))).collect();
        for (nodes, kind, mut bytes, count) in self.charged(starting) {
            for node in nodes.iter() {
                let Some(node) = state.get_mut(&node) else { continue };
                node.group = Nodes::of(node.group.iter().chain(nodes.iter()));
                node.assignments += count;
                if let Some(table) = node.kinds.get_mut(&kind) {
                    let part = bytes.min((table.total - table.reserved).saturating_sub(table.given));
                    table.given += part;
                    bytes -= part;
                }
            }
        }
        state
    }

    /// Returns the charges of all pods: NUMA nodes, kind, bytes, blocks. A pod is charged for the larger of its init
    /// containers and its other containers, not for both.
    fn charged(&self, starting: &str) -> Vec<(Nodes, String, Amount, usize)> {
        let pods: BTreeSet<&str> = self.given.iter().map(|given| given.uid.as_str()).collect();
        let mut charged = Vec::new();
        for uid in pods {
            let mut first: BTreeMap<(Nodes, &str), (Amount, usize)> = BTreeMap::new();
            let mut lasting = first.clone();
            let counts = |given: &&MemoryAllocation| given.uid == uid && !(given.ends_first && uid == starting);
            for given in self.given.iter().filter(counts) {
                for block in &given.blocks {
                    let key = (block.nodes, block.kind.as_str());
                    let (bytes, count) =
                        if given.ends_first { &mut first } else { &mut lasting }.entry(key).or_default();
                    *bytes = if given.ends_first { block.bytes.max(*bytes) } else { *bytes + block.bytes };
                    *count += 1;
                }
            }
            for (key, (bytes, count)) in first {
                let both = lasting.entry(key).or_default();
                *both = (bytes.max(both.0), count + both.1);
            }
            charged.extend(
                lasting.into_iter().map(|((nodes, kind), (bytes, count))| (nodes, kind.to_owned(), bytes, count)),
            );
        }
        charged
    }

    fn nodes(&self) -> Nodes {
        Nodes::of(self.rooms.keys().copied())
    }

    /// Returns the sets of NUMA nodes that can provide all requested memory, and whether each has the minimum size.
    fn fitting(&self, uid: &str, requested: &BTreeMap<String, Amount>) -> Vec<(Nodes, bool)> {
        let state = self.state_for(uid);
        let all = self.nodes();
        let sum = |set: Nodes, kind: &str, of: fn(&MemoryTable) -> Amount| -> Amount {
            let rooms = set.iter().filter_map(|node| state.get(&node)?.kinds.get(kind));
            rooms.map(of).sum()
        };
        let mut smallest = all.count();
        let mut found = Vec::new();
        for set in all.subsets() {
            if requested.iter().any(|(kind, bytes)| sum(set, kind, |table| table.total - table.reserved) < *bytes) {
                continue;
            }
            smallest = smallest.min(set.count());
            // A NUMA node is allocated either alone or always in the same set: memory of a set may be on any of its
            // nodes.
            let apart =
                set.iter().filter_map(|node| state.get(&node)).any(|node| node.assignments > 0 && node.group != set);
            let free = |table: &MemoryTable| (table.total - table.reserved).saturating_sub(table.given);
            if !apart && requested.iter().all(|(kind, bytes)| sum(set, kind, free) >= *bytes) {
                found.push(set);
            }
        }
        found.into_iter().map(|set| (set, set.count() == smallest)).collect()
    }

    fn hints_for(&self, uid: &str, requested: &BTreeMap<String, Amount>) -> Hints {
        let hints: Vec<Hint> = self
            .fitting(uid, requested)
            .into_iter()
            .map(|(nodes, preferred)| Hint { nodes: Some(nodes), preferred })
            .collect();
        requested.keys().map(|kind| (kind.clone(), Some(hints.clone()))).collect()
    }
}

impl Provider for MemoryAllocator {
    fn hints(&self, pod: Pod<'_>, container: Container<'_>) -> Hints {
        let requested = requested_memory(pod, container);
        match self.nodes_of(pod.uid(), container.name()) {
            Some(nodes) => {
                let fixed = vec![Hint { nodes: Some(nodes), preferred: true }];
                requested.into_keys().map(|kind| (kind, Some(fixed.clone()))).collect()
            }
            None => self.hints_for(pod.uid(), &requested),
        }
    }

    fn pod_hints(&self, pod: Pod<'_>) -> Hints {
        let (mut first, mut lasting): (BTreeMap<String, Amount>, BTreeMap<String, Amount>) = Default::default();
        for container in pod.init_containers().chain(pod.app_containers()) {
            for (kind, bytes) in requested_memory(pod, container) {
                if container.role == Role::Init {
                    let most = first.entry(kind).or_default();
                    *most = bytes.max(*most);
                } else {
                    *lasting.entry(kind).or_default() += bytes;
                }
            }
        }
        for (kind, bytes) in first {
            let most = lasting.entry(kind).or_default();
            *most = bytes.max(*most);
        }
        self.hints_for(pod.uid(), &lasting)
    }

    fn allocate(&mut self, pod: Pod<'_>, container: Container<'_>, near: Option<Nodes>) -> Result<(), Rejection> {
        let requested = requested_memory(pod, container);
        if requested.is_empty() || self.nodes_of(pod.uid(), container.name()).is_some() {
            return Ok(());
        }
        let fitting = self.fitting(pod.uid(), &requested);
        // The preferred set may be too small; then the smallest fitting superset is used.
        let exact = fitting.iter().find(|(set, _)| Some(*set) == near);
        let wider = |set: Nodes| near.is_none_or(|near| near.and(set) == near);
        let best = |is: &dyn Fn(Nodes) -> bool| fitting.iter().find(|(set, preferred)| *preferred && is(*set));
        let found = exact.or_else(|| best(&wider)).or_else(|| fitting.iter().find(|(set, _)| wider(*set)));
        let Some((nodes, _)) = found.or_else(|| fitting.first()) else { return Err(rejection()) };
        let blocks = requested.into_iter().map(|(kind, bytes)| Block { nodes: *nodes, kind, bytes }).collect();
        let (uid, name) = (pod.uid().to_owned(), container.name().to_owned());
        self.given.push(MemoryAllocation { uid, container: name, ends_first: container.role == Role::Init, blocks });
        Ok(())
    }
}

/// Returns the memory and huge pages to allocate to a container; empty unless its pod is Guaranteed.
fn requested_memory(pod: Pod<'_>, container: Container<'_>) -> BTreeMap<String, Amount> {
    if pod.qos_class() != QosClass::Guaranteed {
        return BTreeMap::new();
    }
    let requests = container.spec["resources"]["requests"].as_object().into_iter().flat_map(Object::iter);
    requests
        .filter(|(kind, _)| *kind == "memory" || kind.starts_with("hugepages-"))
        .filter_map(|(kind, amount)| Some((kind.to_owned(), u64::try_from(quantity(amount).value()).ok()?)))
        .filter(|(_, bytes)| *bytes > 0)
        .collect()
}

fn rejection() -> Rejection {
    let cause =
        "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available";
    let message = format!("Pod was rejected: Allocate failed due to {cause}, which is unexpected");
    Rejection { reason: "UnexpectedAdmissionError".to_owned(), message }
}

#[cfg(test)]
mod tests {
    use apimachinery::{Value, value};

    use super::*;

    /// Two NUMA nodes of 100 bytes; the first reserves 10 for the system.
    fn bank() -> MemoryAllocator {
        let node = || BTreeMap::from([("memory".to_owned(), 100)]);
        let reserved = BTreeMap::from([(0, BTreeMap::from([("memory".to_owned(), 10)]))]);
        MemoryAllocator::new(BTreeMap::from([(0, node()), (1, node())]), &reserved)
    }

    fn pod(uid: &str, init: i64, app: i64) -> Value {
        let container = |name: &str, bytes: i64| {
            let amounts = value!({"cpu": "1", "memory": (bytes.to_string())});
            value!({"name": name, "resources": {"requests": (amounts.clone()), "limits": amounts}})
        };
        let init: Vec<Value> = (init > 0).then(|| container("i", init)).into_iter().collect();
        value!({"metadata": {"uid": uid}, "spec": {"initContainers": init, "containers": [(container("c", app))]}})
    }

    fn admit(bank: &mut MemoryAllocator, pod: &Value, near: Option<Nodes>) -> Result<(), Rejection> {
        let pod = Pod(pod);
        pod.init_containers().chain(pod.app_containers()).try_for_each(|container| bank.allocate(pod, container, near))
    }

    fn nodes(bank: &MemoryAllocator, uid: &str) -> Vec<u32> {
        bank.nodes_of(uid, "c").into_iter().flat_map(Nodes::iter).collect()
    }

    #[test]
    fn memory_is_allocated_from_the_fewest_and_preferred_numa_nodes() {
        let mut bank = bank();
        admit(&mut bank, &pod("a", 0, 50), None).unwrap();
        assert_eq!(nodes(&bank, "a"), [0]);
        admit(&mut bank, &pod("b", 0, 50), None).unwrap();
        assert_eq!(nodes(&bank, "b"), [1]);
        admit(&mut bank, &pod("c", 0, 30), Some(Nodes::of([1]))).unwrap();
        assert_eq!(nodes(&bank, "c"), [1]);
        // Sixty bytes are free in total, but nodes with separate allocations cannot be used together.
        let rejection = admit(&mut bank, &pod("d", 0, 60), None).unwrap_err();
        assert!(rejection.message.contains("no NUMA nodes with enough memory"), "{}", rejection.message);
        assert!(bank.keep_only(|uid| uid == "none") && bank.given().is_empty());
        admit(&mut bank, &pod("wide", 0, 150), Some(Nodes::of([0]))).unwrap();
        assert_eq!(nodes(&bank, "wide"), [0, 1]);
        assert!(admit(&mut bank, &pod("e", 0, 10), None).is_ok(), "from the same vendor");
        assert_eq!(nodes(&bank, "e"), [0, 1]);
        assert!(admit(&mut bank, &pod("f", 0, 31), None).is_err());
    }

    #[test]
    fn memory_of_init_containers_is_reused() {
        let mut bank = bank();
        admit(&mut bank, &pod("a", 80, 60), None).unwrap();
        assert_eq!(bank.state()[&0].kinds["memory"], MemoryTable { total: 100, reserved: 10, given: 80 });
        assert_eq!((bank.state()[&0].assignments, bank.state()[&1].assignments), (2, 0));
    }

    #[test]
    fn only_guaranteed_pods_get_numa_memory() {
        let mut bank = bank();
        let burstable = value!({"metadata": {"uid": "u"}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"memory": "5"}}}]}});
        admit(&mut bank, &burstable, None).unwrap();
        assert!(bank.given().is_empty() && bank.pod_hints(Pod(&burstable)).is_empty());
    }

    #[test]
    fn hints_are_the_numa_sets_with_enough_memory() {
        let mut bank = bank();
        let check = |bank: &MemoryAllocator, bytes: i64, expect: &[(&[u32], bool)]| {
            let pod = pod("new", 0, bytes);
            let hints = bank.hints(Pod(&pod), Pod(&pod).app_containers().next().unwrap());
            let describe = |hint: &Hint| (hint.nodes.unwrap().iter().collect::<Vec<_>>(), hint.preferred);
            let found: Vec<_> = hints["memory"].iter().flatten().map(describe).collect();
            let expect: Vec<_> = expect.iter().map(|(nodes, preferred)| (nodes.to_vec(), *preferred)).collect();
            assert_eq!(found, expect, "{bytes}");
        };
        check(&bank, 50, &[(&[0], true), (&[1], true), (&[0, 1], false)]);
        check(&bank, 95, &[(&[1], true), (&[0, 1], false)]);
        check(&bank, 150, &[(&[0, 1], true)]);
        check(&bank, 200, &[]);
        admit(&mut bank, &pod("a", 0, 50), None).unwrap();
        check(&bank, 45, &[(&[1], true)]);
    }

    #[test]
    fn restored_allocations_count_and_invalid_ones_are_ignored() {
        let mut bank = bank();
        let block = |nodes: &[u32]| {
            vec![Block { nodes: Nodes::of(nodes.iter().copied()), kind: "memory".to_owned(), bytes: 60 }]
        };
        bank.restore(vec![
            ("a".into(), "c".into(), block(&[1])),
            ("b".into(), "c".into(), block(&[7])),
            ("d".into(), "c".into(), block(&[])),
        ]);
        assert_eq!(bank.given().len(), 1);
        assert_eq!(bank.state()[&1].kinds["memory"].given, 60);
    }
}
