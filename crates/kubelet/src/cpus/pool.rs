//! CPU allocation: pure decisions about which container gets which CPUs.

use std::collections::{BTreeMap, BTreeSet};

use api::field_rules::quantity;

use crate::admission::Rejection;
use crate::pod::{Container, Pod, QosClass, Role};
use crate::topology::{Hint, Hints, Nodes, Provider};

/// Topology of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Core {
    pub socket: u32,
    /// Core within the socket; the hyperthreads of a core share it.
    pub core: u32,
    pub numa: u32,
}

/// All CPUs of the node and their allocations.
#[derive(Clone, Debug)]
pub struct Pool {
    cpus: BTreeMap<u32, Core>,
    reserved: BTreeSet<u32>,
    given: BTreeMap<(String, String), BTreeSet<u32>>,
}

/// Returns the number of exclusive CPUs of a container, if it gets any.
pub fn exclusive(pod: Pod<'_>, container: Container<'_>) -> Option<usize> {
    let milli = container.spec.at(&["resources", "requests", "cpu"]).map_or(0, |cpu| quantity(cpu).milli_value());
    let whole = milli > 0 && milli % 1000 == 0 && pod.qos_class() == QosClass::Guaranteed;
    usize::try_from(milli / 1000).ok().filter(|_| whole)
}

impl Pool {
    /// Creates a pool without allocations. Reserves the CPUs in `reserved`. If that is empty, reserves `count` CPUs,
    /// entire sockets and cores first.
    pub fn new(cpus: BTreeMap<u32, Core>, reserved: &BTreeSet<u32>, count: usize) -> Self {
        let mut pool = Self { cpus, reserved: BTreeSet::new(), given: BTreeMap::new() };
        pool.reserved = match reserved.is_empty() {
            true => pool.take_near(count, None).unwrap_or_default(),
            false => reserved.clone(),
        };
        pool
    }

    /// Restores allocations of a checkpoint. Ignores those with missing or reserved CPUs, or with CPUs of another
    /// allocation.
    pub fn restore(&mut self, given: Vec<(String, String, BTreeSet<u32>)>) {
        for (uid, container, cpus) in given {
            if cpus.is_subset(&self.free()) {
                self.given.insert((uid, container), cpus);
            }
        }
    }

    /// Returns the allocations by pod UID and container.
    pub const fn given(&self) -> &BTreeMap<(String, String), BTreeSet<u32>> {
        &self.given
    }

    /// Returns the exclusive CPUs of a container.
    pub fn of(&self, uid: &str, container: &str) -> Option<&BTreeSet<u32>> {
        self.given.get(&(uid.to_owned(), container.to_owned()))
    }

    /// Returns the shared pool: all CPUs that are not allocated exclusively.
    pub fn common(&self) -> BTreeSet<u32> {
        let given: BTreeSet<u32> = self.given.values().flatten().copied().collect();
        self.cpus.keys().filter(|cpu| !given.contains(cpu)).copied().collect()
    }

    /// Returns all CPUs that are not reserved, allocated or not.
    pub fn assignable(&self) -> BTreeSet<u32> {
        self.cpus.keys().filter(|cpu| !self.reserved.contains(cpu)).copied().collect()
    }

    /// Returns the CPUs of a pod's init containers that its other containers can reuse.
    fn reusable(&self, pod: Pod<'_>) -> BTreeSet<u32> {
        let of = |is_init: bool| {
            let containers = pod.init_containers().chain(pod.app_containers());
            let same = containers.filter(move |container| (container.role == Role::Init) == is_init);
            same.filter_map(|container| self.of(pod.uid(), container.name())).flatten().copied().collect()
        };
        let (left, taken): (BTreeSet<u32>, BTreeSet<u32>) = (of(true), of(false));
        left.difference(&taken).copied().collect()
    }

    /// Returns the sets of NUMA nodes that can provide `count` CPUs.
    fn hints_for(&self, count: usize, reusable: &BTreeSet<u32>) -> Hints {
        let nodes = Nodes::of(self.cpus.values().map(|core| core.numa));
        let free = self.free();
        let within = |set: Nodes, cpus: &BTreeSet<u32>| cpus.iter().filter(|cpu| set.has(self.cpus[cpu].numa)).count();
        let all: BTreeSet<u32> = self.cpus.keys().copied().collect();
        let mut smallest = nodes.count();
        let mut found = Vec::new();
        for set in nodes.subsets() {
            if within(set, &all) >= count {
                smallest = smallest.min(set.count());
            }
            // All reusable CPUs must be within the set: otherwise they would be allocated twice.
            if within(set, reusable) == reusable.len() && within(set, &free) + reusable.len() >= count {
                found.push(set);
            }
        }
        let hint = |set: Nodes| Hint { nodes: Some(set), preferred: set.count() == smallest };
        Hints::from([("cpu".to_owned(), Some(found.into_iter().map(hint).collect()))])
    }

    /// Releases the CPUs of deleted pods. Returns whether any were released.
    pub fn keep_only(&mut self, is_here: impl Fn(&str) -> bool) -> bool {
        let before = self.given.len();
        self.given.retain(|(uid, _), _| is_here(uid));
        self.given.len() != before
    }

    fn free(&self) -> BTreeSet<u32> {
        self.common().difference(&self.reserved).copied().collect()
    }

    /// Selects `count` free CPUs, preferring those of the given NUMA nodes.
    fn take_near(&self, count: usize, near: Option<Nodes>) -> Option<BTreeSet<u32>> {
        let free = self.free();
        let Some(nodes) = near else { return self.take(count, free) };
        let aligned: BTreeSet<u32> = free.iter().copied().filter(|cpu| nodes.has(self.cpus[cpu].numa)).collect();
        let mut taken = self.take(count.min(aligned.len()), aligned)?;
        let rest = free.difference(&taken).copied().collect();
        taken.extend(self.take(count - taken.len(), rest)?);
        Some(taken)
    }

    /// Selects `count` of the free CPUs: entire sockets first, then entire cores, then hyperthreads of partly used
    /// cores.
    fn take(&self, count: usize, mut free: BTreeSet<u32>) -> Option<BTreeSet<u32>> {
        if free.len() < count {
            return None;
        }
        let mut taken = BTreeSet::new();
        let whole = |free: &BTreeSet<u32>, same: &dyn Fn(Core, Core) -> bool, limit: usize| {
            let group = |cpu: u32| -> BTreeSet<u32> {
                let own = self.cpus[&cpu];
                self.cpus.iter().filter(|(_, core)| same(own, **core)).map(|(cpu, _)| *cpu).collect()
            };
            free.iter().map(|cpu| group(*cpu)).find(|group| group.len() <= limit && group.is_subset(free))
        };
        let same_socket = |a: Core, b: Core| a.socket == b.socket;
        let same_core = |a: Core, b: Core| a == b;
        let kinds: [&dyn Fn(Core, Core) -> bool; 2] = [&same_socket, &same_core];
        for same in kinds {
            while let Some(group) = whole(&free, same, count - taken.len()) {
                free.retain(|cpu| !group.contains(cpu));
                taken.extend(group);
            }
        }
        // Partly used cores come first, so that entire cores stay available for other containers.
        let mut rest: Vec<u32> = free.iter().copied().collect();
        let left = |cpu: &u32| free.iter().filter(|other| self.cpus[other] == self.cpus[cpu]).count();
        rest.sort_by_key(|cpu| (left(cpu), *cpu));
        taken.extend(rest.into_iter().take(count - taken.len()));
        Some(taken)
    }
}

impl Provider for Pool {
    fn hints(&self, pod: Pod<'_>, container: Container<'_>) -> Hints {
        let Some(count) = exclusive(pod, container) else { return Hints::new() };
        match self.of(pod.uid(), container.name()) {
            Some(own) => fixed(own.iter().map(|cpu| self.cpus[cpu].numa)),
            None => self.hints_for(count, &self.reusable(pod)),
        }
    }

    fn pod_hints(&self, pod: Pod<'_>) -> Hints {
        let of = |roles: &[Role]| {
            let containers = pod.init_containers().chain(pod.app_containers());
            containers.filter(|one| roles.contains(&one.role)).filter_map(|one| exclusive(pod, one)).collect::<Vec<_>>()
        };
        let lasting: usize = of(&[Role::App, Role::Sidecar]).into_iter().sum();
        let count = of(&[Role::Init]).into_iter().max().unwrap_or(0).max(lasting);
        if count == 0 { Hints::new() } else { self.hints_for(count, &BTreeSet::new()) }
    }

    fn allocate(&mut self, pod: Pod<'_>, container: Container<'_>, near: Option<Nodes>) -> Result<(), Rejection> {
        let Some(count) = exclusive(pod, container) else { return Ok(()) };
        let key = (pod.uid().to_owned(), container.name().to_owned());
        if self.given.contains_key(&key) {
            return Ok(());
        }
        let reusable = self.reusable(pod);
        let mut own: BTreeSet<u32> = reusable.iter().take(count).copied().collect();
        let more = self.take_near(count - own.len(), near);
        own.extend(more.ok_or_else(|| rejection(count, self.free().len() + reusable.len()))?);
        self.given.insert(key, own);
        Ok(())
    }
}

/// Returns the only possible hint of a container that already has its CPUs.
fn fixed(nodes: impl Iterator<Item = u32>) -> Hints {
    let hint = Hint { nodes: Some(Nodes::of(nodes)), preferred: true };
    Hints::from([("cpu".to_owned(), Some(vec![hint]))])
}

fn rejection(requested: usize, available: usize) -> Rejection {
    let message = format!(
        "Pod was rejected: Allocate failed due to not enough cpus available to satisfy request: requested={requested}, \
         available={available}, which is unexpected"
    );
    Rejection { reason: "UnexpectedAdmissionError".to_owned(), message }
}

/// Formats CPUs as the kernel's list format: `0-3,8`.
pub fn listed(cpus: &BTreeSet<u32>) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match parts.last_mut() {
            Some((_, end)) if *end + 1 == *cpu => *end = *cpu,
            _ => parts.push((*cpu, *cpu)),
        }
    }
    let format_range = |(from, to): &(u32, u32)| if from == to { from.to_string() } else { format!("{from}-{to}") };
    parts.iter().map(format_range).collect::<Vec<_>>().join(",")
}

/// Upper bound of CPU IDs in a list, against malformed ranges.
const CPU_MAX: u32 = 1 << 16;

/// Parses the kernel's list format.
pub fn parse_list(text: &str) -> Option<BTreeSet<u32>> {
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (u32, u32) = (from.parse().ok()?, to.parse().ok()?);
        if to > CPU_MAX || from > to {
            return None;
        }
        cpus.extend(from..=to);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use apimachinery::{Value, value};

    use super::*;

    /// Two sockets with two cores of two hyperthreads: CPUs 0 and 4 share a core, as on common hosts.
    fn pool(reserved: &str) -> Pool {
        let core_of = |cpu: u32| Core { socket: cpu % 4 / 2, core: cpu % 2, numa: cpu % 4 / 2 };
        Pool::new((0..8).map(|cpu| (cpu, core_of(cpu))).collect(), &parse_list(reserved).unwrap(), 0)
    }

    fn pod(uid: &str, cpu: &str) -> Value {
        let amounts = value!({"cpu": cpu, "memory": "1Mi"});
        value!({"metadata": {"uid": uid}, "spec": {"containers": [
            {"name": "c", "resources": {"requests": (amounts.clone()), "limits": amounts}}]}})
    }

    fn admit(pool: &mut Pool, pod: &Value, near: Option<Nodes>) -> Result<(), Rejection> {
        let pod = Pod(pod);
        pod.app_containers().try_for_each(|container| pool.allocate(pod, container, near))
    }

    #[test]
    fn cpus_are_allocated_from_the_preferred_numa_nodes() {
        let mut pool = pool("0");
        let hints = |pool: &Pool, cpu: &str| {
            let pod = pod("new", cpu);
            let hints = pool.hints(Pod(&pod), Pod(&pod).app_containers().next().unwrap());
            let format_hint = |hint: &Hint| {
                let nodes: Vec<String> = hint.nodes.unwrap().iter().map(|node| node.to_string()).collect();
                format!("{}{}", nodes.join("+"), if hint.preferred { "!" } else { "" })
            };
            hints.get("cpu").map(|list| list.iter().flatten().map(format_hint).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(hints(&pool, "3").as_deref(), Some("0! 1! 0+1"));
        assert_eq!(hints(&pool, "4").as_deref(), Some("1! 0+1"));
        assert_eq!(hints(&pool, "5").as_deref(), Some("0+1!"));
        assert_eq!(hints(&pool, "500m"), None);
        admit(&mut pool, &pod("near", "2"), Some(Nodes::of([1]))).unwrap();
        assert_eq!(pool.of("near", "c").map(listed).as_deref(), Some("2,6"));
        admit(&mut pool, &pod("wide", "4"), Some(Nodes::of([1]))).unwrap();
        assert_eq!(pool.of("wide", "c").map(listed).as_deref(), Some("1,3,5,7"));
        assert_eq!(hints(&pool, "2").as_deref(), Some(""));
        assert_eq!(hints(&pool, "1").as_deref(), Some("0! 0+1"));
    }

    #[test]
    fn entire_sockets_and_cores_are_allocated_first_and_never_twice() {
        let mut pool = pool("0");
        let mut check = |uid: &str, cpu: &str, expect: &str| {
            admit(&mut pool, &pod(uid, cpu), None).unwrap();
            assert_eq!(pool.of(uid, "c").map(listed).unwrap_or_default(), expect, "{uid}");
        };
        check("socket", "4", "2-3,6-7");
        check("core", "2", "1,5");
        check("part", "500m", "");
        check("rest", "1", "4");
        assert_eq!(listed(&pool.common()), "0");
        let rejection = admit(&mut pool, &pod("late", "1"), None).unwrap_err();
        assert!(rejection.message.contains("requested=1, available=0"), "{}", rejection.message);
        assert!(pool.keep_only(|uid| uid != "core"));
        assert_eq!(listed(&pool.common()), "0-1,5");
    }

    #[test]
    fn only_integer_cpu_requests_of_guaranteed_pods_are_exclusive() {
        let check = |spec: Value, expect: Option<usize>| {
            let pod = value!({"spec": {"containers": [{"name": "c", "resources": (spec.clone())}]}});
            assert_eq!(exclusive(Pod(&pod), Pod(&pod).app_containers().next().unwrap()), expect, "{spec:?}");
        };
        let both = |cpu: &str| value!({"cpu": cpu, "memory": "1Mi"});
        check(value!({"requests": (both("2")), "limits": (both("2"))}), Some(2));
        check(value!({"requests": (both("1500m")), "limits": (both("1500m"))}), None);
        check(value!({"requests": (both("1")), "limits": (both("2"))}), None);
        check(value!({}), None);
    }

    #[test]
    fn cpu_lists_use_the_kernel_format() {
        let check = |text: &str, expect: Option<&str>| {
            assert_eq!(parse_list(text).as_ref().map(listed).as_deref(), expect, "{text}");
        };
        check("0-3,8,10-11\n", Some("0-3,8,10-11"));
        check("", Some(""));
        check("3-1", None);
        check("0-99999999", None);
        check("x", None);
    }
}
